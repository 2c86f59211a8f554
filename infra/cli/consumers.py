"""`leasehook consumers`: a tenant's customers."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

from typing import Annotated

import typer

from infra.cli.options import AsJson, Limit, Tenant

app = typer.Typer(
    no_args_is_help=True,
    help="Consumers: a tenant's customers, who get what is published for them and no more.",
)

ConsumerId = Annotated[str, typer.Argument(metavar="ID", help="Your own id of that customer.")]
Name = Annotated[str | None, typer.Option(help="For people to read.")]


@app.command()
def create(
    consumer: ConsumerId, name: Name = None, tenant: Tenant = "default", as_json: AsJson = False
) -> None:
    """Make a consumer. The tenant is made if there is none of that name."""
    from infra.cli.connection import connect
    from infra.cli.output import print_json, say
    from shared.consumers import create_consumer
    from shared.store.tenancy import ensure_tenant

    database = connect().database
    row = create_consumer(database, ensure_tenant(database, tenant), consumer, name)
    if as_json:
        print_json(row)
        return
    say(f"Consumer '{consumer}' is there: `endpoints create --consumer` gives it an endpoint.")


@app.command("list")
def list_(limit: Limit = 100, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """List consumers in the order of their ids."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import age, print_json, print_table, say
    from shared.consumers import list_consumers

    runtime = connect()
    rows = list_consumers(runtime.database, find_tenant(runtime, tenant), None, limit)
    if as_json:
        print_json({"consumers": rows})
    elif rows:
        print_table(
            ["Consumer", "Name", "Age"],
            [[row["id"], row["name"], age(row["created_at"])] for row in rows],
            folded=["Consumer", "Name"],
        )
    else:
        say("There are none: `leasehook consumers create ID` makes one.")


@app.command()
def rename(
    consumer: ConsumerId, name: Name = None, tenant: Tenant = "default", as_json: AsJson = False
) -> None:
    """Give a consumer another name; without --name, none."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, say
    from shared.consumers import rename_consumer

    runtime = connect()
    row = rename_consumer(runtime.database, find_tenant(runtime, tenant), consumer, name)
    if as_json:
        print_json(row)
        return
    say(f"Consumer '{consumer}' has {'no name' if name is None else f'the name {name}'}.")


@app.command()
def delete(consumer: ConsumerId, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Delete a consumer that has no endpoints any more."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, say
    from shared.consumers import delete_consumer

    runtime = connect()
    delete_consumer(runtime.database, find_tenant(runtime, tenant), consumer)
    if as_json:
        print_json({"id": consumer, "deleted": True})
        return
    say(f"Consumer '{consumer}' is deleted.")
