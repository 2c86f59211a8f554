from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.time_ids import FIRST_ID, LAST_ID, first_id_at

INSTANTS = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 - the time zone is a strategy of its own
    max_value=datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=st.just(UTC),
)


@given(INSTANTS)
def test_each_microsecond_has_ids_of_its_own(at: datetime) -> None:
    assert FIRST_ID < first_id_at(at) < first_id_at(at + timedelta(microseconds=1)) < LAST_ID


@given(INSTANTS)
def test_an_id_is_a_uuid_of_version_7(at: datetime) -> None:
    first = first_id_at(at)
    assert (first.version, first.variant) == (7, "specified in RFC 4122")


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), "00000000-0000-7000-8000-000000000000"),
        (datetime(1, 1, 1, tzinfo=UTC), "00000000-0000-7000-8000-000000000000"),
        (datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC), "017f22e2-79b0-7000-8000-000000000000"),
        (
            datetime(2022, 2, 22, 19, 22, 22, 500, tzinfo=UTC),
            "017f22e2-79b0-7800-8000-000000000000",
        ),
    ],
)
def test_the_layout_is_that_of_rfc_9562(at: datetime, expected: str) -> None:
    assert first_id_at(at) == UUID(expected)


def test_the_same_instant_elsewhere_is_the_same_instant() -> None:
    at = datetime(2022, 2, 22, 14, 22, 22, tzinfo=timezone(timedelta(hours=-5)))
    assert first_id_at(at) == UUID("017f22e2-79b0-7000-8000-000000000000")
