"""What was measured: `python -m tests.bench.bench_scale` prints it anew. Everything else is computed from it."""

from dataclasses import dataclass

from infra.scale.workload import Receivers

MEASURED_ON = (
    "2 shared cores of an AMD EPYC server, Python 3.11, PostgreSQL 18 with fsync, "
    "receiver and drain beside it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Per step of the path, for events of 1,000 bytes. CPU is in ms of one core of that machine."""

    # A drain's CPU per attempt: over a kept HTTP connection, over a kept TLS one, over a new TLS one.
    http_cpu_ms: float = 0.125
    tls_cpu_ms: float = 0.175
    new_tls_cpu_ms: float = 0.98

    # The ingest function's CPU per publish over its Lambda handler, and what it waits for the database.
    ingest_cpu_ms: float = 1.32
    publish_ms: float = 0.69

    # A statement's time by its batch, fixed + per row, nearly all of it the database's CPU. The fixed part is mostly
    # planning: prepared, a claim of one takes 0.74 ms.
    claim_fixed_ms: float = 2.6
    claim_row_ms: float = 0.033
    settle_fixed_ms: float = 2.4
    settle_row_ms: float = 0.038

    # The database's CPU otherwise: an event with its key, each delivery of it, its pruning, a look at the queue.
    event_database_cpu_ms: float = 0.41
    delivery_database_cpu_ms: float = 0.05
    prune_database_cpu_ms: float = 0.009
    health_database_cpu_ms: float = 0.2

    # WAL, without the full pages that follow a checkpoint. The payload comes on top of the event's.
    event_wal_bytes: float = 890.0
    delivery_wal_bytes: float = 739.0
    drain_wal_bytes: float = 1940.0
    prune_wal_bytes: float = 422.0

    # What stays on disk, dead versions included: heap with TOAST, and indexes. The payload comes on top of the event's.
    event_bytes: float = 392.0
    key_bytes: float = 239.0
    delivery_heap_bytes: float = 408.0
    delivery_index_bytes: float = 393.0
    attempt_bytes: float = 198.0

    def attempt_cpu_ms(self, receivers: Receivers) -> float:
        """A drain's CPU per attempt over TLS, with this share of new connections."""
        new = receivers.new_connection_share
        return (1 - new) * self.tls_cpu_ms + new * self.new_tls_cpu_ms

    def claim_ms(self, rows: int) -> float:
        """A claim that finds this many."""
        return self.claim_fixed_ms + self.claim_row_ms * rows

    def settle_ms(self, rows: int) -> float:
        """A settle of this many."""
        return self.settle_fixed_ms + self.settle_row_ms * rows


MEASURED = Measured()


@dataclass(frozen=True, slots=True)
class Backlog:
    """A real drain of a backlog, receivers of one latency. `cpu_ms` is what the drain used per delivery in it."""

    latency_seconds: float
    endpoints: int
    deliveries: int
    per_second: float
    cpu_ms: float


BACKLOGS: tuple[Backlog, ...] = (
    Backlog(0.0, 50, 20_000, 4262, 0.125),
    Backlog(0.05, 50, 20_000, 2403, 0.161),
    Backlog(0.2, 50, 10_000, 814, 0.171),
    Backlog(0.2, 1, 5_000, 451, 0.252),
    Backlog(1.0, 50, 3_000, 188, 0.182),
)


@dataclass(frozen=True, slots=True)
class Paced:
    """A real polling drain and events that came one by one; receivers of the default latency, without silence."""

    per_second: float
    claims_per_second: float
    settles_per_second: float
    database_cores: float
    wait_p50_ms: float
    wait_p99_ms: float


PACED: tuple[Paced, ...] = (Paced(49.3, 50.7, 43.8, 0.282, 26, 93),)
