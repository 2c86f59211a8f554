"""Deliveries: what became of events, asking for them again, calling them off."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field

from shared import deliveries
from shared.deliveries import DeliveryFilter
from shared.domain.outcome import ErrorKind
from shared.domain.states import Status
from shared.http.access import Manager, Reader, RuntimeOf
from shared.http.filters import ConsumerFilter, PeriodFilter, TypeFilter
from shared.http.pages import DEFAULT_LIMIT, CursorText, Limit, Page, read_cursor, write_cursor
from shared.http.schemas import problem_responses
from shared.http.strict import StrictRoute
from shared.listing import Listing

router = APIRouter(route_class=StrictRoute, prefix="/v1", tags=["deliveries"])


class Delivery(BaseModel):
    """One event for one endpoint."""

    id: UUID = Field(description="Also the Idempotency-Key of every request for it.")
    event_id: UUID
    endpoint_id: UUID
    event_type: str
    consumer: str | None
    status: Status
    parked: bool = Field(description="It waits until its endpoint is enabled.")
    attempt_count: int
    created_at: datetime
    claimable_at: datetime | None = Field(
        description="While it waits: when it is due. In progress: when its lease ends. Finished: null."
    )
    finished_at: datetime | None
    last_status_code: int | None
    last_error_kind: str | None
    dead_reason: str | None


class Attempt(BaseModel):
    """One HTTP request for a delivery."""

    number: int
    started_at: datetime | None = Field(description="Null: not reported, yet or ever.")
    duration_ms: int | None
    status_code: int | None
    error_kind: str | None = Field(
        description="Why it was no success; null for a success and while it is under way."
    )
    error_detail: str | None
    response: str | None = Field(
        description="The beginning of what the receiver answered, as text."
    )
    response_truncated: bool
    late: bool = Field(description="Reported after its lease had lapsed: it decided nothing.")
    request_headers: dict[str, str] = Field(
        description="What identified the request. The signature and custom headers are not shown; the timestamp is "
        "exact to about a second."
    )


class DeliveryDetail(Delivery):
    """A delivery and its timeline."""

    claimed_at: datetime | None
    custom_headers: list[str] | None = Field(
        description="Names of the headers that its endpoint adds now; null if they cannot be opened with the keys that "
        "are configured."
    )
    attempts: list[Attempt] = Field(description="The newest hundred, oldest first.")


IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[\x21-\x7e]{1,255}$",
        description="Of all requests for this delivery with the same key, one is heeded.",
    ),
]


@router.get(
    "/deliveries",
    summary="List deliveries, newest first",
    description="The deliveries of one event come newest endpoint first. A page looks at a bounded number of "
    "rows: it may have fewer than asked for, even none, and still a `next_cursor`.",
    response_model=Page[Delivery],
    responses=problem_responses(401, 403, 404, 422, 503),
)
def list_deliveries(
    *,
    runtime: RuntimeOf,
    caller: Reader,
    period: PeriodFilter,
    status: Status | None = None,
    endpoint_id: UUID | None = None,
    event_id: UUID | None = None,
    consumer: ConsumerFilter = None,
    event_type: TypeFilter = None,
    error_kind: Annotated[
        ErrorKind | None, Query(description="Why its last attempt was no success.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: CursorText = None,
) -> dict[str, Any]:
    """See the route's description."""
    asked = DeliveryFilter(
        status=status,
        endpoint_id=endpoint_id,
        event_id=event_id,
        consumer=consumer,
        event_type=event_type,
        error_kind=error_kind,
        period=period,
    )
    return page_of(
        deliveries.list_deliveries(
            runtime.database, caller.tenant_id, asked, before=read_cursor(cursor), limit=limit
        )
    )


@router.get(
    "/deliveries/{delivery_id}",
    summary="A delivery and the timeline of its attempts",
    response_model=DeliveryDetail,
    responses=problem_responses(401, 403, 404, 422, 503),
)
def get_delivery(runtime: RuntimeOf, caller: Reader, delivery_id: UUID) -> dict[str, Any]:
    """See the route's summary."""
    return deliveries.get_delivery(runtime.database, runtime.sealer, caller.tenant_id, delivery_id)


@router.post(
    "/deliveries/{delivery_id}/replay",
    status_code=202,
    summary="Send a delivery again",
    description="It is due at once, with a fresh retry schedule; its history stays. At a disabled endpoint it is "
    "parked. While it is in progress or waits for its first attempt: 409. A request whose Idempotency-Key was heeded "
    "before changes nothing, and is answered with `idempotent-replayed: true`.",
    response_model=Delivery,
    responses=problem_responses(401, 403, 404, 409, 422, 503),
)
def replay_delivery(
    runtime: RuntimeOf,
    caller: Manager,
    response: Response,
    delivery_id: UUID,
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """See the route's description."""
    replayed = deliveries.replay(runtime.database, caller.tenant_id, delivery_id, idempotency_key)
    if replayed.repeated:
        response.headers["idempotent-replayed"] = "true"
    return replayed.delivery


@router.post(
    "/deliveries/{delivery_id}/cancel",
    summary="Call off a delivery that waits",
    description="It can be replayed later. In progress or finished: 409.",
    response_model=Delivery,
    responses=problem_responses(401, 403, 404, 409, 422, 503),
)
def cancel_delivery(runtime: RuntimeOf, caller: Manager, delivery_id: UUID) -> dict[str, Any]:
    """See the route's description."""
    return deliveries.cancel(runtime.database, caller.tenant_id, delivery_id)


def page_of(listing: Listing) -> dict[str, Any]:
    """A listing as a `Page`."""
    key = listing.next_key
    return {"data": listing.rows, "next_cursor": None if key is None else write_cursor(key)}
