"""What we do about what a receiver did.

| outcome                              | delivery                 | endpoint                                  |
| ------------------------------------ | ------------------------ | ----------------------------------------- |
| 2xx                                  | succeeds                 | success                                   |
| 410                                  | dead (`gone`)            | disabled (`gone`)                         |
| 429                                  | retried                  | rejection; held back                      |
| 503                                  | retried                  | failure; held back                        |
| 408, 425, other 5xx, 600 and above   | retried                  | failure                                   |
| 3xx, other 4xx                       | retried                  | rejection                                 |
| no answer                            | retried                  | failure                                   |
| stale connection, fault of our own   | retried                  | says nothing                              |
| target refused, request unsendable   | dead at once             | says nothing                              |
| any retry when attempts have run out | dead (`attempts_exhausted`) | as above                               |
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from shared.domain.circuit import Evidence
from shared.domain.outcome import Answered, ErrorKind, Outcome, Unanswered
from shared.domain.retry import MAX_DELAY_SECONDS, Random, Schedule, retry_after_seconds

HOLD_SECONDS = 5.0
"""How long an endpoint that says 429 or 503 without a valid Retry-After is left alone."""


class DeadReason(StrEnum):
    """Why a delivery is dead, as stored in `deliveries.dead_reason`."""

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    GONE = "gone"
    TARGET_REFUSED = "target_refused"
    UNSENDABLE = "unsendable"
    WORKER_LOST = "worker_lost"
    """The last allowed attempt was taken by a worker that never reported."""
    PARKED_TOO_LONG = "parked_too_long"
    """Its endpoint stayed disabled for longer than deliveries are kept waiting."""


@dataclass(frozen=True, slots=True)
class Succeed:
    """The receiver has it."""


@dataclass(frozen=True, slots=True)
class RetryIn:
    """Try again this many seconds after the database's now."""

    delay_seconds: float


@dataclass(frozen=True, slots=True)
class Die:
    """Give up; an operator may replay it."""

    reason: DeadReason


Decision = Succeed | RetryIn | Die


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on a delivery, and what its attempt means for the endpoint.

    `hold_seconds` > 0 keeps every delivery of the endpoint back that long; `gone` disables the endpoint.
    """

    decision: Decision
    evidence: Evidence
    hold_seconds: float = 0.0
    gone: bool = False


def judge(
    outcome: Outcome, attempt: int, schedule: Schedule, now: datetime, random: Random
) -> Verdict:
    """Judge one attempt by the table above.

    Args:
        outcome: what the receiver did.
        attempt: the number of this attempt since the delivery was created or last replayed; 1 is the first.
        schedule: the retry schedule in force.
        now: an aware datetime, to judge a Retry-After date.
        random: a source of numbers in [0, 1) for the jitter.
    """
    match outcome:
        case Answered(status=status) if 200 <= status < 300:
            return Verdict(Succeed(), Evidence.SUCCESS)
        case Answered(status=410):
            return Verdict(Die(DeadReason.GONE), Evidence.REJECTION, gone=True)
        case Answered():
            wait = retry_after_seconds(outcome.retry_after, now)
            hold = 0.0
            if outcome.status in (429, 503):
                hold = HOLD_SECONDS if wait is None else wait
            return Verdict(
                _retry(attempt, schedule, random, wait or 0.0),
                _answered_evidence(outcome.status),
                hold,
            )
        case Unanswered(kind=ErrorKind.TARGET_REFUSED):
            return Verdict(Die(DeadReason.TARGET_REFUSED), Evidence.NONE)
        case Unanswered(kind=ErrorKind.UNSENDABLE):
            return Verdict(Die(DeadReason.UNSENDABLE), Evidence.NONE)
        case Unanswered(
            kind=ErrorKind.STALE_CONNECTION | ErrorKind.KEY_MISSING | ErrorKind.INTERNAL
        ):
            return Verdict(_retry(attempt, schedule, random, 0.0), Evidence.NONE)
        case Unanswered():
            return Verdict(_retry(attempt, schedule, random, 0.0), Evidence.FAILURE)
        case _:
            assert_never(outcome)


def _answered_evidence(status: int) -> Evidence:
    if status in (408, 425) or not 300 <= status < 500:
        return Evidence.FAILURE
    return Evidence.REJECTION


def _retry(attempt: int, schedule: Schedule, random: Random, asked_seconds: float) -> RetryIn | Die:
    """The receiver may ask for more patience than the schedule has, never for less."""
    if attempt >= schedule.max_attempts:
        return Die(DeadReason.ATTEMPTS_EXHAUSTED)
    delay = max(schedule.delay_seconds(attempt, random), asked_seconds)
    return RetryIn(min(delay, MAX_DELAY_SECONDS))
