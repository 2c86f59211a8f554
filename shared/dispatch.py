"""The drain: claim what is due, send it, settle it, until the queue is empty or the time is used.

One loop owns the database and alternates between settling what has finished and claiming for the slots that are
free. Requests run beside it, each in a task of its own, so a slow receiver delays nobody's result. A claim never
takes more than can start at once; what cannot be finished in time is released.
"""

import asyncio
import contextlib
import logging
import random
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar, assert_never
from uuid import UUID

from shared.config import CLAIM_SECONDS, Settings
from shared.courier import Courier, Transport, describe, response_text
from shared.domain.decision import DeadReason, Die, RetryIn, Succeed, judge
from shared.domain.outcome import Answered, ErrorKind, Outcome, Unanswered
from shared.domain.retry import Random, Schedule
from shared.errors import DatabaseUnavailable, StatementRefused
from shared.runtime import Runtime
from shared.store import queue
from shared.store.connection import Connection, Database
from shared.store.queue import Claimed, ClaimRequest, Harvest, Report, Settlement

_T = TypeVar("_T")
_P = ParamSpec("_P")
_log = logging.getLogger(__name__)
_SETTLE_TRIES = 3
_MIN_LANES = 64
"""A claim looks at two lanes per free slot, and never at fewer than this."""
_REFILL_SHARE = 4
"""While more is due, a claim is worth its round trip when a quarter of the slots is free."""
_CLAIM_GAP_SECONDS = 0.02
"""Otherwise a request that finishes (and may have made room at its endpoint) brings the next claim this close."""


@dataclass(slots=True)
class Summary:
    """What one drain did. `stopped` says why it ended."""

    claimed: int = 0
    succeeded: int = 0
    retried: int = 0
    dead: int = 0
    released: int = 0
    late: int = 0
    """Results that came after their lease had lapsed and decided nothing."""
    unsettled: int = 0
    """Results that could not be written; their rows come back when the lease lapses."""
    claims: int = 0
    claim_ms_max: float = 0.0
    settles: int = 0
    settle_ms_max: float = 0.0
    circuits_opened: int = 0
    circuits_closed: int = 0
    endpoints_disabled: int = 0
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Attempted:
    """One line of the attempt log; holds nothing secret and no payload."""

    delivery_id: UUID
    event_id: UUID
    endpoint_id: UUID
    tenant_id: UUID
    attempt: int
    verb: str
    status_code: int | None
    error_kind: str | None
    duration_ms: int


AttemptLog = Callable[[Sequence[Attempted]], None]


@dataclass(frozen=True, slots=True)
class Tools:
    """What a drain works with.

    `random` is a source of numbers in [0, 1); `wall_clock` gives aware datetimes, for signatures and Retry-After
    dates only: due times and leases are judged by the database's clock.
    """

    database: Database
    courier: Courier
    settings: Settings
    random: Random
    wall_clock: Callable[[], datetime]
    log: AttemptLog


def make_tools(
    runtime: Runtime, transport: Transport, log: AttemptLog, wall_clock: Callable[[], datetime]
) -> Tools:
    """What a drain of this process works with: the runtime's parts, and the system's randomness.

    Raises:
        ConfigurationError: there is no database URL or no sealing key.
    """
    return Tools(
        database=runtime.database,
        courier=Courier(transport, runtime.sealer, wall_clock),
        settings=runtime.settings,
        random=random.random,
        wall_clock=wall_clock,
        log=log,
    )


async def drain(tools: Tools, budget_seconds: float) -> Summary:
    """Drain the queue for at most `budget_seconds`.

    Returns when nothing has been due for the linger time, when the bound on deliveries is reached, or when the time
    is used; with every claimed delivery settled or released, unless the database failed.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="drain-database") as executor:
        return await _Drain(
            tools, executor, asyncio.get_running_loop().time() + budget_seconds
        ).run()


class _Drain:
    def __init__(self, tools: Tools, executor: ThreadPoolExecutor, stop_at: float) -> None:
        self._tools = tools
        self._settings = tools.settings
        self._executor = executor
        self._stop_at = stop_at
        self._loop = asyncio.get_running_loop()
        self._summary = Summary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_flight: Counter[UUID] = Counter()
        self._suspects_in_flight = 0
        self._suspect_window = 1
        self._finished: list[tuple[Report, Attempted | None]] = []
        self._progress = asyncio.Event()
        self._position = queue.START
        self._claimed_at = 0.0
        self._claim_at = 0.0
        self._more_is_due = True
        self._idle_since: float | None = None

    async def run(self) -> Summary:
        """Run to the end."""
        try:
            while not self._is_over():
                if self._finished:
                    await self._settle()
                if self._wants_claim():
                    await self._claim()
                await self._pause()
        except DatabaseUnavailable as error:
            self._summary.stopped = str(error)
        except Exception:
            # A fault of ours in claiming must not cost what was sent its result.
            await self._settle_all()
            raise
        await self._settle_all()
        return self._summary

    async def _settle_all(self) -> None:
        while self._tasks or self._finished:
            if not self._finished:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            await self._settle()

    def _is_over(self) -> bool:
        """Whether to stop claiming; what is in flight is waited for afterwards."""
        now = self._loop.time()
        if self._sending_seconds(now) < self._settings.timeout_seconds:
            self._summary.stopped = "time"
        elif self._summary.claimed >= self._settings.drain_max_deliveries:
            self._summary.stopped = "bound"
        elif (
            self._idle_since is not None
            and not self._tasks
            and not self._finished
            and now - self._idle_since >= self._settings.drain_linger_seconds
        ):
            self._summary.stopped = "idle"
        return bool(self._summary.stopped)

    def _sending_seconds(self, now: float) -> float:
        """How long an attempt that starts now may take."""
        return self._stop_at - now - self._settings.settle_margin_seconds - CLAIM_SECONDS

    def _free_slots(self) -> int:
        return min(
            self._settings.drain_concurrency - len(self._tasks),
            self._settings.drain_max_deliveries - self._summary.claimed,
        )

    def _wants_claim(self) -> bool:
        free = self._free_slots()
        if free <= 0:
            return False
        plenty = free >= self._settings.drain_concurrency / _REFILL_SHARE
        return (self._more_is_due and plenty) or self._loop.time() >= self._claim_at

    async def _pause(self) -> None:
        """Until a request finishes or a claim is due."""
        if self._finished or self._wants_claim():
            await asyncio.sleep(0)
            return
        wait_seconds = self._settings.drain_poll_seconds
        if self._free_slots() > 0:
            wait_seconds = min(wait_seconds, max(self._claim_at - self._loop.time(), 0.001))
        self._progress.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await self._progress.wait()

    async def _claim(self) -> None:
        now = self._loop.time()
        limit = self._free_slots()
        most = self._settings.drain_endpoint_concurrency
        busy = {endpoint_id: most - count for endpoint_id, count in self._in_flight.items()}
        request = ClaimRequest(
            lease_token=uuid.uuid4(),
            limit=limit,
            lease_seconds=self._settings.lease_seconds,
            after=self._position,
            visit_limit=max(2 * limit, _MIN_LANES),
            endpoint_limit=most,
            busy_endpoint_ids=list(busy),
            busy_endpoint_room=list(busy.values()),
            timeout_seconds=self._settings.timeout_seconds,
            remaining_seconds=self._sending_seconds(now),
        )
        harvest = await self._on_database(queue.claim, request)
        done_at = self._loop.time()
        self._summary.claims += 1
        self._summary.claim_ms_max = max(self._summary.claim_ms_max, (done_at - now) * 1000)
        self._summary.claimed += len(harvest.claimed)
        self._move_on(harvest, limit, done_at)
        await self._start_all(
            harvest.claimed, request.lease_token, now + self._settings.lease_seconds
        )

    async def _start_all(
        self, harvested: Sequence[Claimed], lease_token: UUID, lease_ends_at: float
    ) -> None:
        """Start what was claimed: of the suspects first one, then twice as many each time those have been reported.

        A row that kills its worker takes down whatever is in flight beside it, every time. So the suspects that have
        to wait are given back, their attempt not counted, before the others start.
        """
        suspects = [claimed for claimed in harvested if claimed.suspect]
        room = max(self._suspect_window - self._suspects_in_flight, 0)
        for claimed in harvested:
            if not claimed.suspect:
                self._start(claimed, lease_token, lease_ends_at)
        if len(suspects) > room:
            for claimed in suspects[room:]:
                self._finish(_unsent(claimed, lease_token, "release", None), None)
            await self._settle()
            # They are due at once, and not worth another claim before one in flight has been reported.
            self._more_is_due = False
            self._claim_at = self._loop.time() + self._settings.drain_poll_seconds
        for claimed in suspects[:room]:
            self._start(claimed, lease_token, lease_ends_at)

    def _move_on(self, harvest: Harvest, limit: int, now: float) -> None:
        """Where the next claim starts, and when. Only a walk over all endpoints that found nothing means idle."""
        is_full = len(harvest.claimed) >= limit
        found_nothing = (
            not harvest.claimed and harvest.swept_to is None and self._position == queue.START
        )
        if is_full:
            self._position = max(claimed.endpoint_id for claimed in harvest.claimed)
        else:
            self._position = harvest.swept_to or queue.START
        self._more_is_due = not found_nothing
        if not found_nothing:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        self._claimed_at = now
        self._claim_at = now + (
            _CLAIM_GAP_SECONDS if self._more_is_due else self._settings.drain_poll_seconds
        )

    def _start(self, claimed: Claimed, lease_token: UUID, lease_ends_at: float) -> None:
        """Begin the attempt, unless it could outlast the lease or the invocation, or was the last one too many."""
        now = self._loop.time()
        schedule = self._schedule(claimed)
        margin = self._settings.settle_margin_seconds
        timeout_seconds = min(
            claimed.timeout_seconds, self._settings.lease_seconds - margin - CLAIM_SECONDS
        )
        if claimed.attempt_count - claimed.attempt_base > schedule.max_attempts:
            # Its last allowed attempt was taken by a worker that never reported.
            self._finish(_unsent(claimed, lease_token, "bury", DeadReason.WORKER_LOST), None)
        elif now + timeout_seconds + margin > min(lease_ends_at, self._stop_at):
            self._finish(_unsent(claimed, lease_token, "release", None), None)
        else:
            self._in_flight[claimed.endpoint_id] += 1
            self._suspects_in_flight += claimed.suspect
            task = self._loop.create_task(
                self._attempt(claimed, lease_token, schedule, timeout_seconds)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _attempt(
        self, claimed: Claimed, lease_token: UUID, schedule: Schedule, timeout_seconds: float
    ) -> None:
        started_at = self._loop.time()
        try:
            outcome = await self._tools.courier.attempt(claimed, timeout_seconds)
        except Exception as error:  # noqa: BLE001
            # A fault of ours in one delivery must not cost the others theirs.
            _log.exception(
                "attempt failed inside Leasehook",
                extra={
                    "correlation_id": claimed.delivery_id,
                    "delivery_id": claimed.delivery_id,
                    "event_id": claimed.event_id,
                    "endpoint_id": claimed.endpoint_id,
                    "tenant_id": claimed.tenant_id,
                },
            )
            outcome = Unanswered(ErrorKind.INTERNAL, type(error).__name__)
        duration_ms = round((self._loop.time() - started_at) * 1000)
        self._in_flight[claimed.endpoint_id] -= 1
        if not self._in_flight[claimed.endpoint_id]:
            del self._in_flight[claimed.endpoint_id]
        if claimed.suspect:
            self._suspects_in_flight -= 1
            self._suspect_window += 1
        report = self._report(claimed, lease_token, schedule, outcome, duration_ms)
        self._finish(report, claimed)

    def _schedule(self, claimed: Claimed) -> Schedule:
        delays = claimed.retry_delays_seconds
        return self._settings.schedule if delays is None else Schedule(tuple(delays))

    def _report(
        self,
        claimed: Claimed,
        lease_token: UUID,
        schedule: Schedule,
        outcome: Outcome,
        duration_ms: int,
    ) -> Report:
        attempt = claimed.attempt_count - claimed.attempt_base
        verdict = judge(outcome, attempt, schedule, self._tools.wall_clock(), self._tools.random)
        delay_seconds: float | None = None
        dead_reason: str | None = None
        match verdict.decision:
            case Succeed():
                verb = "succeed"
            case RetryIn(delay_seconds=seconds):
                verb, delay_seconds = "retry", seconds
            case Die(reason=reason):
                verb, dead_reason = "bury", reason.value
            case _:
                assert_never(verdict.decision)
        answered = outcome if isinstance(outcome, Answered) else None
        return Report(
            delivery_id=claimed.delivery_id,
            lease_token=lease_token,
            attempt=claimed.attempt_count,
            verb=verb,
            sent=True,
            delay_seconds=delay_seconds,
            dead_reason=dead_reason,
            evidence=verdict.evidence.value,
            hold_seconds=verdict.hold_seconds,
            gone=verdict.gone,
            duration_ms=duration_ms,
            status_code=answered.status if answered else None,
            error_kind=_error_kind(outcome, verb),
            error_detail=describe(outcome),
            response=response_text(answered.body) if answered else None,
            truncated=answered.truncated if answered else False,
        )

    def _finish(self, report: Report, claimed: Claimed | None) -> None:
        attempted = None
        if claimed is not None:
            attempted = Attempted(
                claimed.delivery_id,
                claimed.event_id,
                claimed.endpoint_id,
                claimed.tenant_id,
                report.attempt,
                report.verb,
                report.status_code,
                report.error_kind,
                report.duration_ms,
            )
        self._finished.append((report, attempted))
        self._claim_at = min(self._claim_at, self._claimed_at + _CLAIM_GAP_SECONDS)
        self._progress.set()

    async def _settle(self) -> None:
        """Write what has finished so far; what finishes meanwhile goes with the next call."""
        finished, self._finished = self._finished, []
        reports = [report for report, _ in finished]
        self._tools.log([attempted for _, attempted in finished if attempted])
        await self._write(reports)
        # There may be room now at an endpoint that was at its limit, so what the last claim found is out of date.
        self._idle_since = None
        self._claim_at = min(self._claim_at, self._claimed_at + _CLAIM_GAP_SECONDS)

    async def _write(self, reports: Sequence[Report]) -> None:
        before = self._loop.time()
        try:
            settlement = await self._written(reports)
        except DatabaseUnavailable as error:
            self._summary.unsettled += len(reports)
            self._summary.stopped = str(error)
            return
        except StatementRefused:
            await self._settle_one_by_one(reports)
            return
        self._summary.settles += 1
        self._summary.settle_ms_max = max(
            self._summary.settle_ms_max, (self._loop.time() - before) * 1000
        )
        self._count(reports, settlement)

    async def _written(self, reports: Sequence[Report]) -> Settlement:
        """Settle, over a new connection if the old one has broken: repeating is harmless under the lease."""
        for remaining in reversed(range(_SETTLE_TRIES)):
            try:
                return await self._on_database(queue.settle, reports, self._settings.circuit)
            except DatabaseUnavailable:
                if not remaining:
                    raise
                await asyncio.sleep(self._settings.drain_poll_seconds)
        raise AssertionError("unreachable")

    async def _settle_one_by_one(self, reports: Sequence[Report]) -> None:
        """One report that the database refuses must not take the others with it; its row comes back by its lease."""
        for report in reports:
            try:
                self._count([report], await self._written([report]))
            except (StatementRefused, DatabaseUnavailable):
                _log.exception(
                    "a result could not be written",
                    extra={
                        "correlation_id": report.delivery_id,
                        "delivery_id": report.delivery_id,
                    },
                )
                self._summary.unsettled += 1

    def _count(self, reports: Sequence[Report], settlement: Settlement) -> None:
        late = set(settlement.late_delivery_ids)
        verbs = Counter(report.verb for report in reports if report.delivery_id not in late)
        summary = self._summary
        summary.succeeded += verbs["succeed"]
        summary.retried += verbs["retry"]
        summary.dead += verbs["bury"]
        summary.released += verbs["release"]
        summary.late += len(late)
        summary.circuits_opened += len(settlement.opened_endpoint_ids)
        summary.circuits_closed += len(settlement.closed_endpoint_ids)
        summary.endpoints_disabled += len(settlement.disabled_endpoint_ids)

    async def _on_database(
        self,
        statement: Callable[Concatenate[Connection, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Run a statement in the drain's database thread, so that requests go on meanwhile."""

        def run() -> _T:
            with self._tools.database.connection() as connection:
                return statement(connection, *args, **kwargs)

        return await self._loop.run_in_executor(self._executor, run)


def _unsent(claimed: Claimed, lease_token: UUID, verb: str, reason: DeadReason | None) -> Report:
    return Report(
        delivery_id=claimed.delivery_id,
        lease_token=lease_token,
        attempt=claimed.attempt_count,
        verb=verb,
        sent=False,
        dead_reason=reason.value if reason else None,
    )


def _error_kind(outcome: Outcome, verb: str) -> str | None:
    match outcome:
        case Answered():
            return None if verb == "succeed" else ErrorKind.STATUS.value
        case Unanswered(kind=kind):
            return kind.value
        case _:
            assert_never(outcome)
