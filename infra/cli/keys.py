"""`leasehook keys`: who may use the API."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

from enum import StrEnum
from typing import Annotated

import typer

from infra.cli.options import AsJson, Tenant

app = typer.Typer(no_args_is_help=True, help="API keys.")


class Scope(StrEnum):
    """What a key may do."""

    PUBLISH = "publish"
    READ = "read"
    MANAGE = "manage"


@app.command()
def create(
    name: Annotated[str, typer.Option(help="To tell it from others.")] = "command line",
    scope: Annotated[
        list[Scope] | None, typer.Option(help="What it may do; repeat it. Default: everything.")
    ] = None,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Make an API key; it is shown this once. The tenant is made if there is none of that name."""
    from infra.cli.connection import connect
    from infra.cli.output import print_fields, print_json, say
    from shared.keys import create_key
    from shared.store.tenancy import ensure_tenant

    database = connect().database
    tenant_id = ensure_tenant(database, tenant)
    row = create_key(database, tenant_id, name, [str(each) for each in scope or Scope])
    if as_json:
        print_json(row)
        return
    say(f"Key '{name}' of tenant '{tenant}'. Keep it: it is not shown again.")
    print_fields([("key", row["key"]), ("scopes", ", ".join(row["scopes"])), ("id", row["id"])])
