"""`leasehook deliveries` and `replay`: what became of events, and asking for them again."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from infra.cli.options import (
    AsJson,
    CreatedAfter,
    CreatedBefore,
    Id,
    Limit,
    OfConsumer,
    OfEndpoint,
    OfErrorKind,
    OfType,
    Tenant,
)
from shared.domain.states import Status

if TYPE_CHECKING:
    from shared.store.connection import Row

app = typer.Typer(no_args_is_help=True, help="Deliveries: one event for one endpoint each.")


@app.command("list")
def list_(
    *,
    status: Annotated[Status | None, typer.Option(help="Only these.")] = None,
    endpoint: OfEndpoint = None,
    event: Annotated[UUID | None, typer.Option(metavar="ID", help="Only this event's.")] = None,
    consumer: OfConsumer = None,
    event_type: OfType = None,
    error_kind: OfErrorKind = None,
    created_after: CreatedAfter = None,
    created_before: CreatedBefore = None,
    limit: Limit = 20,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """List deliveries, the newest first."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import age, print_json, print_table, say
    from infra.cli.paging import first_rows
    from shared.deliveries import DeliveryFilter, list_deliveries
    from shared.listing import Period

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    asked = DeliveryFilter(
        status=status,
        endpoint_id=endpoint,
        event_id=event,
        consumer=consumer,
        event_type=event_type,
        error_kind=error_kind,
        period=Period(created_after, created_before),
    )
    rows = first_rows(
        limit,
        lambda before, most: list_deliveries(
            runtime.database, tenant_id, asked, before=before, limit=most
        ),
    )
    if as_json:
        print_json({"deliveries": rows})
    elif rows:
        print_table(
            ["Delivery", "Type", "Status", "Last", "Age"],
            [
                [
                    row["id"],
                    row["event_type"],
                    "parked" if row["parked"] else row["status"],
                    _last(row),
                    age(row["created_at"]),
                ]
                for row in rows
            ],
            folded=["Type"],
        )
    else:
        say("There are none.")


@app.command()
def show(delivery_id: Id, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Show a delivery: its payload and the timeline of its attempts."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import age, instant_text, print_fields, print_json, print_table, say
    from shared.courier import printable
    from shared.deliveries import get_delivery_with_payload

    runtime = connect()
    row = get_delivery_with_payload(runtime.database, find_tenant(runtime, tenant), delivery_id)
    payload, encoding = payload_text(row["payload"])
    if as_json:
        print_json({**row, "payload": payload, "payload_encoding": encoding})
        return
    print_fields(
        [
            ("delivery", row["id"]),
            ("event", f"{row['event_id']} {row['event_type']}"),
            ("endpoint", f"{row['endpoint_id']} {row['url']}"),
            ("status", _status(row)),
            ("made", instant_text(row["created_at"])),
            ("next", instant_text(row["claimable_at"])),
            ("finished", instant_text(row["finished_at"])),
            ("payload", f"{len(row['payload'])} bytes, {row['content_type']}"),
        ]
    )
    say("")
    say(printable(payload) if encoding == "utf-8" else f"(base64) {payload}")
    if row["attempts"]:
        say("")
        print_table(
            ["No.", "Age", "Took", "Result", "Detail"],
            [
                [
                    attempt["number"],
                    age(attempt["started_at"]),
                    "-" if attempt["duration_ms"] is None else f"{attempt['duration_ms']} ms",
                    attempt["status_code"] or attempt["error_kind"] or "under way",
                    attempt["error_detail"] or attempt["response"],
                ]
                for attempt in row["attempts"]
            ],
            folded=["Detail"],
        )


@app.command()
def cancel(delivery_id: Id, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Call off a delivery that waits for an attempt."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, say
    from shared import deliveries

    runtime = connect()
    row = deliveries.cancel(runtime.database, find_tenant(runtime, tenant), delivery_id)
    if as_json:
        print_json(row)
        return
    say(f"Delivery {delivery_id} is cancelled: `leasehook replay` would ask for it again.")


def replay(delivery_id: Id, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Send a delivery again: due at once, with a fresh retry schedule; its history stays."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, say
    from shared import deliveries

    runtime = connect()
    deliveries.replay(runtime.database, find_tenant(runtime, tenant), delivery_id)
    if as_json:
        print_json({"id": delivery_id, "status": Status.PENDING})
        return
    say(f"Delivery {delivery_id} is due again: the next drain sends it.")


def payload_text(payload: bytes) -> tuple[str, str]:
    """A payload as text and its encoding: `utf-8` if it is that, else `base64`."""
    import base64

    try:
        return payload.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode("ascii"), "base64"


def _status(row: "Row") -> str:
    reason = f" ({row['dead_reason']})" if row["dead_reason"] else ""
    return f"{row['status']}{reason}"


def _last(row: "Row") -> Any:  # noqa: ANN401 - a code or a word, as the table prints either
    return row["last_status_code"] or row["last_error_kind"] or "-"
