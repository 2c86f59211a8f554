"""`leasehook sources`: addresses that receive other people's webhooks, and what came."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from infra.cli.options import AsJson, Tenant

if TYPE_CHECKING:
    from shared.runtime import Runtime
    from shared.store.connection import Row

_PAGE = 200

app = typer.Typer(
    no_args_is_help=True, help="Sources: addresses that receive other people's webhooks."
)

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Its id or its slug.")]
Secret = Annotated[
    str | None,
    typer.Option(
        help="As the provider shows it. Default: a new one, where the provider takes any."
    ),
]


@app.command()
def create(
    *,
    provider: Annotated[
        str,
        typer.Option(
            help="stripe, github, shopify, slack, standard_webhooks, or hmac for any other."
        ),
    ],
    slug: Annotated[
        str | None, typer.Option(help="Its address is /in/SLUG. Default: a random one.")
    ] = None,
    secret: Secret = None,
    configuration: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="How the provider hmac signs, as the API takes it."),
    ] = None,
    event_type_prefix: Annotated[
        str | None, typer.Option(help="Stands before the provider's event types.")
    ] = None,
    consumer: Annotated[
        str | None, typer.Option(help="Whose events they are: reach that one's endpoints only.")
    ] = None,
    description: Annotated[str | None, typer.Option()] = None,
    tolerance_seconds: Annotated[
        int | None, typer.Option(help="How old or early a signed timestamp may be.")
    ] = None,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Make a source; its secret is shown this once. The tenant is made if there is none of that name."""
    from infra.cli.connection import connect
    from infra.cli.output import print_json, say
    from shared.sources import NewSource, create_source
    from shared.store.tenancy import ensure_tenant

    new = NewSource(
        provider=provider,
        slug=slug,
        secret=secret,
        configuration=None if configuration is None else _object(configuration),
        event_type_prefix=event_type_prefix,
        consumer=consumer,
        description=description,
        tolerance_seconds=tolerance_seconds,
    )
    runtime = connect()
    sealer = runtime.sealer
    tenant_id = ensure_tenant(runtime.database, tenant)
    row = create_source(runtime.database, sealer, tenant_id, new)
    if as_json:
        print_json(row)
        return
    say("The source is ready. Keep its secret: it is not shown again.")
    _print_source(row)


@app.command("list")
def list_(tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """List a tenant's sources, the newest first."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, print_table, say
    from shared.sources import list_sources

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    rows: list[Row] = []
    before = None
    while True:
        listed = list_sources(runtime.database, tenant_id, before=before, limit=_PAGE)
        rows += listed.rows
        before = listed.next_key
        if before is None:
            break
    if as_json:
        print_json({"sources": rows})
    elif rows:
        print_table(
            ["Source", "Address", "Provider", "State"],
            [[row["id"], row["path"], row["provider"], _state(row)] for row in rows],
            folded=("Address",),
        )
    else:
        say("There are none: `leasehook sources create --provider NAME` makes one.")


@app.command()
def show(source: Source, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Show a source, and how often it refused something in the last 30 days."""
    from infra.cli.output import print_json, print_table, say
    from shared.sources import refusals

    runtime, tenant_id, row = _find(source, tenant)
    refused = refusals(runtime.database, tenant_id, row["id"], 30)
    if as_json:
        print_json({**row, "refusals": refused})
        return
    _print_source(row)
    if refused:
        say("")
        print_table(
            ["Day", "Refused because", "Times"],
            [[each["day"], each["reason"].replace("_", " "), each["count"]] for each in refused],
            folded=(),
        )


@app.command()
def disable(source: Source, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Refuse everything from now on, as if there were no such address."""
    _switch(source, tenant, as_json=as_json, disabled=True)


@app.command()
def enable(source: Source, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Accept webhooks again."""
    _switch(source, tenant, as_json=as_json, disabled=False)


@app.command()
def rotate(
    source: Source,
    secret: Secret = None,
    overlap_seconds: Annotated[
        int, typer.Option(help="How long the old secrets are accepted beside the new one.")
    ] = 86400,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Accept a new secret at once, and the old ones for a while."""
    from infra.cli.output import print_json, say
    from shared.sources import rotate_source_secret

    runtime, tenant_id, row = _find(source, tenant)
    rotated = rotate_source_secret(
        runtime.database,
        runtime.sealer,
        tenant_id,
        row["id"],
        secret=secret,
        overlap_seconds=overlap_seconds,
    )
    if as_json:
        print_json(rotated)
        return
    say(
        f"The old secrets are accepted for {overlap_seconds} s. Keep the new one: it is not shown again."
    )
    _print_source(rotated)


@app.command()
def delete(source: Source, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Delete a source and its secrets; what it received stays."""
    from infra.cli.output import print_json, say
    from shared.sources import delete_source

    runtime, tenant_id, row = _find(source, tenant)
    delete_source(runtime.database, tenant_id, row["id"])
    if as_json:
        print_json({"id": row["id"], "deleted": True})
        return
    say(f"Source {row['slug']} is deleted.")


@app.command()
def received(
    source: Source,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at the most.")] = 20,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """List what a source accepted, the newest first; `leasehook replay` sends its deliveries again."""
    from infra.cli.output import age, print_json, print_table, say
    from shared.sources import list_received

    runtime, tenant_id, row = _find(source, tenant)
    listed = list_received(runtime.database, tenant_id, row["id"], limit=limit)
    if as_json:
        print_json({"received": listed.rows})
    elif listed.rows:
        print_table(
            ["Event", "Type", "Verdict", "Times", "Age"],
            [
                [
                    each["event_id"],
                    each["event_type"],
                    each["verdict"],
                    each["times"],
                    age(each["last_received_at"]),
                ]
                for each in listed.rows
            ],
            folded=("Type",),
        )
    else:
        say("Nothing came yet.")


@app.command()
def verify(
    source: Source,
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="A captured HTTP request.")
    ],
    at: Annotated[
        int | None,
        typer.Option(metavar="SECONDS", help="Judge it as at this Unix time. Default: now."),
    ] = None,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Check a captured request (headers, an empty line, the body) against a source: what would be said to it, and why.

    Nothing is stored. Ends with 1 when it would be refused.
    """
    import time

    from infra.captured import parse_request
    from infra.cli.output import print_fields, print_json, say
    from shared.domain.inbound import Refused
    from shared.inbound import type_of_event
    from shared.sources import judge_request

    request = parse_request(file.read_bytes())
    runtime, tenant_id, row = _find(source, tenant)
    verdict = judge_request(
        runtime.database,
        runtime.sealer,
        tenant_id,
        row["id"],
        headers=request.headers,
        body=request.body,
        now=int(time.time()) if at is None else at,
    )
    notes = list(request.notes)
    if row["disabled_at"] is not None:
        notes.append("the source is disabled, so everything is refused now")
    document: dict[str, Any] = {"body_bytes": len(request.body), "notes": notes}
    if isinstance(verdict, Refused):
        document |= {"verdict": "refused", "failed": verdict.reason, "detail": verdict.detail}
    else:
        document |= {
            "verdict": "accepted" if verdict.challenge is None else "challenge",
            "event_type": type_of_event(row["event_type_prefix"], verdict.event_type),
            "dedupe_id": verdict.dedupe_id,
        }
    if as_json:
        print_json(document)
    else:
        if document["verdict"] == "refused":
            say(f"Refused: {str(document['failed']).replace('_', ' ')}.")
            print_fields([("because", document["detail"])])
        else:
            say("The signature is good.")
            print_fields([("type", document["event_type"]), ("id", document["dedupe_id"])])
        print_fields([("body", f"{len(request.body)} bytes"), *(("note", note) for note in notes)])
    if document["verdict"] == "refused":
        raise typer.Exit(1)


def _find(source: str, tenant: str) -> "tuple[Runtime, UUID, Row]":
    from infra.cli.connection import connect, find_tenant
    from shared.sources import get_source

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    try:
        named: UUID | str = UUID(source)
    except ValueError:
        named = source
    return runtime, tenant_id, get_source(runtime.database, tenant_id, named)


def _switch(source: str, tenant: str, *, as_json: bool, disabled: bool) -> None:
    from infra.cli.output import print_json, say
    from shared.sources import switch_source

    runtime, tenant_id, row = _find(source, tenant)
    row = switch_source(runtime.database, tenant_id, row["id"], disabled=disabled)
    if as_json:
        print_json(row)
        return
    say(f"Source {row['slug']} is {_state(row)}.")


def _print_source(row: "Row") -> None:
    from infra.cli.output import instant_text, print_fields

    print_fields(
        [
            ("id", row["id"]),
            ("address", row["path"]),
            ("provider", row["provider"]),
            ("signs", row["configuration"] and json.dumps(row["configuration"])),
            ("prefix", row["event_type_prefix"]),
            ("consumer", row["consumer"]),
            ("tolerance", row["tolerance_seconds"] and f"{row['tolerance_seconds']} s"),
            ("disabled", instant_text(row["disabled_at"])),
            ("secret", row.get("secret")),
        ]
    )


def _state(row: "Row") -> str:
    return "enabled" if row["disabled_at"] is None else "disabled"


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise typer.BadParameter(
            'write the configuration as a JSON object, such as {"signature_header": "X-Signature", "encoding": "hex"}'
        )
    return value
