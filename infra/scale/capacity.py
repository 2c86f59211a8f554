"""How much a deployment can send, and what that asks of the database: closed formulas, all in deliveries a second."""

import math
from dataclasses import dataclass, replace

from infra.scale.measured import MEASURED, Measured
from infra.scale.workload import TICK_SECONDS, Deployment, Workload

COMFORT = 0.7
"""The share of a bound that is planned with; queues grow steeply beyond it."""
DRAINS_OFFERED = (1, 2, 4, 8)
"""The values of the template's DrainsPerTick."""
_GAP_SECONDS = 0.02
"""A finished request brings the next claim this close."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What limits attempts per second: of one drain by its CPU, its slots and its statements; of an endpoint."""

    cpu: float
    slots: float
    statements: float
    endpoint: float

    @property
    def drain(self) -> float:
        """One drain's attempts per second."""
        return min(self.cpu, self.slots, self.statements)

    @property
    def reason(self) -> str:
        """What is used up first."""
        named = {"CPU": self.cpu, "slots": self.slots, "statements": self.statements}
        return min(named, key=named.__getitem__)


def bounds(workload: Workload, deployment: Deployment, measured: Measured = MEASURED) -> Bounds:
    """The bounds of one drain. Slots are Little's law: in flight = rate * latency."""
    settings = deployment.settings
    receivers = workload.receivers
    latency = receivers.mean_seconds(settings.timeout_seconds)
    batch = settings.drain_concurrency
    statement_ms = measured.claim_ms(batch) + measured.settle_ms(batch)
    pair_seconds = statement_ms / 1e3 / deployment.core_speed + 2 * deployment.round_trip_seconds
    cpu_seconds = measured.attempt_cpu_ms(receivers) / 1e3 / deployment.drain_cores
    return Bounds(
        cpu=1 / cpu_seconds,
        slots=batch / latency,
        statements=batch / pair_seconds,
        endpoint=settings.drain_endpoint_concurrency / latency,
    )


def throughput(
    workload: Workload,
    deployment: Deployment,
    database_vcpus: float = math.inf,
    measured: Measured = MEASURED,
) -> float:
    """Deliveries per second of all drains together, until the database has no more."""
    attempts = workload.attempts_per_delivery(deployment.settings)
    found = bounds(workload, deployment, measured)
    hot = workload.receivers.hot_share
    drain = min(found.drain, found.endpoint / hot) if hot else found.drain
    drains = drain * deployment.drains_per_tick / attempts
    return min(drains, database_ceiling(workload, deployment, database_vcpus, measured))


def database_ceiling(
    workload: Workload,
    deployment: Deployment,
    database_vcpus: float,
    measured: Measured = MEASURED,
) -> float:
    """Deliveries per second at which publishing, sending in full batches, and pruning fill the database's CPU."""
    batch = deployment.settings.drain_concurrency
    attempts = workload.attempts_per_delivery(deployment.settings)
    statements_ms = (measured.claim_ms(batch) + measured.settle_ms(batch)) / batch
    per_delivery_ms = _published_ms(workload, measured) + attempts * statements_ms
    return database_vcpus * deployment.core_speed * 1e3 / per_delivery_ms


def drains_needed(workload: Workload, deployment: Deployment, measured: Measured = MEASURED) -> int:
    """Drains per tick that carry the peak with COMFORT, and the hottest endpoint's part of it."""
    one = replace(deployment, drains_per_tick=1)
    rate = throughput(workload, one, measured=measured) * COMFORT
    return max(math.ceil(workload.peak_per_second / rate), 1)


def drains_to_set(
    workload: Workload, deployment: Deployment, measured: Measured = MEASURED
) -> int | None:
    """The DrainsPerTick that carries the peak; None if even the most do not."""
    needed = drains_needed(workload, deployment, measured)
    return next((offered for offered in DRAINS_OFFERED if offered >= needed), None)


def statements_per_second(
    attempts_per_second: float, deployment: Deployment, measured: Measured = MEASURED
) -> tuple[float, float]:
    """Claims and settles of all drains at this rate of attempts.

    A drain claims when a request has finished, at the earliest the gap after the last claim, and else by polling; a
    claim that found something is followed by one more. It settles whenever something has finished: while a settle
    runs, the next one's rows gather.
    """
    drains = deployment.drains_per_tick
    rate = attempts_per_second / drains
    round_trip = deployment.round_trip_seconds
    claim_seconds = measured.claim_fixed_ms / 1e3 / deployment.core_speed + round_trip
    settle_seconds = measured.settle_fixed_ms / 1e3 / deployment.core_speed + round_trip
    polls = 1 / deployment.settings.drain_poll_seconds if deployment.polls else 0.0
    if rate + polls == 0:
        return 0.0, 0.0
    cycle_seconds = _GAP_SECONDS + claim_seconds + 1 / (rate + polls)
    claims = (2 - math.exp(-rate * cycle_seconds)) / cycle_seconds
    return claims * drains, rate / (1 + rate * settle_seconds) * drains


def database_vcpus(
    per_second: float, workload: Workload, deployment: Deployment, measured: Measured = MEASURED
) -> float:
    """VCPUs that the database is busy with at this many deliveries per second: no headroom in it."""
    attempts = per_second * workload.attempts_per_delivery(deployment.settings)
    claims, settles = statements_per_second(attempts, deployment, measured)
    milliseconds = (
        claims * measured.claim_fixed_ms
        + settles * measured.settle_fixed_ms
        + attempts * (measured.claim_row_ms + measured.settle_row_ms)
        + per_second * _published_ms(workload, measured)
        + measured.health_database_cpu_ms / TICK_SECONDS
    )
    return milliseconds / 1e3 / deployment.core_speed


def _published_ms(workload: Workload, measured: Measured) -> float:
    return (
        measured.event_database_cpu_ms / workload.fan_out
        + measured.delivery_database_cpu_ms
        + measured.prune_database_cpu_ms
    )


def ingest_seconds(deployment: Deployment, measured: Measured = MEASURED) -> float:
    """How long a publish keeps an ingest function."""
    return (
        measured.ingest_cpu_ms / deployment.ingest_cores
        + measured.publish_ms / deployment.core_speed
    ) / 1e3 + deployment.round_trip_seconds


@dataclass(frozen=True, slots=True)
class Connections:
    """Database connections: ingest when all is well and when the database hangs, and drains where two ticks overlap."""

    ingest: int
    ingest_stalled: int
    drains: int


_INGEST_TIMEOUT_SECONDS = 20
"""Of the function, in the template: as long as a publish hangs at most."""


def connections(
    workload: Workload, deployment: Deployment, measured: Measured = MEASURED
) -> Connections:
    """One per function environment; how many of those there are is Little's law again."""
    publishes = workload.peak_per_second / workload.fan_out * workload.http_share
    return Connections(
        ingest=math.ceil(publishes * ingest_seconds(deployment, measured)),
        ingest_stalled=math.ceil(publishes * _INGEST_TIMEOUT_SECONDS),
        drains=2 * deployment.drains_per_tick,
    )


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes on disk once as much is pruned as arrives, and WAL a second at the peak."""

    gigabytes: float
    gigabytes_per_million: float
    wal_bytes_per_delivery: float


def stored(workload: Workload, deployment: Deployment, measured: Measured = MEASURED) -> Stored:
    """Events (with their keys), deliveries and attempts, for as long as they are kept."""
    attempts = workload.attempts_per_delivery(deployment.settings)
    per_delivery = (
        (measured.event_bytes + measured.key_bytes + workload.payload_bytes) / workload.fan_out
        + measured.delivery_heap_bytes
        + measured.delivery_index_bytes
        + attempts * (measured.attempt_bytes + workload.response_bytes)
    )
    wal = (
        (measured.event_wal_bytes + workload.payload_bytes) / workload.fan_out
        + measured.delivery_wal_bytes
        + attempts * (measured.drain_wal_bytes + workload.response_bytes)
        + measured.prune_wal_bytes
    )
    return Stored(
        gigabytes=per_delivery * workload.deliveries_per_day * deployment.retention_days / 1e9,
        gigabytes_per_million=per_delivery / 1e3,
        wal_bytes_per_delivery=wal,
    )
