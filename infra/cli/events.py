"""`leasehook publish` and `events`: an event in, by the rules of the HTTP API, and what became of it."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.options import (
    AsJson,
    CreatedAfter,
    CreatedBefore,
    Id,
    Limit,
    OfConsumer,
    OfType,
    Tenant,
    items,
)

if TYPE_CHECKING:
    from shared.store.publishing import NewEvent

_WHITE_SPACE = b" \t\r\n"

app = typer.Typer(no_args_is_help=True, help="Events: what was published, and whom it reached.")


def publish(
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="Such as order.paid.")],
    payload: Annotated[
        str | None,
        typer.Argument(metavar="PAYLOAD", help="JSON, kept to the byte; - reads it from stdin."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, readable=True, help="Read the payload from here."
        ),
    ] = None,
    *,
    consumer: Annotated[
        str | None, typer.Option(help="Reach this consumer's endpoints only.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key and event again answers the first result.")
    ] = None,
    deliver_at: Annotated[
        str | None,
        typer.Option(metavar="INSTANT", help="Not before, such as 2030-01-31T09:00:00Z."),
    ] = None,
    priority: Annotated[int, typer.Option(help="-100 to 100; higher goes first.")] = 0,
    channels: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="For endpoints that are in one of these.")
    ] = None,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Publish an event: it is committed together with its deliveries."""
    import msgspec

    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, say
    from shared.enforcement import KnownSchemas, publish_as_tenant

    text = _payload(payload, file)
    members = {
        "type": type_,
        "priority": priority,
        "consumer": consumer,
        "idempotency_key": idempotency_key,
        "deliver_at": deliver_at,
        "channels": None if channels is None else items(channels),
    }
    runtime = connect()
    event = event_with(msgspec.json.encode(members), text, runtime.settings.max_payload_bytes)
    tenant_id = find_tenant(runtime, tenant)
    published = publish_as_tenant(runtime.database, KnownSchemas(), tenant_id, event)
    if as_json:
        print_json(
            {
                "id": published.event_id,
                "deliveries": published.delivery_count,
                "repeated": published.repeated,
            }
        )
        return
    count = published.delivery_count
    again = (
        " It had been published before, with the same idempotency key."
        if published.repeated
        else ""
    )
    say(
        f"Event {published.event_id} is stored, with {count} deliver{'y' if count == 1 else 'ies'}.{again}"
    )
    if not count:
        say("No endpoint takes this type: `leasehook endpoints list` shows what they take.")


@app.command("list")
def list_(
    *,
    event_type: OfType = None,
    consumer: OfConsumer = None,
    idempotency_key: Annotated[str | None, typer.Option(help="Published under this key.")] = None,
    created_after: CreatedAfter = None,
    created_before: CreatedBefore = None,
    limit: Limit = 20,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """List events, the newest first."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import age, print_json, print_table, say
    from infra.cli.paging import first_rows
    from shared.events import EventFilter, list_events
    from shared.listing import Period

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    asked = EventFilter(
        type=event_type,
        consumer=consumer,
        idempotency_key=idempotency_key,
        period=Period(created_after, created_before),
    )
    rows = first_rows(
        limit,
        lambda before, most: list_events(
            runtime.database, tenant_id, asked, before=before, limit=most
        ),
    )
    if as_json:
        print_json({"events": rows})
    elif rows:
        print_table(
            ["Event", "Type", "Consumer", "Bytes", "Age"],
            [
                [
                    row["id"],
                    row["type"],
                    row["consumer"],
                    row["payload_bytes"],
                    age(row["created_at"]),
                ]
                for row in rows
            ],
            folded=["Type", "Consumer"],
        )
    else:
        say("There are none.")


@app.command()
def show(event_id: Id, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Show an event: its payload, and why it reached each endpoint or did not."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import instant_text, print_fields, print_json, print_table, say
    from shared.courier import printable
    from shared.events import get_event

    runtime = connect()
    row = get_event(runtime.database, find_tenant(runtime, tenant), event_id)
    if as_json:
        print_json(row)
        return
    print_fields(
        [
            ("event", row["id"]),
            ("type", row["type"]),
            ("consumer", row["consumer"]),
            ("channels", row["channels"] and ", ".join(row["channels"])),
            ("priority", row["priority"] or None),
            ("published", instant_text(row["created_at"])),
            ("not before", instant_text(row["deliver_at"])),
            ("payload", f"{row['payload_bytes']} bytes, {row['content_type']}"),
        ]
    )
    is_text = row["payload_encoding"] == "utf-8"
    say("")
    say(printable(row["payload"]) if is_text else f"(base64) {row['payload']}")
    if row["payload_truncated"]:
        say("(the beginning of it)")
    if row["reach"]:
        statuses = {delivery["id"]: delivery["status"] for delivery in row["deliveries"]}
        say("")
        print_table(
            ["Endpoint", "Reached", "Delivery"],
            [
                [
                    each["endpoint_id"],
                    each["reason"].replace("_", " "),
                    statuses.get(each["delivery_id"], each["delivery_id"]),
                ]
                for each in row["reach"]
            ],
            folded=["Reached", "Delivery"],
        )
    if row["reach_truncated"]:
        say("There are more endpoints: these are the newest.")


def _payload(argument: str | None, file: Path | None) -> bytes:
    if (argument is None) == (file is None):
        raise typer.BadParameter("give the payload as an argument, as - for stdin, or with --file")
    if file is not None:
        return file.read_bytes()
    if argument == "-":
        return sys.stdin.buffer.read()
    return os.fsencode(argument or "")


def event_with(members: bytes, payload: bytes, max_payload_bytes: int) -> "NewEvent":
    """The event of a publish request, made of a JSON object of all other members and the payload's text.

    Raises:
        Invalid, TooLarge: see `shared.intake.read_event`.
    """
    from shared.errors import Invalid
    from shared.intake import read_event

    request = members.removesuffix(b"}") + b',"payload":' + payload + b"}"
    event = read_event(request, max_payload_bytes, datetime.now(UTC))
    # Text such as `1, "priority": 9` is no JSON value, and must not be read as more members of the request.
    if event.payload != payload.strip(_WHITE_SPACE):
        raise Invalid("payload", "must be one JSON value")
    return event
