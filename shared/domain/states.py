"""The life of a delivery: every state, every verb, and the only transitions that exist."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Status(StrEnum):
    """States of a delivery, as stored in `deliveries.status`."""

    PENDING = "pending"
    """Waits for its first attempt (of its life, or since it was replayed)."""
    IN_PROGRESS = "in_progress"
    """Claimed: a lease says until when, a token says by which claim."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Waits for its retry."""
    DEAD = "dead"
    """Out of attempts, or can never be sent. The dead deliveries are the dead-letter queue."""
    CANCELLED = "cancelled"
    """Called off by an operator, or its endpoint was deleted."""


class Verb(StrEnum):
    """What moves a delivery from one state to another."""

    CLAIM = "claim"
    """A drain takes it under a lease; also when an earlier lease has lapsed."""
    SUCCEED = "succeed"
    RETRY = "retry"
    BURY = "bury"
    """Give up: by the settling worker, or by maintenance for a row parked too long."""
    RELEASE = "release"
    """Give back a row that was claimed but not started; its attempt is not counted."""
    CANCEL = "cancel"
    REPLAY = "replay"
    """An operator asks for it again, with a fresh retry schedule."""


TRANSITIONS: Mapping[tuple[Status, Verb], frozenset[Status]] = MappingProxyType(
    {
        (Status.PENDING, Verb.CLAIM): frozenset({Status.IN_PROGRESS}),
        (Status.PENDING, Verb.BURY): frozenset({Status.DEAD}),
        (Status.PENDING, Verb.CANCEL): frozenset({Status.CANCELLED}),
        (Status.IN_PROGRESS, Verb.CLAIM): frozenset({Status.IN_PROGRESS}),
        (Status.IN_PROGRESS, Verb.SUCCEED): frozenset({Status.SUCCEEDED}),
        (Status.IN_PROGRESS, Verb.RETRY): frozenset({Status.FAILED}),
        (Status.IN_PROGRESS, Verb.BURY): frozenset({Status.DEAD}),
        (Status.IN_PROGRESS, Verb.RELEASE): frozenset({Status.PENDING, Status.FAILED}),
        (Status.FAILED, Verb.CLAIM): frozenset({Status.IN_PROGRESS}),
        (Status.FAILED, Verb.BURY): frozenset({Status.DEAD}),
        (Status.FAILED, Verb.CANCEL): frozenset({Status.CANCELLED}),
        (Status.FAILED, Verb.REPLAY): frozenset({Status.PENDING}),
        (Status.SUCCEEDED, Verb.REPLAY): frozenset({Status.PENDING}),
        (Status.DEAD, Verb.REPLAY): frozenset({Status.PENDING}),
        (Status.CANCELLED, Verb.REPLAY): frozenset({Status.PENDING}),
    }
)
"""State and verb → the states it may lead to. What is not in the table cannot happen."""

UNFINISHED = frozenset({Status.PENDING, Status.IN_PROGRESS, Status.FAILED})
"""The states of rows that are in the queue: exactly those have a `claimable_at`."""


def sources(verb: Verb) -> frozenset[Status]:
    """The states from which `verb` is allowed."""
    return frozenset(state for state, allowed in TRANSITIONS if allowed is verb)
