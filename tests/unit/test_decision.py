from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_never

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.circuit import Evidence
from shared.domain.decision import HOLD_SECONDS, DeadReason, Die, RetryIn, Succeed, Verdict, judge
from shared.domain.outcome import Answered, ErrorKind, Outcome, Unanswered
from shared.domain.retry import Schedule

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SCHEDULE = Schedule((10, 100))
LAST_ATTEMPT = 3


def judged(outcome: Outcome, attempt: int = 1, schedule: Schedule = SCHEDULE) -> Verdict:
    """The verdict without jitter: the delay is the schedule's base delay."""
    return judge(outcome, attempt, schedule, NOW, lambda: 0.5)


@dataclass(frozen=True, slots=True)
class Row:
    """What follows from an outcome on the first attempt: for the delivery, and for its endpoint."""

    delivery: str
    evidence: Evidence
    endpoint: str = ""


SUCCEEDS = Row("succeeds", Evidence.SUCCESS)
RETRIED = Row("retried", Evidence.FAILURE)
REJECTED = Row("retried", Evidence.REJECTION)
RETRIED_FOR_US = Row("retried", Evidence.NONE)

TABLE: dict[int | ErrorKind, Row] = {
    100: RETRIED,
    103: RETRIED,
    199: RETRIED,
    200: SUCCEEDS,
    201: SUCCEEDS,
    202: SUCCEEDS,
    204: SUCCEEDS,
    299: SUCCEEDS,
    300: REJECTED,
    301: REJECTED,
    302: REJECTED,
    304: REJECTED,
    307: REJECTED,
    308: REJECTED,
    399: REJECTED,
    400: REJECTED,
    401: REJECTED,
    403: REJECTED,
    404: REJECTED,
    407: REJECTED,
    408: RETRIED,
    409: REJECTED,
    410: Row("dead: gone", Evidence.REJECTION, "disabled"),
    411: REJECTED,
    413: REJECTED,
    422: REJECTED,
    424: REJECTED,
    425: RETRIED,
    426: REJECTED,
    428: REJECTED,
    429: Row("retried", Evidence.REJECTION, "held back"),
    430: REJECTED,
    499: REJECTED,
    500: RETRIED,
    501: RETRIED,
    502: RETRIED,
    503: Row("retried", Evidence.FAILURE, "held back"),
    504: RETRIED,
    599: RETRIED,
    600: RETRIED,
    999: RETRIED,
    ErrorKind.DNS: RETRIED,
    ErrorKind.CONNECT: RETRIED,
    ErrorKind.TLS: RETRIED,
    ErrorKind.TIMEOUT: RETRIED,
    ErrorKind.RESET: RETRIED,
    ErrorKind.PROTOCOL: RETRIED,
    ErrorKind.STATUS: RETRIED,
    ErrorKind.LOST: RETRIED,
    ErrorKind.STALE_CONNECTION: RETRIED_FOR_US,
    ErrorKind.KEY_MISSING: RETRIED_FOR_US,
    ErrorKind.INTERNAL: RETRIED_FOR_US,
    ErrorKind.TARGET_REFUSED: Row("dead: target_refused", Evidence.NONE),
    ErrorKind.UNSENDABLE: Row("dead: unsendable", Evidence.NONE),
}


def _outcome(happened: int | ErrorKind) -> Outcome:
    return Unanswered(happened, "") if isinstance(happened, ErrorKind) else Answered(happened)


def _row(verdict: Verdict) -> Row:
    match verdict.decision:
        case Succeed():
            delivery = "succeeds"
        case RetryIn():
            delivery = "retried"
        case Die(reason=reason):
            delivery = f"dead: {reason.value}"
        case _:
            assert_never(verdict.decision)
    held = "held back" if verdict.hold_seconds else ""
    return Row(delivery, verdict.evidence, "disabled" if verdict.gone else held)


@pytest.mark.parametrize(("happened", "follows"), TABLE.items(), ids=str)
def test_what_follows_from_each_outcome(happened: int | ErrorKind, follows: Row) -> None:
    """WH-087."""
    assert _row(judged(_outcome(happened))) == follows


def test_the_table_names_every_kind_of_error() -> None:
    assert {kind for kind in TABLE if isinstance(kind, ErrorKind)} == set(ErrorKind)


@pytest.mark.parametrize(
    "happened", [happened for happened, row in TABLE.items() if row.delivery == "retried"], ids=str
)
def test_whatever_is_retried_is_dead_after_the_last_attempt_and_tells_the_same_of_its_endpoint(
    happened: int | ErrorKind,
) -> None:
    outcome = _outcome(happened)
    before, last = judged(outcome, LAST_ATTEMPT - 1), judged(outcome, LAST_ATTEMPT)
    assert isinstance(before.decision, RetryIn)
    assert last.decision == Die(DeadReason.ATTEMPTS_EXHAUSTED)
    assert (last.evidence, last.hold_seconds) == (before.evidence, before.hold_seconds)


@pytest.mark.parametrize("attempt", [LAST_ATTEMPT, LAST_ATTEMPT + 1, 10_000])
def test_an_attempt_too_many_can_still_succeed_and_is_not_retried(attempt: int) -> None:
    assert judged(Answered(200), attempt).decision == Succeed()
    assert judged(Answered(500), attempt).decision == Die(DeadReason.ATTEMPTS_EXHAUSTED)


@given(st.integers(100, 999))
def test_nothing_but_2xx_is_success(status: int) -> None:
    """WH-087."""
    verdict = judged(Answered(status))
    assert (verdict.decision == Succeed()) == (200 <= status <= 299)
    assert (verdict.evidence is Evidence.SUCCESS) == (200 <= status <= 299)


@pytest.mark.parametrize("status", [200, 410, 500])
def test_a_body_that_was_cut_off_does_not_change_what_the_status_line_says(status: int) -> None:
    cut_off = Answered(status, b"par", truncated=True)
    assert judged(cut_off) == judged(Answered(status, b"partial"))


@pytest.mark.parametrize(("attempt", "delay_seconds"), [(1, 10), (2, 100)])
def test_a_retry_waits_as_the_schedule_says(attempt: int, delay_seconds: float) -> None:
    assert judged(Answered(500), attempt).decision == RetryIn(delay_seconds)
    assert judged(Unanswered(ErrorKind.DNS, ""), attempt).decision == RetryIn(delay_seconds)
    assert judged(Unanswered(ErrorKind.KEY_MISSING, ""), attempt).decision == RetryIn(delay_seconds)


def test_the_random_source_reaches_the_delay() -> None:
    assert judge(Answered(500), 1, SCHEDULE, NOW, lambda: 0.0).decision == RetryIn(5)
    assert judge(Unanswered(ErrorKind.DNS, ""), 1, SCHEDULE, NOW, lambda: 0.0).decision == RetryIn(
        5
    )


@pytest.mark.parametrize("status", [302, 404, 429, 500, 503])
@pytest.mark.parametrize(
    ("lines", "delay_seconds"),
    [
        ((), 10),
        (("9",), 10),
        (("11",), 11),
        (("11", "12"), 12),
        (("Mon, 01 Jun 2026 12:02:00 GMT",), 120),
        (("Mon, 01 Jun 2026 11:00:00 GMT",), 10),
        (("-5",), 10),
        (("99999999999999",), 86400),
    ],
)
def test_retry_after_may_ask_for_more_patience_and_never_for_less(
    status: int, lines: tuple[str, ...], delay_seconds: float
) -> None:
    """WH-085."""
    verdict = judged(Answered(status, retry_after=lines))
    assert verdict.decision == RetryIn(delay_seconds)


def test_no_schedule_and_no_receiver_make_a_delivery_wait_longer_than_a_day() -> None:
    forever = Schedule((1e9, 1e9))
    assert judged(Answered(500), schedule=forever).decision == RetryIn(86400)
    patient = Answered(500, retry_after=("90000",))
    assert judged(patient, schedule=forever).decision == RetryIn(86400)


@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_endpoint_is_held_back_for_as_long_as_it_asks(status: int) -> None:
    assert judged(Answered(status, retry_after=("120",))).hold_seconds == 120
    assert judged(Answered(status, retry_after=("0",))).hold_seconds == 0
    assert judged(Answered(status)).hold_seconds == HOLD_SECONDS == 5
    assert judged(Answered(status, retry_after=("soon",))).hold_seconds == HOLD_SECONDS


@pytest.mark.parametrize("status", [301, 404, 408, 500, 502])
def test_retry_after_holds_nothing_but_its_own_delivery_back_with_other_statuses(
    status: int,
) -> None:
    assert judged(Answered(status, retry_after=("120",))).hold_seconds == 0


@pytest.mark.parametrize("attempt", [1, LAST_ATTEMPT])
def test_a_receiver_that_is_gone_ends_the_delivery_and_its_endpoint(attempt: int) -> None:
    """WH-086."""
    verdict = judged(Answered(410, retry_after=("120",)), attempt)
    assert verdict == Verdict(Die(DeadReason.GONE), Evidence.REJECTION, gone=True)
