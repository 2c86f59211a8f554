from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shared.domain.reach import EndpointFacts, EventFacts, Reach, reach

AT = datetime(2030, 1, 31, tzinfo=UTC)
EVENT = EventFacts("order.paid", None, None, operational=False, created_at=AT)
ENDPOINT = EndpointFacts(
    consumer=None,
    event_types=["*"],
    channels=None,
    created_at=AT - timedelta(days=1),
    deleted_at=None,
    disabled=False,
    has_delivery=False,
    waits=False,
)
AWAY = replace(
    ENDPOINT,
    consumer="acme",
    created_at=AT + timedelta(days=1),
    deleted_at=AT,
    event_types=["invoice.*"],
    channels=["eu"],
)


def test_a_delivery_is_what_counts_whatever_the_settings_say_now() -> None:
    assert reach(EVENT, replace(AWAY, has_delivery=True)) is Reach.MATCHED


@pytest.mark.parametrize(
    ("disabled", "waits", "expected"),
    [
        (True, True, Reach.PARKED),
        (True, False, Reach.MATCHED),
        (False, True, Reach.MATCHED),
    ],
)
def test_what_waits_at_a_disabled_endpoint_is_parked(
    *, disabled: bool, waits: bool, expected: Reach
) -> None:
    endpoint = replace(ENDPOINT, has_delivery=True, disabled=disabled, waits=waits)
    assert reach(EVENT, endpoint) is expected


def test_of_several_reasons_the_one_that_an_endpoint_can_least_help_comes_first() -> None:
    endpoint = AWAY
    assert reach(EVENT, endpoint) is Reach.OTHER_CONSUMER
    endpoint = replace(endpoint, consumer=None)
    assert reach(EVENT, endpoint) is Reach.CREATED_LATER
    endpoint = replace(endpoint, created_at=ENDPOINT.created_at)
    assert reach(EVENT, endpoint) is Reach.DELETED
    endpoint = replace(endpoint, deleted_at=None)
    assert reach(EVENT, endpoint) is Reach.FILTERED_BY_TYPE
    endpoint = replace(endpoint, event_types=["invoice.*", "order.*"])
    assert reach(EVENT, endpoint) is Reach.FILTERED_BY_CHANNEL
    endpoint = replace(endpoint, channels=None)
    assert reach(EVENT, endpoint) is Reach.CHANGED_LATER


def test_an_event_of_a_consumer_passes_by_endpoints_of_nobody() -> None:
    assert reach(replace(EVENT, consumer="acme"), ENDPOINT) is Reach.OTHER_CONSUMER


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        (None, Reach.FILTERED_BY_CHANNEL),
        (["us"], Reach.FILTERED_BY_CHANNEL),
        (["us", "eu"], Reach.CHANGED_LATER),
    ],
)
def test_an_endpoint_with_channels_asks_for_one_of_them(
    channels: list[str] | None, expected: Reach
) -> None:
    assert reach(replace(EVENT, channels=channels), replace(ENDPOINT, channels=["eu"])) is expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["*"], Reach.FILTERED_BY_TYPE),
        (["order.*"], Reach.CHANGED_LATER),
        (["order.paid"], Reach.CHANGED_LATER),
    ],
)
def test_an_event_of_ours_must_be_asked_for_by_name_or_prefix(
    filters: list[str], expected: Reach
) -> None:
    event = replace(EVENT, operational=True)
    assert reach(event, replace(ENDPOINT, event_types=filters)) is expected
