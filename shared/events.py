"""Events as a tenant sees them: lists, the payload, and where an event went."""

import base64
import codecs
import re
from dataclasses import dataclass
from uuid import UUID

from shared.deliveries import DeliveryFilter, list_in
from shared.domain.reach import EndpointFacts, EventFacts, reach
from shared.domain.time_ids import LAST_ID
from shared.errors import NotFound, TooLarge
from shared.listing import (
    ALWAYS,
    MOST_LOOKED_AT,
    Listing,
    Period,
    bounded,
    cut,
    is_narrow,
    type_parameters,
)
from shared.store.connection import Connection, Database, Row, fetch

MOST_SHOWN_BYTES = 1024 * 1024
"""Of a payload, inside an event. Quotes and backslashes are escaped twice on the way out of a Lambda function."""
MOST_TEXT_BYTES = 2_500_000
MOST_RAW_BYTES = 4_000_000
"""A Lambda function's answer may have 6 MB, of which base64 takes a third."""
MOST_ENDPOINTS = 200

_TEXT_TYPE = re.compile(r"text/|application/(?:[\w.+-]+\+)?(?:json|xml)\b", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events; None asks nothing. `type` may be a prefix such as `order.*`."""

    type: str | None = None
    consumer: str | None = None
    idempotency_key: str | None = None
    period: Period = ALWAYS


@dataclass(frozen=True, slots=True)
class RawPayload:
    """A payload to the byte. `is_text`: UTF-8 without control characters, of a type that says it is text."""

    content: bytes
    is_text: bool


def list_events(
    database: Database,
    tenant_id: UUID,
    asked: EventFilter,
    *,
    before: UUID | None = None,
    limit: int = 50,
) -> Listing:
    """A page of events without their payloads, newest first.

    Args:
        database: where they are.
        tenant_id: whose.
        asked: which ones.
        before: `next_key` of the page before, of the same filter.
        limit: rows of the page, at the most.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    path = "tenant" if asked.consumer is None else "consumer"
    if asked.idempotency_key is not None:
        path = "idempotency_key"
    filters = type_parameters(asked.type)
    with bounded(database, tenant_id) as connection:
        [walk] = fetch(
            connection,
            "walk_events",
            {
                **filters,
                "tenant_id": tenant_id,
                "path": path,
                "consumer": asked.consumer,
                "idempotency_key": asked.idempotency_key,
                "from_id": asked.period.from_id,
                "before_id": min(asked.period.before_id, before or LAST_ID),
                "lane_limit": MOST_LOOKED_AT if is_narrow(filters) else limit + 1,
                "limit": limit + 1,
            },
        )
        ids, next_key = cut(walk, limit)
        return Listing(_shown(connection, tenant_id, ids), next_key)


def get_event(database: Database, tenant_id: UUID, event_id: UUID) -> Row:
    """An event with its payload, its `deliveries` and its `reach`: why it reached each endpoint or did not.

    `payload` is text (`payload_encoding` "utf-8") or "base64", its first MOST_SHOWN_BYTES; deliveries and reach are of
    the newest MOST_ENDPOINTS endpoints each, and `…_truncated` says that there are more.

    Raises:
        NotFound: the tenant has no such event.
        DatabaseUnavailable: see `Database.connection`.
    """
    with bounded(database, tenant_id) as connection:
        rows = _shown(connection, tenant_id, [event_id])
        if not rows:
            raise NotFound(f"there is no event {event_id}")
        [event] = rows
        payload = _payload(connection, tenant_id, event_id, MOST_SHOWN_BYTES)
        deliveries = list_in(
            connection, tenant_id, DeliveryFilter(event_id=event_id), None, MOST_ENDPOINTS
        )
        endpoints = fetch(
            connection,
            "reach_of_event",
            {
                "tenant_id": tenant_id,
                "event_id": event_id,
                "limit": MOST_ENDPOINTS + 1,
            },
        )
    text, encoding = _as_text(payload["payload"], payload["content_type"], payload["payload_bytes"])
    return {
        **event,
        "payload": text,
        "payload_encoding": encoding,
        "payload_truncated": payload["payload_bytes"] > MOST_SHOWN_BYTES,
        "deliveries": deliveries.rows,
        "deliveries_truncated": deliveries.next_key is not None,
        "reach": [_reach(event, endpoint) for endpoint in endpoints[:MOST_ENDPOINTS]],
        "reach_truncated": len(endpoints) > MOST_ENDPOINTS,
    }


def get_payload(database: Database, tenant_id: UUID, event_id: UUID) -> RawPayload:
    """An event's payload to the byte.

    Raises:
        NotFound: the tenant has no such event.
        TooLarge: it does not fit into an answer.
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.as_tenant(tenant_id) as connection:
        row = _payload(connection, tenant_id, event_id, MOST_RAW_BYTES)
    size = row["payload_bytes"]
    if size > MOST_RAW_BYTES:
        raise TooLarge(
            f"the payload has {size} bytes and an answer may have {MOST_RAW_BYTES}: read it from the database"
        )
    is_text = size <= MOST_TEXT_BYTES and _text(row["payload"], row["content_type"]) is not None
    return RawPayload(row["payload"], is_text)


def _shown(connection: Connection, tenant_id: UUID, ids: list[UUID]) -> list[Row]:
    return fetch(connection, "show_events", {"tenant_id": tenant_id, "ids": ids})


def _payload(connection: Connection, tenant_id: UUID, event_id: UUID, most_bytes: int) -> Row:
    rows = fetch(
        connection,
        "get_payload",
        {"tenant_id": tenant_id, "event_id": event_id, "most_bytes": most_bytes},
    )
    if not rows:
        raise NotFound(f"there is no event {event_id}")
    return rows[0]


def _as_text(payload: bytes, content_type: str, payload_bytes: int) -> tuple[str, str]:
    text = _text(payload, content_type, is_whole=payload_bytes == len(payload))
    if text is None:
        return base64.b64encode(payload).decode("ascii"), "base64"
    return text, "utf-8"


def _text(payload: bytes, content_type: str, *, is_whole: bool = True) -> str | None:
    """A payload as text, if it says that it is and can be shown as it is; a cut one may end inside a character."""
    if not _TEXT_TYPE.match(content_type):
        return None
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(payload, final=is_whole)
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text


def _reach(event: Row, endpoint: Row) -> Row:
    facts = EventFacts(
        event["type"],
        event["consumer"],
        event["channels"],
        event["operational"],
        event["created_at"],
    )
    reason = reach(
        facts,
        EndpointFacts(
            endpoint["consumer"],
            endpoint["event_types"],
            endpoint["channels"],
            endpoint["created_at"],
            endpoint["deleted_at"],
            endpoint["disabled"],
            endpoint["delivery_id"] is not None,
            endpoint["unfinished"],
        ),
    )
    return {
        "endpoint_id": endpoint["endpoint_id"],
        "reason": reason,
        "delivery_id": endpoint["delivery_id"],
    }
