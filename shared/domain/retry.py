"""When to try again: base delays, jitter, and what a receiver's Retry-After may ask for."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_DELAY_SECONDS = 24 * 3600.0
"""Nothing waits longer for its next attempt, whatever a schedule or a receiver says."""
MIN_DELAY_SECONDS = 1.0
"""Nothing is retried hot."""

Random = Callable[[], float]
"""A source of numbers in [0, 1), such as `random.random`."""

_SECONDS = re.compile(r"[0-9]{1,15}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The base delays, in seconds, before the second, third, … attempt; one attempt more than delays."""

    delays_seconds: tuple[float, ...]

    @property
    def max_attempts(self) -> int:
        """How often a delivery is tried before it is dead."""
        return len(self.delays_seconds) + 1

    def delay_seconds(self, attempt: int, random: Random) -> float:
        """The wait after the failed attempt number `attempt` (1 is the first).

        Between half and one and a half times the base delay, so that rows that failed in one second do not come
        back in one second; never under MIN_DELAY_SECONDS or over MAX_DELAY_SECONDS, for any `attempt`.
        """
        if not self.delays_seconds:
            return MIN_DELAY_SECONDS
        base = self.delays_seconds[min(max(attempt, 1), len(self.delays_seconds)) - 1]
        return min(max(base * (0.5 + random()), MIN_DELAY_SECONDS), MAX_DELAY_SECONDS)


DEFAULT_SCHEDULE = Schedule((10, 30, 90, 270, 810, 2430, 7290, 21600, *([43200] * 7)))
"""16 attempts over about four days: ten seconds first, twelve hours from the ninth retry on."""


def retry_after_seconds(values: Sequence[str], now: datetime) -> float | None:
    """The wait that Retry-After header lines ask for, or None when none of them is valid.

    Both forms of RFC 9110 §10.2.3 count: whole ASCII seconds, or an HTTP date (judged against `now`, an aware
    datetime). Of several valid lines the longest wait wins. The result lies in [0, MAX_DELAY_SECONDS].
    """
    waits = [
        wait for value in values if (wait := _wait_seconds(value.strip(" \t"), now)) is not None
    ]
    return min(max(waits), MAX_DELAY_SECONDS) if waits else None


def _wait_seconds(value: str, now: datetime) -> float | None:
    if _SECONDS.fullmatch(value):
        return float(value)
    if not value.isascii() or "," not in value:
        return None
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if at.tzinfo is None:  # RFC 5322's -0000: UTC, of unknown local origin
        at = at.replace(tzinfo=UTC)
    return max((at - now).total_seconds(), 0.0)
