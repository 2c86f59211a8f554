"""A discrete-event simulation of a queue, its drains and its receivers: seconds of computing for hours of traffic.

The drain's loop (when it settles, when it claims and how much, when it stops) is that of `shared.dispatch`; what an
attempt means and when it is tried again is decided by `shared.domain` itself. The circuit is a model of what `settle`
and `claim` do in SQL. Statements take what was measured and queue for the database's cores; a drain's attempts queue
for its CPU before they are sent.
"""

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import assert_never

from infra.scale.measured import MEASURED, Measured
from infra.scale.workload import DAY_SECONDS, TICK_SECONDS, Deployment, Workload
from shared.domain.circuit import Circuit, Evidence
from shared.domain.decision import Die, RetryIn, Succeed, Verdict, judge
from shared.domain.outcome import Answered, ErrorKind, Outcome, Unanswered
from shared.domain.retry import Random

Arrivals = Iterator[tuple[float, int]]
"""Instants in seconds and how many events arrive then, in order."""

_GAP_SECONDS = 0.02
_REFILL_SHARE = 4
_MIN_LANES = 64
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""Only a Retry-After date would be judged by it, and these receivers send none."""
_OK = Answered(200)
_SILENCE = Unanswered(ErrorKind.TIMEOUT, "no answer in time")


def diurnal(workload: Workload, seconds: float, random: Random) -> Arrivals:
    """Events around the peak of a day whose rate swings smoothly between its low and its peak.

    The rate is `mean * exp(k cos(2 pi t / day)) / I0(k)`, whose mean over a day is `mean` for any k; k is chosen for
    the peak.
    """
    k = _concentration(workload.peak_factor)
    peak = workload.peak_per_second / workload.fan_out
    at = -seconds / 2
    while True:
        at += _gap(peak, random)
        if at >= seconds / 2:
            return
        if random() < math.exp(k * (math.cos(2 * math.pi * at / DAY_SECONDS) - 1)):
            yield round(at + seconds / 2, 6), 1


def burst(workload: Workload, events: int, seconds: float, random: Random) -> Arrivals:
    """The same day's mean, and `events` at once after a quarter of the time."""
    rate = workload.mean_per_second / workload.fan_out
    at, burst_at = 0.0, seconds / 4
    while True:
        following = at + _gap(rate, random)
        if at < burst_at <= following:
            yield burst_at, events
        at = following
        if at >= seconds:
            return
        yield round(at, 6), 1


def backlog(events: int) -> Arrivals:
    """All are due at the start, and nothing comes after them."""
    yield 0.0, events


def _gap(rate: float, random: Random) -> float:
    return -math.log(1.0 - random()) / rate


def _concentration(peak_factor: float) -> float:
    """K with exp(k) / I0(k) = peak factor; it grows with k from 1."""
    low, high = 0.0, 500.0
    for _ in range(80):
        middle = (low + high) / 2
        if 1 / _scaled_bessel(middle) < peak_factor:
            low = middle
        else:
            high = middle
    return low


def _scaled_bessel(k: float) -> float:
    """exp(-k) I0(k), by the mean of exp(k (cos x - 1)) over a circle."""
    steps = 512
    return sum(math.exp(k * (math.cos(2 * math.pi * i / steps) - 1)) for i in range(steps)) / steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What happened by the end. Deliveries are conserved: arrived = delivered + dead + waiting.

    A wait is from when a delivery is due (new, or for its retry) until it is claimed. `due_mean` is measured by
    watching the queue's length, and not by adding waits, so that Little's law can be checked between them.
    """

    seconds: float
    arrived: int
    delivered: int
    dead: int
    waiting: int
    attempts: int
    claimed: int
    waits_seconds: float
    """Of all that became due: until the claim, or until now."""
    wait_p50_seconds: float
    wait_p99_seconds: float
    wait_max_seconds: float
    answering_wait_p50_seconds: float
    """Of deliveries to endpoints that are not down."""
    answering_wait_p99_seconds: float
    due_mean: float
    due_max: int
    in_flight_mean: float
    attempt_mean_seconds: float
    """Of the attempts that have ended."""
    slots_used: float
    """Share of the drains' slots, while they ran."""
    cpu_used: float
    """Share of the drains' CPU, while they ran."""
    database_cores_used: float
    drain_seconds: float
    drains: int
    claims: int
    settles: int
    circuits_opened: int
    last_delivered_at: float

    @property
    def per_second(self) -> float:
        """Deliveries until the last one."""
        return self.delivered / self.last_delivered_at if self.last_delivered_at else 0.0


def simulate(
    workload: Workload,
    deployment: Deployment,
    arrivals: Arrivals,
    random: Random,
    *,
    seconds: float,
    database_cores: float = 2.0,
    measured: Measured = MEASURED,
    ends_when_empty: bool = False,
) -> Result:
    """Run the drains of a deployment against these arrivals for `seconds`.

    Args:
        workload: the receivers and the fan-out; the arrivals say when.
        deployment: how many drains of which size each minute.
        arrivals: see `diurnal`, `burst` and `backlog`.
        random: a source of numbers in [0, 1), such as `random.Random(seed).random`.
        seconds: of simulated time.
        database_cores: of the speed of `deployment.core_speed`, for claiming and settling.
        measured: what an attempt and a statement take.
        ends_when_empty: stop when nothing is unfinished, instead of at the end of the time.
    """
    world = _World(workload, deployment, random, database_cores, measured)
    return world.run(arrivals, seconds, ends_when_empty)


@dataclass(slots=True)
class _Delivery:
    endpoint: "_Endpoint"
    due_at: float
    attempt: int = 0
    claimed_at: float = 0.0


@dataclass(slots=True, eq=False)
class _Endpoint:
    """A lane of the queue, and its circuit."""

    number: int
    answers: bool
    due: deque[_Delivery] = field(default_factory=deque)
    in_flight: int = 0
    state: Circuit = Circuit.CLOSED
    claimable_at: float = 0.0
    changed_at: float = -math.inf
    recovered_at: float = -math.inf
    held_until: float = -math.inf
    consecutive_failures: int = 0
    open_count: int = 0

    def room(self, now: float, lease_seconds: float) -> int:
        """How many deliveries may be claimed now; an open circuit that has cooled down gives one, as a probe."""
        if self.held_until > now:
            return 0
        match self.state:
            case Circuit.CLOSED:
                since = now - self.recovered_at
                return 1_000_000 if since > 20 else max(int(2**since) - self.in_flight, 0)
            case Circuit.OPEN | Circuit.HALF_OPEN:
                if self.claimable_at > now:
                    return 0
                self.state = Circuit.HALF_OPEN
                self.claimable_at = now + lease_seconds
                self.changed_at = now
                return 1
            case _:
                assert_never(self.state)

    def learn(self, verdict: Verdict, claimed_at: float, now: float, world: "_World") -> None:
        """Move the circuit by one attempt's evidence, unless it began before the last change."""
        if verdict.hold_seconds:
            self.held_until = max(self.held_until, now + verdict.hold_seconds)
        if claimed_at < self.changed_at:
            return
        match verdict.evidence:
            case Evidence.SUCCESS | Evidence.REJECTION:
                self.consecutive_failures = 0
                if self.state is not Circuit.CLOSED:
                    self.state, self.open_count = Circuit.CLOSED, 0
                    self.changed_at = self.recovered_at = now
            case Evidence.FAILURE:
                self.consecutive_failures += 1
                policy = world.circuit_policy
                if (
                    self.state is Circuit.HALF_OPEN
                    or self.consecutive_failures >= policy.failures_to_open
                ):
                    step = min(self.open_count, len(policy.cooldowns_seconds) - 1)
                    self.claimable_at = now + policy.cooldowns_seconds[step]
                    self.state, self.changed_at = Circuit.OPEN, now
                    self.open_count += 1
                    self.consecutive_failures = 0
                    world.circuits_opened += 1
            case Evidence.NONE:
                pass
            case _:
                assert_never(verdict.evidence)


class _World:
    def __init__(
        self,
        workload: Workload,
        deployment: Deployment,
        random: Random,
        database_cores: float,
        measured: Measured,
    ) -> None:
        receivers = workload.receivers
        self.workload = workload
        self.deployment = deployment
        self.settings = deployment.settings
        self.circuit_policy = self.settings.circuit
        self.random = random
        self.measured = measured
        self.endpoints = [
            _Endpoint(number, number >= receivers.never_answer) for number in range(receivers.count)
        ]
        self.cpu_seconds = measured.attempt_cpu_ms(receivers) / 1e3 / deployment.drain_cores
        self._quantiles = receivers.quantiles(self.settings.timeout_seconds)
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._sequence = 0
        self._cores = [0.0] * max(int(database_cores), 1)
        self._core_speed = deployment.core_speed * database_cores / len(self._cores)
        self.now = 0.0
        self.due = self.in_flight = 0
        self.due_integral = self.in_flight_integral = 0.0
        self.due_max = 0
        self.due_changed_at = self.in_flight_changed_at = 0.0
        self.waits: list[float] = []
        self.answering_waits: list[float] = []
        self.database_seconds = 0.0
        self.attempt_seconds = 0.0
        self.arrived = self.delivered = self.dead = self.attempts = self.attempts_ended = 0
        self.claims = self.settles = self.circuits_opened = 0
        self.last_delivered_at = 0.0
        self.drains: list[_Drain] = []
        self._arrivals_over = False

    def run(self, arrivals: Arrivals, seconds: float, ends_when_empty: bool) -> Result:
        self._arrive_next(arrivals)
        self._tick(0.0)
        while self._heap and self._heap[0][0] <= seconds:
            at, _, action = heapq.heappop(self._heap)
            self.now = at
            action(at)
            if ends_when_empty and self._is_empty():
                break
        else:
            self.now = seconds
        return self._result()

    def at(self, instant: float, action: Callable[[float], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (instant, self._sequence, action))

    def statement_ends_at(self, now: float, milliseconds: float) -> float:
        """A statement waits for a core of the database, and its answer for the network."""
        seconds = milliseconds / 1e3 / self._core_speed
        free_at = heapq.heappop(self._cores)
        ends_at = max(free_at, now) + seconds
        heapq.heappush(self._cores, ends_at)
        self.database_seconds += seconds
        return ends_at + self.deployment.round_trip_seconds

    def count_due(self, change: int) -> None:
        self.due_integral += self.due * (self.now - self.due_changed_at)
        self.due_changed_at = self.now
        self.due += change
        self.due_max = max(self.due_max, self.due)

    def count_in_flight(self, change: int) -> None:
        self.in_flight_integral += self.in_flight * (self.now - self.in_flight_changed_at)
        self.in_flight_changed_at = self.now
        self.in_flight += change

    def claim(self, limit: int, position: int, room_of: Callable[[int], int]) -> list[_Delivery]:
        """As the claim does: endpoint by endpoint from a moving start, each its share, the rest to whoever has more."""
        taken = _share_out(self._lanes(limit, position, room_of), limit)
        for delivery in taken:
            delivery.claimed_at = self.now
            delivery.attempt += 1
            delivery.endpoint.in_flight += 1
            self.waits.append(self.now - delivery.due_at)
            if delivery.endpoint.answers:
                self.answering_waits.append(self.now - delivery.due_at)
        if taken:
            self.count_due(-len(taken))
            self.count_in_flight(len(taken))
        return taken

    def _lanes(
        self, limit: int, position: int, room_of: Callable[[int], int]
    ) -> list[tuple[_Endpoint, int]]:
        """The endpoints that a claim finds something at, and how much it may take there."""
        if not self.due:
            return []
        count = len(self.endpoints)
        lanes = []
        for step in range(min(count, max(2 * limit, _MIN_LANES))):
            endpoint = self.endpoints[(position + step) % count]
            room = min(room_of(endpoint.number), len(endpoint.due)) if endpoint.due else 0
            if room > 0:
                room = min(room, endpoint.room(self.now, self.settings.lease_seconds))
            if room > 0:
                lanes.append((endpoint, room))
        return lanes

    def attempt(self, endpoint: _Endpoint) -> tuple[float, Outcome]:
        """How long an attempt takes, and what comes of it."""
        timeout = self.settings.timeout_seconds
        if not endpoint.answers or self.random() < self.workload.receivers.timeout_share:
            return timeout, _SILENCE
        latency = self._quantiles[int(self.random() * len(self._quantiles))]
        return latency, _OK if latency < timeout else _SILENCE

    def ended(self, delivery: _Delivery, seconds: float) -> None:
        delivery.endpoint.in_flight -= 1
        self.attempts_ended += 1
        self.attempt_seconds += seconds
        self.count_in_flight(-1)

    def settle(self, delivery: _Delivery, outcome: Outcome) -> None:
        now = self.now
        verdict = judge(outcome, delivery.attempt, self.settings.schedule, _NOW, self.random)
        delivery.endpoint.learn(verdict, delivery.claimed_at, now, self)
        match verdict.decision:
            case Succeed():
                self.delivered += 1
                self.last_delivered_at = now
            case RetryIn(delay_seconds=delay):
                self.at(round(now + delay, 6), lambda at: self._enqueue(delivery, at))
            case Die():
                self.dead += 1
            case _:
                assert_never(verdict.decision)

    def _enqueue(self, delivery: _Delivery, now: float) -> None:
        delivery.due_at = now
        delivery.endpoint.due.append(delivery)
        self.count_due(1)

    def _arrive_next(self, arrivals: Arrivals) -> None:
        following = next(arrivals, None)
        if following is None:
            self._arrivals_over = True
            return
        at, events = following

        def arrive(now: float) -> None:
            for _ in range(events):
                self._arrive(now)
            self._arrive_next(arrivals)

        self.at(at, arrive)

    def _arrive(self, now: float) -> None:
        count = len(self.endpoints)
        first = int(self.random() * count)
        hot = self.workload.receivers.hot_share
        if hot and self.random() < hot:
            first = count - 1
        for step in range(self.workload.fan_out):
            self.arrived += 1
            self._enqueue(_Delivery(self.endpoints[(first + step) % count], now), now)

    def _tick(self, now: float) -> None:
        for _ in range(self.deployment.drains_per_tick):
            drain = _Drain(self, now)
            self.drains.append(drain)
            self.at(now, drain.step)
        self.at(now + TICK_SECONDS, self._tick)

    def _is_empty(self) -> bool:
        return self._arrivals_over and self.arrived == self.delivered + self.dead

    def _result(self) -> Result:
        self.count_due(0)
        self.count_in_flight(0)
        still_due = [delivery for endpoint in self.endpoints for delivery in endpoint.due]
        waits = sorted(self.waits + [self.now - delivery.due_at for delivery in still_due])
        answering = sorted(
            self.answering_waits
            + [self.now - delivery.due_at for delivery in still_due if delivery.endpoint.answers]
        )
        drain_seconds = sum(
            (drain.ended_at or self.now) - drain.started_at for drain in self.drains
        )
        return Result(
            seconds=self.now,
            arrived=self.arrived,
            delivered=self.delivered,
            dead=self.dead,
            waiting=self.arrived - self.delivered - self.dead,
            attempts=self.attempts,
            claimed=len(self.waits),
            waits_seconds=sum(waits),
            wait_p50_seconds=_percentile(waits, 0.5),
            wait_p99_seconds=_percentile(waits, 0.99),
            wait_max_seconds=waits[-1] if waits else 0.0,
            answering_wait_p50_seconds=_percentile(answering, 0.5),
            answering_wait_p99_seconds=_percentile(answering, 0.99),
            due_mean=self.due_integral / self.now if self.now else 0.0,
            due_max=self.due_max,
            in_flight_mean=self.in_flight_integral / self.now if self.now else 0.0,
            attempt_mean_seconds=self.attempt_seconds / max(self.attempts_ended, 1),
            slots_used=self.in_flight_integral
            / max(drain_seconds * self.settings.drain_concurrency, 1e-9),
            cpu_used=self.attempts * self.cpu_seconds / max(drain_seconds, 1e-9),
            database_cores_used=self.database_seconds / self.now if self.now else 0.0,
            drain_seconds=drain_seconds,
            drains=len(self.drains),
            claims=self.claims,
            settles=self.settles,
            circuits_opened=self.circuits_opened,
            last_delivered_at=self.last_delivered_at,
        )


class _Drain:
    """One invocation: the loop of `shared.dispatch`, with events instead of awaiting."""

    def __init__(self, world: _World, started_at: float) -> None:
        self._world = world
        self._settings = world.settings
        self.started_at = started_at
        self._stops_at = started_at + world.deployment.claiming_seconds
        self.ended_at: float | None = None
        self._in_flight: Counter[int] = Counter()
        self._running = 0
        self._claimed = 0
        self._finished: list[tuple[_Delivery, Outcome]] = []
        self._busy = False
        self._settled_last = False
        self._more_is_due = True
        self._idle = False
        self._claimed_at = self._claim_at = started_at
        self._cpu_free_at = started_at
        self._position = 0
        self._wake_at = math.inf

    def step(self, now: float) -> None:
        """Settle what has finished, claim for the free slots, or wait for either: what the loop would do next."""
        if self._busy or self.ended_at is not None:
            return
        closing = self._is_over(now)
        if self._finished and (not self._settled_last or closing or not self._wants_claim(now)):
            self._settle()
        elif not closing and self._wants_claim(now):
            self._claim()
        elif closing and not self._running:
            self.ended_at = now
        elif not closing and self._free_slots() > 0:
            self._wake(max(self._claim_at, now + 0.001))

    def _is_over(self, now: float) -> bool:
        done = not self._running and not self._finished
        return (
            now >= self._stops_at
            or self._claimed >= self._settings.drain_max_deliveries
            or (self._idle and done and not self._world.deployment.polls)
        )

    def _free_slots(self) -> int:
        return min(
            self._settings.drain_concurrency - self._running,
            self._settings.drain_max_deliveries - self._claimed,
        )

    def _wants_claim(self, now: float) -> bool:
        free = self._free_slots()
        if free <= 0:
            return False
        plenty = free >= self._settings.drain_concurrency / _REFILL_SHARE
        return (self._more_is_due and plenty) or now >= self._claim_at

    def _wake(self, at: float) -> None:
        if at < self._wake_at:
            self._wake_at = at
            self._world.at(at, self._woken)

    def _woken(self, now: float) -> None:
        if now >= self._wake_at:
            self._wake_at = math.inf
        self.step(now)

    def _claim(self) -> None:
        world, limit = self._world, self._free_slots()
        most = self._settings.drain_endpoint_concurrency
        in_flight = self._in_flight
        taken = world.claim(limit, self._position, lambda number: most - in_flight[number])
        world.claims += 1
        self._claimed += len(taken)
        self._running += len(taken)
        for delivery in taken:
            in_flight[delivery.endpoint.number] += 1
        self._position = taken[-1].endpoint.number + 1 if len(taken) >= limit else 0

        def done(at: float) -> None:
            self._busy, self._settled_last = False, False
            self._more_is_due = bool(taken)
            self._idle = not taken
            self._claimed_at = at
            gap = _GAP_SECONDS if taken else self._settings.drain_poll_seconds
            self._claim_at = at + gap
            for delivery in taken:
                self._start(delivery, at)
            self.step(at)

        self._run(world.measured.claim_ms(len(taken)), done)

    def _start(self, delivery: _Delivery, now: float) -> None:
        world = self._world
        world.attempts += 1
        sent_at = self._computed_at(now, world.cpu_seconds / 2)
        seconds, outcome = world.attempt(delivery.endpoint)

        def answered(at: float) -> None:
            world.at(self._computed_at(at, world.cpu_seconds / 2), finish)

        def finish(at: float) -> None:
            world.ended(delivery, at - delivery.claimed_at)
            self._in_flight[delivery.endpoint.number] -= 1
            self._running -= 1
            self._finished.append((delivery, outcome))
            self._claim_at = min(self._claim_at, self._claimed_at + _GAP_SECONDS)
            # The loop has its turn after all answers that are there already.
            if not self._busy:
                self._wake(max(at, self._cpu_free_at))

        world.at(sent_at + seconds, answered)

    def _computed_at(self, now: float, seconds: float) -> float:
        """When this much of the drain's one thread of Python has been had, after what came before."""
        self._cpu_free_at = max(now, self._cpu_free_at) + seconds
        return self._cpu_free_at

    def _run(self, milliseconds: float, done: Callable[[float], None]) -> None:
        """A statement; its answer, too, has to wait for the thread."""
        world = self._world
        self._busy = True
        ends_at = world.statement_ends_at(world.now, milliseconds)
        world.at(ends_at, lambda at: world.at(self._computed_at(at, 0.0), done))

    def _settle(self) -> None:
        world = self._world
        finished, self._finished = self._finished, []
        world.settles += 1

        def done(at: float) -> None:
            self._busy, self._settled_last = False, True
            for delivery, outcome in finished:
                world.settle(delivery, outcome)
            self._claim_at = min(self._claim_at, self._claimed_at + _GAP_SECONDS)
            self._idle = False
            self.step(at)

        self._run(world.measured.settle_ms(len(finished)), done)


def _share_out(lanes: list[tuple[_Endpoint, int]], limit: int) -> list[_Delivery]:
    """Take at most `limit`: each lane its share, and then the rest from those that have more."""
    taken: list[_Delivery] = []
    while lanes and len(taken) < limit:
        share = max((limit - len(taken)) // len(lanes), 1)
        left = []
        for endpoint, room in lanes:
            here = min(share, room, limit - len(taken))
            taken.extend(endpoint.due.popleft() for _ in range(here))
            if room > here:
                left.append((endpoint, room - here))
        lanes = left
    return taken


def _percentile(ordered: list[float], share: float) -> float:
    """Of a sorted list, by the nearest rank; 0 of an empty one."""
    if not ordered:
        return 0.0
    return ordered[min(math.ceil(share * len(ordered)), len(ordered)) - 1]
