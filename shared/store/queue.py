"""The queue: claim, and settle or release under the lease."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

import psycopg

from shared.domain.circuit import CircuitPolicy
from shared.errors import StatementRefused
from shared.store.connection import Connection, fetch

START = UUID(int=0)
"""The sweep position before the first endpoint."""


@dataclass(frozen=True, slots=True, repr=False)
class Claimed:
    """A delivery under our lease, with all that sending it needs.

    `attempt_count` is this attempt's number in the delivery's life, `attempt_base` what it was when the delivery was
    last replayed. `suspect` says that the worker of its last attempt never reported: it may have died of this very row.
    Secrets and headers are still sealed. `retry_delays_seconds` is None where the default holds.
    """

    delivery_id: UUID
    tenant_id: UUID
    event_id: UUID
    endpoint_id: UUID
    attempt_count: int
    attempt_base: int
    suspect: bool
    content_type: str
    payload: bytes
    url: str
    headers_sealed: bytes | None
    timeout_seconds: int
    retry_delays_seconds: list[int] | None
    secrets_sealed: list[bytes]


@dataclass(frozen=True, slots=True)
class Harvest:
    """What a claim took.

    `swept_to` is where the walk over endpoints stopped early, None if it reached the last one.
    """

    claimed: list[Claimed]
    swept_to: UUID | None


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a claim may take.

    Args:
        lease_token: a fresh UUID; it alone may settle what this claim takes.
        limit: at most this many rows.
        lease_seconds: how long the rows are ours.
        after: walk over endpoints with a greater id than this.
        visit_limit: look at no more than this many lanes (endpoint and rank).
        endpoint_limit: at most this many rows of one endpoint.
        busy_endpoint_ids: endpoints for which there is less room than that.
        busy_endpoint_room: how many rows of each of those may be taken; 0 or less leaves it alone.
        timeout_seconds: the attempt timeout of endpoints without one of their own.
        remaining_seconds: endpoints whose attempts may take longer than this are left alone.
    """

    lease_token: UUID
    limit: int
    lease_seconds: float
    after: UUID
    visit_limit: int
    endpoint_limit: int
    busy_endpoint_ids: Sequence[UUID]
    busy_endpoint_room: Sequence[int]
    timeout_seconds: int
    remaining_seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one claimed delivery, in the columns of `settle`.

    `verb` is succeed, retry, bury or release. `sent` says that an HTTP request was begun: only then the attempt
    counts and is recorded.
    """

    delivery_id: UUID
    lease_token: UUID
    attempt: int
    verb: str
    sent: bool
    delay_seconds: float | None = None
    dead_reason: str | None = None
    evidence: str = "none"
    hold_seconds: float = 0.0
    gone: bool = False
    duration_ms: int = 0
    status_code: int | None = None
    error_kind: str | None = None
    error_detail: str | None = None
    response: str | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Settlement:
    """What settling changed. A late report is one whose lease had lapsed and whose row had moved on.

    `announced_count` is how many operational events about it were published.
    """

    settled_count: int
    announced_count: int
    late_delivery_ids: list[UUID]
    opened_endpoint_ids: list[UUID]
    closed_endpoint_ids: list[UUID]
    disabled_endpoint_ids: list[UUID]


_CLAIMED_COLUMNS = tuple(field.name for field in fields(Claimed))
_REPORT_COLUMNS = {
    "delivery_id": "delivery_ids",
    "lease_token": "lease_tokens",
    "attempt": "attempts",
    "verb": "verbs",
    "sent": "sent",
    "delay_seconds": "delays_seconds",
    "dead_reason": "dead_reasons",
    "evidence": "evidence",
    "hold_seconds": "holds_seconds",
    "gone": "gone",
    "duration_ms": "durations_ms",
    "status_code": "status_codes",
    "error_kind": "error_kinds",
    "error_detail": "error_details",
    "response": "responses",
    "truncated": "truncated",
}


def claim(connection: Connection, request: ClaimRequest) -> Harvest:
    """Take due deliveries under a lease, in one round trip.

    Raises:
        psycopg.Error: the statement failed; nothing was claimed, unless the connection broke, in which case what was
            claimed comes back when its lease lapses.
    """
    rows = fetch(
        connection, "claim", {field.name: getattr(request, field.name) for field in fields(request)}
    )
    claimed = [
        Claimed(*[row[column] for column in _CLAIMED_COLUMNS])
        for row in rows
        if row["delivery_id"] is not None
    ]
    return Harvest(claimed, rows[0]["swept_to"])


def settle(connection: Connection, reports: Sequence[Report], policy: CircuitPolicy) -> Settlement:
    """Write results under the lease, in one round trip, all or nothing.

    Raises:
        StatementRefused: the database refuses one of the reports, and so all of them.
        psycopg.Error: the statement failed and nothing was written, unless the connection broke: then the same call
            may be repeated, and rows that were written are counted as late.
    """
    circuit = {
        "failures_to_open": policy.failures_to_open,
        "cooldowns_seconds": list(policy.cooldowns_seconds),
    }
    try:
        [row] = fetch(connection, "settle", report_columns(reports) | circuit)
    except (psycopg.DataError, psycopg.IntegrityError) as error:
        raise StatementRefused(f"results could not be written: {type(error).__name__}") from error
    return Settlement(**row)


def report_columns(reports: Sequence[Report]) -> dict[str, list[Any]]:
    """Reports as the arrays that `settle` reads, one per column."""
    return {
        parameter: [getattr(report, name) for report in reports]
        for name, parameter in _REPORT_COLUMNS.items()
    }
