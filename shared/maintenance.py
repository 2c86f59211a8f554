"""Maintenance: prune what is past its retention, disable what has failed for days, measure the queue."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from shared.config import Settings
from shared.endpoints import align_lines
from shared.store.connection import Connection, Database, fetch

_START = UUID(int=0)
_EVENTS_PER_STEP = 500
_ROWS_PER_STEP = 1000
_PRUNE = "prune_events"
_MEASURE_SECONDS = 20.0
"""A queue that takes long to measure is the one to measure. Less than the 25 that the API has for its answer."""
_STEP_SECONDS = 60.0
"""A step that is cut off comes again as it was, on a slow day for ever: it may take longer than a request's statement."""


@dataclass(slots=True)
class Upkeep:
    """What one run did. `complete` says that nothing was left to do when it ended."""

    endpoints_disabled: int = 0
    deliveries_buried: int = 0
    deliveries_cancelled: int = 0
    events_scanned: int = 0
    events_pruned: int = 0
    deliveries_pruned: int = 0
    idempotency_keys_pruned: int = 0
    replays_pruned: int = 0
    refusal_counts_pruned: int = 0
    complete: bool = False


@dataclass(frozen=True, slots=True)
class QueueHealth:
    """The state of the queue at one instant. A lapsed row is in progress under a lease that has run out."""

    due_count: int
    due_age_seconds: float
    in_progress_count: int
    lapsed_count: int
    waiting_count: int
    parked_count: int
    open_circuit_count: int

    def as_metrics(self) -> dict[str, float]:
        """By name, for the metrics."""
        return asdict(self)


def queue_health(database: Database) -> QueueHealth:
    """Measure the queue; costs in proportion to what is unfinished, not to history.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.allowing(_MEASURE_SECONDS).connection() as connection:
        [health] = fetch(connection, "queue_health", {})
        [circuits] = fetch(connection, "open_circuit_count", {})
    return QueueHealth(**health, **circuits)


def maintain(database: Database, settings: Settings, out_of_time: Callable[[], bool]) -> Upkeep:
    """Run maintenance until it is complete or `out_of_time()`; the next run goes on where this one stopped.

    Every step is a short transaction of its own, so a run that is killed loses nothing but its current step.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    upkeep = Upkeep()
    database = database.allowing(_STEP_SECONDS)
    align_lines(database)
    with database.connection() as connection:
        upkeep.endpoints_disabled = len(
            fetch(
                connection,
                "disable_failing_endpoints",
                {"disable_after_days": settings.disable_after_days},
            )
        )
        repeated = {
            "deliveries_cancelled": ("cancel_orphaned", {}),
            "deliveries_buried": ("bury_parked", {"parked_days": settings.parked_days}),
            "idempotency_keys_pruned": (
                "prune_idempotency_keys",
                {"idempotency_days": settings.idempotency_days},
            ),
            "replays_pruned": (
                "prune_replay_jobs",
                {"retention_days": settings.dead_retention_days},
            ),
            "refusal_counts_pruned": (
                "prune_source_refusals",
                {"retention_days": settings.dead_retention_days},
            ),
        }
        upkeep.complete = _prune_events(connection, settings, upkeep, out_of_time)
        for counter, (name, parameters) in repeated.items():
            count, is_done = _repeat(connection, name, parameters, out_of_time)
            setattr(upkeep, counter, count)
            upkeep.complete &= is_done
    return upkeep


def _repeat(
    connection: Connection,
    name: str,
    parameters: Mapping[str, Any],
    out_of_time: Callable[[], bool],
) -> tuple[int, bool]:
    """Run a query that changes up to `limit` rows until it finds fewer: how many it changed, and whether that was all."""
    total = 0
    while not out_of_time():
        count = len(fetch(connection, name, {**parameters, "limit": _ROWS_PER_STEP}))
        total += count
        if count < _ROWS_PER_STEP:
            return total, True
    return total, False


def _prune_events(
    connection: Connection, settings: Settings, upkeep: Upkeep, out_of_time: Callable[[], bool]
) -> bool:
    """Walk over old events, from where the last run stopped; at the end, the next walk starts over.

    What is kept (dead letters, parked deliveries) is stepped over once a walk and not once a run.
    """
    rows = fetch(connection, "prune_cursor", {"task": _PRUNE})
    cursor: UUID = rows[0]["cursor"] if rows else _START
    while not out_of_time():
        with connection.transaction():
            [step] = fetch(
                connection,
                "prune_deliveries",
                {
                    "cursor": cursor,
                    "limit": _EVENTS_PER_STEP,
                    "retention_days": settings.retention_days,
                    "dead_retention_days": settings.dead_retention_days,
                },
            )
            pruned = fetch(connection, "prune_events", {"event_ids": step["event_ids"]})
            is_last = step["scanned"] < _EVENTS_PER_STEP
            cursor = _START if is_last else step["last_id"]
            fetch(connection, "save_prune_cursor", {"task": _PRUNE, "cursor": cursor})
        upkeep.events_scanned += step["scanned"]
        upkeep.deliveries_pruned += step["deliveries"]
        upkeep.events_pruned += len(pruned)
        if is_last:
            return True
    return False
