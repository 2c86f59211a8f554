"""`leasehook tenants`: the owners of everything."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

from typing import Annotated

import typer

from infra.cli.options import AsJson, Limit

app = typer.Typer(no_args_is_help=True, help="Tenants: each sees its own data and nothing else.")


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    as_json: AsJson = False,
) -> None:
    """Make a tenant."""
    from infra.cli.connection import connect
    from infra.cli.output import print_json, say
    from shared.tenants import create_tenant

    row = create_tenant(connect().database, name)
    if as_json:
        print_json(row)
        return
    say(f"Tenant '{name}' is there, as {row['id']}.")


@app.command("list")
def list_(limit: Limit = 100, as_json: AsJson = False) -> None:
    """List tenants, the newest first."""
    from infra.cli.connection import connect
    from infra.cli.output import age, print_json, print_table, say
    from shared.tenants import list_tenants

    rows = list_tenants(connect().database, None, limit)
    if as_json:
        print_json({"tenants": rows})
    elif rows:
        print_table(
            ["Tenant", "Name", "Age"],
            [[row["id"], row["name"], age(row["created_at"])] for row in rows],
            folded=["Name"],
        )
    else:
        say("There are none: `leasehook tenants create NAME` makes one.")
