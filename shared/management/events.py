"""Events: what was published, and where each went."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from shared import events
from shared.domain.reach import Reach
from shared.events import EventFilter
from shared.http.access import Reader, RuntimeOf
from shared.http.filters import ConsumerFilter, PeriodFilter, TypePattern
from shared.http.pages import DEFAULT_LIMIT, CursorText, Limit, Page, read_cursor
from shared.http.schemas import problem_responses
from shared.http.strict import StrictRoute
from shared.management.deliveries import Delivery, page_of

router = APIRouter(route_class=StrictRoute, prefix="/v1", tags=["events"])

_REACH = """What became of the event at an endpoint, judged by the endpoint as it is now:

- `matched`: it has a delivery
- `parked`: it has a delivery, which waits until the endpoint is enabled
- `created_later`, `deleted`: there was no such endpoint then
- `other_consumer`: the endpoint is of another consumer, or of one at all
- `filtered_by_type`, `filtered_by_channel`: the endpoint's filters do not let it through
- `changed_later`: it would get through now and did not then, or it was meant for another endpoint alone
"""


class Event(BaseModel):
    """What happened, without its payload."""

    id: UUID = Field(description="Also the webhook-id of every request for it.")
    type: str
    consumer: str | None
    content_type: str
    payload_bytes: int
    channels: list[str] | None
    priority: int
    deliver_at: datetime | None
    operational: bool = Field(description="Leasehook's own, about an endpoint or a delivery.")
    created_at: datetime


class ReachedEndpoint(BaseModel):
    """An endpoint, and why an event reached it or did not."""

    endpoint_id: UUID
    reason: Reach = Field(description=_REACH)
    delivery_id: UUID | None


class EventDetail(Event):
    """An event with its payload, and where it went."""

    payload: str
    payload_encoding: Literal["utf-8", "base64"]
    payload_truncated: bool = Field(
        description="It is longer than what is shown here: `/v1/events/{event_id}/payload` has more."
    )
    deliveries: list[Delivery] = Field(description="Newest endpoint first.")
    deliveries_truncated: bool = Field(
        description="There are more: list the deliveries of this `event_id`."
    )
    reach: list[ReachedEndpoint] = Field(description="Newest endpoint first.")
    reach_truncated: bool


@router.get(
    "/events",
    summary="List events, newest first",
    description="A page looks at a bounded number of rows: it may have fewer than asked for, even none, and still a "
    "`next_cursor`.",
    response_model=Page[Event],
    responses=problem_responses(401, 403, 404, 422, 503),
)
def list_events(
    *,
    runtime: RuntimeOf,
    caller: Reader,
    period: PeriodFilter,
    event_type: Annotated[str | None, TypePattern, Query(alias="type")] = None,
    consumer: ConsumerFilter = None,
    idempotency_key: Annotated[
        str | None,
        Query(
            pattern=r"^[\x21-\x7e]{1,255}$",
            description="The one that it was published with, as long as that is kept.",
        ),
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: CursorText = None,
) -> dict[str, Any]:
    """See the route's description."""
    asked = EventFilter(
        type=event_type, consumer=consumer, idempotency_key=idempotency_key, period=period
    )
    return page_of(
        events.list_events(
            runtime.database, caller.tenant_id, asked, before=read_cursor(cursor), limit=limit
        )
    )


@router.get(
    "/events/{event_id}",
    summary="An event, its payload, and where it went",
    response_model=EventDetail,
    responses=problem_responses(401, 403, 404, 422, 503),
)
def get_event(runtime: RuntimeOf, caller: Reader, event_id: UUID) -> dict[str, Any]:
    """See the route's summary."""
    return events.get_event(runtime.database, caller.tenant_id, event_id)


@router.get(
    "/events/{event_id}/payload",
    summary="An event's payload to the byte",
    description="Always as a download and never as the type it was published with, so that no browser renders it.",
    response_class=Response,
    responses={
        200: {
            "description": "The payload.",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            },
        },
        **problem_responses(401, 403, 404, 413, 422, 503),
    },
)
def get_payload(runtime: RuntimeOf, caller: Reader, event_id: UUID) -> Response:
    """See the route's description."""
    payload = events.get_payload(runtime.database, caller.tenant_id, event_id)
    suffix = "txt" if payload.is_text else "bin"
    headers = {
        "content-disposition": f'attachment; filename="{event_id}.{suffix}"',
        "content-security-policy": "default-src 'none'; sandbox",
        "x-content-type-options": "nosniff",
    }
    media_type = "text/plain; charset=utf-8" if payload.is_text else "application/octet-stream"
    return Response(payload.content, 200, headers, media_type)
