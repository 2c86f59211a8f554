"""Deliveries as a tenant sees them: lists, the timeline of one, replay and cancellation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from shared.courier import USER_AGENT
from shared.crypto import KeyMissing, Sealer, Unsealable
from shared.domain.headers import is_reserved
from shared.domain.states import Status
from shared.domain.time_ids import LAST_ID
from shared.errors import Conflict, NotFound
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

_MOST_LANES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """Which deliveries; None asks nothing. `event_type` may be a prefix such as `order.*`."""

    status: Status | None = None
    endpoint_id: UUID | None = None
    event_id: UUID | None = None
    consumer: str | None = None
    event_type: str | None = None
    error_kind: str | None = None
    period: Period = ALWAYS


@dataclass(frozen=True, slots=True)
class Replayed:
    """A delivery that is due again. `repeated`: its idempotency key had been used before, and nothing was done now."""

    delivery: Row
    repeated: bool


def list_deliveries(
    database: Database,
    tenant_id: UUID,
    asked: DeliveryFilter,
    *,
    before: UUID | None = None,
    limit: int = 50,
) -> Listing:
    """A page of deliveries, newest first; those of one event newest endpoint first.

    Args:
        database: where they are.
        tenant_id: whose.
        asked: which ones.
        before: `next_key` of the page before, of the same filter.
        limit: rows of the page, at the most.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    with bounded(database, tenant_id) as connection:
        return list_in(connection, tenant_id, asked, before, limit)


def list_in(
    connection: Connection,
    tenant_id: UUID,
    asked: DeliveryFilter,
    before: UUID | None,
    limit: int,
) -> Listing:
    """As `list_deliveries`, in a transaction that `bounded` has begun."""
    path, lanes = _path(connection, tenant_id, asked)
    filters = {
        "status": None if path == "dead" else asked.status,
        "endpoint_id": None if path == "endpoints" else asked.endpoint_id,
        "consumer": None if path == "endpoints" and asked.endpoint_id is None else asked.consumer,
        "error_kind": asked.error_kind,
        **type_parameters(asked.event_type),
    }
    share = MOST_LOOKED_AT // max(len(lanes), 1)
    skips = is_narrow(filters) or (path == "event" and asked.period != ALWAYS)
    [walk] = fetch(
        connection,
        "walk_deliveries",
        {
            **filters,
            "tenant_id": tenant_id,
            "path": path,
            "lanes": lanes,
            "event_id": asked.event_id,
            "from_id": asked.period.from_id,
            "before_id": asked.period.before_id,
            "before_key": before or LAST_ID,
            "lane_limit": share if skips else min(limit + 1, share),
            "limit": limit + 1,
        },
    )
    ids, next_key = cut(walk, limit)
    return Listing(_shown(connection, tenant_id, ids), next_key)


def get_delivery(database: Database, sealer: Sealer, tenant_id: UUID, delivery_id: UUID) -> Row:
    """A delivery with its `attempts`, oldest first, each with the `request_headers` that identify it.

    `custom_headers` names the endpoint's own headers as they are now, sorted; None if they cannot be opened with the
    keys that are configured. Values of headers, and signatures, are not in it.

    Raises:
        NotFound: the tenant has no such delivery.
        DatabaseUnavailable: see `Database.connection`.
    """
    key = {"tenant_id": tenant_id, "delivery_id": delivery_id}
    with database.as_tenant(tenant_id) as connection:
        delivery = _one(connection, tenant_id, delivery_id)
        [request] = fetch(connection, "show_request", key)
        attempts = fetch(connection, "list_attempts", key)
    return {
        **delivery,
        "claimed_at": request["claimed_at"],
        "custom_headers": _custom_headers(
            sealer, delivery["endpoint_id"], request["headers_sealed"]
        ),
        "attempts": [
            attempt | {"request_headers": _sent_headers(delivery, request["content_type"], attempt)}
            for attempt in attempts
        ],
    }


def get_delivery_with_payload(database: Database, tenant_id: UUID, delivery_id: UUID) -> Row:
    """A delivery with its payload's bytes, its endpoint's URL and its `attempts`, for who reaches the database himself.

    Raises:
        NotFound: the tenant has no such delivery.
        DatabaseUnavailable: see `Database.connection`.
    """
    key = {"tenant_id": tenant_id, "delivery_id": delivery_id}
    with database.as_tenant(tenant_id) as connection:
        rows = fetch(connection, "get_delivery", key)
        if not rows:
            raise NotFound(f"there is no delivery {delivery_id}")
        return {**rows[0], "attempts": fetch(connection, "list_attempts", key)}


def replay(
    database: Database, tenant_id: UUID, delivery_id: UUID, idempotency_key: str | None = None
) -> Replayed:
    """Ask for a delivery again: due at once, with a fresh retry schedule, its history kept.

    Of any number of requests for one delivery with the same key, at any time, one is heeded.

    Raises:
        NotFound: the tenant has no such delivery.
        Conflict: it is in progress or waits for its first attempt, or its endpoint was deleted.
        DatabaseUnavailable: it is not known whether it was heeded.
    """
    key = {"tenant_id": tenant_id, "delivery_id": delivery_id}
    with database.as_tenant(tenant_id) as connection:
        found = _locked(connection, key)
        is_new = idempotency_key is None or fetch(
            connection, "remember_replay", {**key, "key": idempotency_key}
        )
        if is_new:
            if found["endpoint_deleted"]:
                raise Conflict("its endpoint was deleted: publish the event again instead")
            if not fetch(connection, "replay_delivery", key):
                raise Conflict(f"the delivery is {found['status']}: it is on its way already")
        return Replayed(_one(connection, tenant_id, delivery_id), repeated=not is_new)


def cancel(database: Database, tenant_id: UUID, delivery_id: UUID) -> Row:
    """Call off a delivery that waits for an attempt.

    Raises:
        NotFound: the tenant has no such delivery.
        Conflict: it is in progress, or finished.
        DatabaseUnavailable: it is not known whether it was called off.
    """
    key = {"tenant_id": tenant_id, "delivery_id": delivery_id}
    with database.as_tenant(tenant_id) as connection:
        found = _locked(connection, key)
        if not fetch(connection, "cancel_delivery", key):
            raise Conflict(
                f"the delivery is {found['status']}: only one that waits for an attempt can be cancelled"
            )
        return _one(connection, tenant_id, delivery_id)


def _path(connection: Connection, tenant_id: UUID, asked: DeliveryFilter) -> tuple[str, list[UUID]]:
    """The index that leads to what is asked with the fewest rows between, and its lanes if it has several."""
    if asked.event_id is not None:
        return "event", []
    if asked.endpoint_id is not None:
        return "endpoints", [asked.endpoint_id]
    if asked.consumer is not None:
        rows = fetch(
            connection,
            "endpoints_of_consumer",
            {"tenant_id": tenant_id, "consumer": asked.consumer, "limit": _MOST_LANES + 1},
        )
        if len(rows) <= _MOST_LANES:
            return "endpoints", [row["id"] for row in rows]
    return ("dead" if asked.status is Status.DEAD else "tenant"), []


def _one(connection: Connection, tenant_id: UUID, delivery_id: UUID) -> Row:
    rows = _shown(connection, tenant_id, [delivery_id])
    if not rows:
        raise NotFound(f"there is no delivery {delivery_id}")
    return rows[0]


def _shown(connection: Connection, tenant_id: UUID, ids: list[UUID]) -> list[Row]:
    return fetch(connection, "show_deliveries", {"tenant_id": tenant_id, "ids": ids})


def _locked(connection: Connection, key: Mapping[str, Any]) -> Row:
    rows = fetch(connection, "lock_delivery", key)
    if not rows:
        raise NotFound(f"there is no delivery {key['delivery_id']}")
    return rows[0]


def _custom_headers(sealer: Sealer, endpoint_id: UUID, sealed: bytes | None) -> list[str] | None:
    if sealed is None:
        return []
    try:
        plain = sealer.open(sealed, endpoint_id.bytes)
    except (KeyMissing, Unsealable):
        return None
    names = msgspec.json.decode(plain, type=dict[str, str])
    return sorted(name for name in names if not is_reserved(name))


def _sent_headers(delivery: Row, content_type: str, attempt: Row) -> dict[str, str]:
    """What the courier sets, apart from the signature. The timestamp is the worker's, give or take a second."""
    headers = {
        "content-type": content_type,
        "user-agent": USER_AGENT.decode("ascii"),
        "webhook-id": str(delivery["event_id"]),
        "idempotency-key": str(delivery["id"]),
    }
    if attempt["started_at"] is not None:
        headers["webhook-timestamp"] = str(int(attempt["started_at"].timestamp()))
    return headers
