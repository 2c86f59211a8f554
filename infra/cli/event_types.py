"""`leasehook event-types`: what a tenant says about its events."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

from pathlib import Path
from typing import Annotated, Any

import typer

from infra.cli.options import AsJson, Limit, OfType, Tenant

app = typer.Typer(
    no_args_is_help=True, help="Event types: described, and held to a JSON Schema if they have one."
)

TypeName = Annotated[str, typer.Argument(metavar="TYPE", help="Such as order.paid.")]
Description = Annotated[str | None, typer.Option(help="What it means; '' for none.")]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, readable=True, help="JSON Schema that payloads must fit."
    ),
]
ExampleFile = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, readable=True, help="A payload, as JSON."),
]


@app.command()
def create(
    name: TypeName,
    *,
    description: Description = None,
    schema_file: SchemaFile = None,
    example_file: ExampleFile = None,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Register a type. The tenant is made if there is none of that name."""
    from infra.cli.connection import connect
    from shared import event_types
    from shared.store.tenancy import ensure_tenant

    fields = _fields(description, schema_file, example_file)
    database = connect().database
    _print(event_types.create(database, ensure_tenant(database, tenant), name, fields), as_json)


@app.command("list")
def list_(
    archived: Annotated[
        bool | None, typer.Option("--archived/--live", help="Only these. Default: both.")
    ] = None,
    limit: Limit = 200,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """List types in the order of their names."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, print_table, say
    from shared.event_types import list_page

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    rows = list_page(runtime.database, tenant_id, after=None, archived=archived, limit=limit)
    if as_json:
        print_json({"event_types": rows})
    elif rows:
        print_table(
            ["Type", "Version", "Schema", "State", "Description"],
            [
                [
                    row["name"],
                    row["version"],
                    "yes" if row["has_schema"] else "no",
                    "archived" if row["archived_at"] else "live",
                    row["description"],
                ]
                for row in rows
            ],
            folded=["Type", "Description"],
        )
    else:
        say("There are none: `leasehook event-types create TYPE` registers one.")


@app.command()
def show(name: TypeName, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Show a type with its schema and example."""
    from infra.cli.connection import connect, find_tenant
    from shared.event_types import get

    runtime = connect()
    _print(get(runtime.database, find_tenant(runtime, tenant), name), as_json)


@app.command()
def update(
    name: TypeName,
    *,
    description: Description = None,
    schema_file: SchemaFile = None,
    no_schema: Annotated[bool, typer.Option("--no-schema", help="Take any payload.")] = False,
    example_file: ExampleFile = None,
    no_example: Annotated[bool, typer.Option("--no-example")] = False,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Change a type; what is not given stays as it is."""
    from infra.cli.connection import connect, find_tenant
    from shared.event_types import change

    if (no_schema and schema_file) or (no_example and example_file):
        raise typer.BadParameter("give a file, or say that there is none")
    changes = _fields(description, schema_file, example_file)
    changes |= {"schema": None} if no_schema else {}
    changes |= {"example": None} if no_example else {}
    runtime = connect()
    _print(change(runtime.database, find_tenant(runtime, tenant), name, changes), as_json)


@app.command()
def archive(name: TypeName, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Refuse further events of a type."""
    _archive(name, tenant, as_json, archived=True)


@app.command()
def restore(name: TypeName, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Take events of an archived type again."""
    _archive(name, tenant, as_json, archived=False)


@app.command()
def catalogue(
    event_type: OfType = "*", tenant: Tenant = "default", as_json: AsJson = False
) -> None:
    """Print an OpenAPI document of the types, for those who receive them."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import json_text, print_json, say
    from shared import event_types

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    document = event_types.catalogue(runtime.database, tenant_id, event_type or "*")
    if as_json:
        print_json(document)
    else:
        say(json_text(document))


def _archive(name: str, tenant: str, as_json: bool, *, archived: bool) -> None:
    from infra.cli.connection import connect, find_tenant
    from shared import event_types

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    _print(event_types.archive(runtime.database, tenant_id, name, archived=archived), as_json)


def _fields(
    description: str | None, schema_file: Path | None, example_file: Path | None
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if description is not None:
        fields["description"] = description or None
    if schema_file is not None:
        fields["schema"] = _json_file(schema_file)
    if example_file is not None:
        fields["example"] = _json_file(example_file)
    return fields


def _json_file(path: Path) -> Any:  # noqa: ANN401 - whatever JSON it holds
    import msgspec

    try:
        return msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise typer.BadParameter(f"{path} holds no JSON: {fault}") from None


def _print(row: dict[str, Any], as_json: bool) -> None:
    from infra.cli.output import instant_text, json_text, print_fields, print_json, say

    if as_json:
        print_json(row)
        return
    print_fields(
        [
            ("type", row["name"]),
            ("version", row["version"]),
            ("description", row["description"]),
            ("changed", instant_text(row["updated_at"])),
            ("archived", instant_text(row["archived_at"])),
        ]
    )
    for part in ("schema", "example"):
        if row[part] is not None:
            say(f"\n{part}\n{json_text(row[part])}")
