import random
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.retry import (
    DEFAULT_SCHEDULE,
    MAX_DELAY_SECONDS,
    MIN_DELAY_SECONDS,
    Schedule,
    retry_after_seconds,
)

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAY_SECONDS = 24 * 3600

schedules = st.lists(st.floats(0, 1e9, allow_nan=False), max_size=30).map(
    lambda delays: Schedule(tuple(delays))
)
randoms = st.floats(0, 1, exclude_max=True)


@given(schedules | st.just(DEFAULT_SCHEDULE), st.integers(0, 10_000), randoms)
def test_a_delay_is_never_hot_and_never_longer_than_a_day(
    schedule: Schedule, attempt: int, number: float
) -> None:
    """WH-097."""
    assert 1 <= schedule.delay_seconds(attempt, lambda: number) <= DAY_SECONDS


@pytest.mark.parametrize(
    ("attempt", "base_seconds"),
    [
        (0, 10),
        (1, 10),
        (2, 30),
        (3, 90),
        (4, 270),
        (5, 810),
        (6, 2430),
        (7, 7290),
        (8, 21600),
        (9, 43200),
        (15, 43200),
        (31, 43200),
        (63, 43200),
        (70, 43200),
        (1024, 43200),
        (10_000, 43200),
    ],
)
def test_the_default_delays_grow_from_seconds_to_hours_and_stay_there(
    attempt: int, base_seconds: float
) -> None:
    """WH-097."""
    assert DEFAULT_SCHEDULE.delay_seconds(attempt, lambda: 0.5) == base_seconds


@given(st.integers(1, 15), randoms)
def test_jitter_spreads_a_delay_evenly_from_half_to_one_and_a_half(
    attempt: int, number: float
) -> None:
    base = DEFAULT_SCHEDULE.delays_seconds[attempt - 1]
    delay = DEFAULT_SCHEDULE.delay_seconds(attempt, lambda: number)
    assert delay == pytest.approx(base / 2 + base * number)


def test_jitter_does_not_leave_the_bounds() -> None:
    assert MIN_DELAY_SECONDS == 1
    assert MAX_DELAY_SECONDS == DAY_SECONDS
    assert Schedule((1,)).delay_seconds(1, lambda: 0.0) == MIN_DELAY_SECONDS
    assert Schedule((DAY_SECONDS,)).delay_seconds(1, lambda: 0.75) == MAX_DELAY_SECONDS


def test_the_default_schedule_is_sixteen_attempts_over_three_to_five_days() -> None:
    assert DEFAULT_SCHEDULE.max_attempts == 16
    assert 3 * DAY_SECONDS < sum(DEFAULT_SCHEDULE.delays_seconds) < 5 * DAY_SECONDS


@given(schedules)
def test_a_schedule_has_one_attempt_more_than_delays(schedule: Schedule) -> None:
    assert schedule.max_attempts == len(schedule.delays_seconds) + 1


def test_a_schedule_without_delays_is_a_single_attempt() -> None:
    assert Schedule(()).max_attempts == 1
    assert Schedule(()).delay_seconds(1, lambda: 0.5) == MIN_DELAY_SECONDS


@pytest.mark.parametrize("seed", range(5))
def test_deliveries_that_failed_in_one_second_do_not_come_back_in_one_second(seed: int) -> None:
    """WH-097."""
    source = random.Random(seed).random
    due_seconds = Counter(
        int(DEFAULT_SCHEDULE.delay_seconds(1, source) + DEFAULT_SCHEDULE.delay_seconds(2, source))
        for _ in range(2000)
    )
    assert max(due_seconds.values()) <= 0.05 * 2000


@pytest.mark.parametrize(
    ("line", "wait_seconds"),
    [
        ("120", 120),
        ("0", 0),
        (" 120\t", 120),
        ("000000000000120", 120),
        ("Mon, 01 Jun 2026 12:02:00 GMT", 120),
        ("Monday, 01-Jun-26 12:02:00 GMT", 120),
        ("Mon, 01 Jun 2026 14:02:00 +0200", 120),
        ("Mon, 01 Jun 2026 12:02:00 -0000", 120),
        ("Mon, 01 Jun 2026 11:58:00 GMT", 0),
        ("86399", 86399),
        ("86401", DAY_SECONDS),
        ("99999999999999", DAY_SECONDS),
        ("9" * 15, DAY_SECONDS),
        ("Thu, 01 Jan 2099 00:00:00 GMT", DAY_SECONDS),
        ("9" * 16, None),
        ("9" * 5000, None),
        ("-5", None),
        ("+5", None),
        ("1.5", None),
        ("1,5", None),
        ("1e9", None),
        ("1_0", None),
        ("120junk", None),
        ("120, 240", None),
        ("", None),
        (" ", None),
        ("5\n", None),
        ("\u0661\u0662", None),
        ("\u00b2", None),
        ("soon", None),
        ("Mon, 31 Feb 2026 12:02:00 GMT", None),
        ("Mon, 01 Jun 2026 12:02:00 +9999999999", None),
        ("Mon, 01 Jun 99999999999999999999 12:02:00 GMT", None),
        ("\u039con, 01 Jun 2026 12:02:00 GMT", None),
    ],
)
def test_a_retry_after_line_is_a_bounded_wait_or_nothing(
    line: str, wait_seconds: float | None
) -> None:
    """WH-085."""
    assert retry_after_seconds([line], NOW) == wait_seconds


def test_the_longest_valid_wait_of_several_lines_wins() -> None:
    """WH-085."""
    assert retry_after_seconds(["30", "120", "60"], NOW) == 120
    assert retry_after_seconds(["nonsense", "30"], NOW) == 30
    assert retry_after_seconds(["-1", "nonsense"], NOW) is None
    assert retry_after_seconds([], NOW) is None


@given(st.integers(-(10**7), 10**7), st.sampled_from([UTC, timezone(timedelta(hours=-9.5))]))
def test_an_http_date_is_judged_against_the_given_now(seconds: int, zone: timezone) -> None:
    line = format_datetime((NOW + timedelta(seconds=seconds)).astimezone(zone))
    assert retry_after_seconds([line], NOW) == min(max(seconds, 0), DAY_SECONDS)


date_like = st.lists(
    st.sampled_from(
        [
            "Mon",
            ", ",
            " ",
            "01",
            "Jun",
            "2026",
            "9999999999999999999999999",
            "12:02:00",
            "::",
            "GMT",
            "-0000",
            "+",
            "-",
            "(",
            ")",
            "\\",
            '"',
            ".",
            "\x00",
            "1",
            "am",
        ]
    ),
    max_size=10,
).map("".join)


@given(st.lists(st.text() | date_like, max_size=3))
def test_no_retry_after_line_can_do_harm(lines: list[str]) -> None:
    """WH-085."""
    wait = retry_after_seconds(lines, NOW)
    assert wait is None or 0 <= wait <= DAY_SECONDS
