"""Why an event reached an endpoint, or did not."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from shared.domain.matching import EVERYTHING, filters_matching


class Reach(StrEnum):
    """What became of an event at an endpoint, judged by the endpoint's settings of now."""

    MATCHED = "matched"
    """It has a delivery."""
    PARKED = "parked"
    """It has a delivery, which waits until the endpoint is enabled."""
    CREATED_LATER = "created_later"
    DELETED = "deleted"
    """The endpoint had been deleted before."""
    OTHER_CONSUMER = "other_consumer"
    FILTERED_BY_TYPE = "filtered_by_type"
    FILTERED_BY_CHANNEL = "filtered_by_channel"
    CHANGED_LATER = "changed_later"
    """It would get through now and did not then: the endpoint was changed, or the event was meant for another alone."""


@dataclass(frozen=True, slots=True)
class EventFacts:
    """What decides about an event. `operational`: Leasehook's own, which `*` does not let through."""

    type: str
    consumer: str | None
    channels: Sequence[str] | None
    operational: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """What decides about an endpoint. `has_delivery`: of this event; `waits`: and it is not finished."""

    consumer: str | None
    event_types: Sequence[str]
    channels: Sequence[str] | None
    created_at: datetime
    deleted_at: datetime | None
    disabled: bool
    has_delivery: bool
    waits: bool


def reach(event: EventFacts, endpoint: EndpointFacts) -> Reach:
    """Why `event` reached `endpoint`, or the first reason why it did not."""
    if endpoint.has_delivery:
        return Reach.PARKED if endpoint.disabled and endpoint.waits else Reach.MATCHED
    if endpoint.consumer != event.consumer:
        return Reach.OTHER_CONSUMER
    if endpoint.created_at > event.created_at:
        return Reach.CREATED_LATER
    if endpoint.deleted_at is not None:
        return Reach.DELETED
    if not _open_filters(event).intersection(endpoint.event_types):
        return Reach.FILTERED_BY_TYPE
    if endpoint.channels is not None and not set(endpoint.channels).intersection(
        event.channels or ()
    ):
        return Reach.FILTERED_BY_CHANNEL
    return Reach.CHANGED_LATER


def _open_filters(event: EventFacts) -> set[str]:
    filters = set(filters_matching(event.type))
    return filters - {EVERYTHING} if event.operational else filters
