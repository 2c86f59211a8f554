"""`leasehook keys`: who may use the API."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

from enum import StrEnum
from typing import Annotated

import typer

from infra.cli.options import AsJson, Id, Limit, Tenant

app = typer.Typer(no_args_is_help=True, help="API keys.")

Operators = Annotated[
    bool, typer.Option("--operator", help="Of operators, who may do everything for every tenant.")
]


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
    operator: Operators = False,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Make an API key; it is shown this once. The tenant is made if there is none of that name."""
    from infra.cli.connection import connect
    from infra.cli.output import print_fields, print_json, say
    from shared.keys import create_key, create_operator_key
    from shared.store.tenancy import ensure_tenant

    if operator and scope:
        raise typer.BadParameter("an operator's key has no scopes: it may do everything")
    database = connect().database
    if operator:
        row = create_operator_key(database, name)
    else:
        tenant_id = ensure_tenant(database, tenant)
        row = create_key(database, tenant_id, name, [str(each) for each in scope or Scope])
    if as_json:
        print_json(row)
        return
    owner = "for operators" if operator else f"of tenant '{tenant}'"
    say(f"Key '{name}' {owner}. Keep it: it is not shown again.")
    print_fields([("key", row["key"]), ("scopes", ", ".join(row["scopes"])), ("id", row["id"])])


@app.command("list")
def list_(
    operator: Operators = False,
    limit: Limit = 100,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """List keys, the newest first, revoked ones too."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import age, print_json, print_table, say
    from shared.keys import list_keys, list_operator_keys

    runtime = connect()
    if operator:
        rows = list_operator_keys(runtime.database, None, limit)
    else:
        rows = list_keys(runtime.database, find_tenant(runtime, tenant), None, limit)
    if as_json:
        print_json({"keys": rows})
    elif rows:
        print_table(
            ["Key", "Begins", "Name", "Scopes", "Age"],
            [
                [
                    row["id"],
                    row["key_prefix"],
                    row["name"],
                    "revoked" if row["revoked_at"] else ", ".join(row["scopes"]),
                    age(row["created_at"]),
                ]
                for row in rows
            ],
            folded=["Name", "Scopes"],
        )
    else:
        say("There are none: `leasehook keys create` makes one.")


@app.command()
def revoke(
    key_id: Id, operator: Operators = False, tenant: Tenant = "default", as_json: AsJson = False
) -> None:
    """Make a key worthless, at once and for good."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, say
    from shared.keys import revoke_key, revoke_operator_key

    runtime = connect()
    if operator:
        revoke_operator_key(runtime.database, key_id)
    else:
        revoke_key(runtime.database, find_tenant(runtime, tenant), key_id)
    if as_json:
        print_json({"id": key_id, "revoked": True})
        return
    say(f"Key {key_id} opens nothing any more.")
