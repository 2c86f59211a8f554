"""The circuit of an endpoint: what one attempt says about it, and how long it stays open.

The transitions themselves are made by `settle` and `claim` in SQL, on the locked row, because many stateless
workers report at once and a counter that is read, changed and written back would lose some of them:

    closed     → open       after `failures_to_open` consecutive failures
    open       → half_open  when its cool-down has passed and a claim takes the one probe
    half_open  → closed     when the probe shows life
    half_open  → open       when the probe fails: the next cool-down, which is longer
    half_open  → half_open  when the probe never reported: its lease lapsed and a new one goes out
"""

from dataclasses import dataclass
from enum import StrEnum


class Circuit(StrEnum):
    """States of a circuit, as stored in `circuits.state`."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Evidence(StrEnum):
    """What one attempt says about its endpoint."""

    SUCCESS = "success"
    REJECTION = "rejection"
    """It answered, but not with 2xx: the host is alive. Closes a half-open circuit, opens none."""
    FAILURE = "failure"
    """It did not answer, or said that it cannot: 408, 425, 5xx, or an invalid status."""
    NONE = "none"
    """Nothing: the attempt ended for a reason of our own."""


@dataclass(frozen=True, slots=True)
class CircuitPolicy:
    """When a circuit opens, and its successive cool-downs; the last one repeats."""

    failures_to_open: int = 10
    cooldowns_seconds: tuple[float, ...] = (30, 60, 120, 300, 600, 1800, 3600)
