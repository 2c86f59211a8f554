"""`leasehook publish`: an event in, by the rules of the HTTP API."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.options import AsJson, Tenant

if TYPE_CHECKING:
    from shared.store.publishing import NewEvent

_WHITE_SPACE = b" \t\r\n"


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
