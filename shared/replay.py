"""Bulk replay: a durable job that walks over a tenant's deliveries and asks again for those that match a filter.

A job is a row. Its steps are short transactions, made by whoever has time for them: the request that made the job takes
the first ones, the schedule of maintenance the rest. A step that is killed never happened, and the next one goes on
where the last one ended, so a job survives timeouts and crashes and never holds more than one step in memory.

What a job replays is what matched when it was made: deliveries that existed then, and that had finished by then if they
are finished. A delivery is looked at once, so a job replays it once at most, also when it dies again meanwhile.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from shared.domain.time_ids import FIRST_ID, first_id_at
from shared.errors import Conflict, DatabaseUnavailable, NotFound
from shared.store.connection import Connection, Database, Row, fetch

REPLAYABLE = ("dead", "cancelled", "succeeded", "failed")
"""Statuses that a filter may name. What is pending or in progress is on its way already."""
MAX_UNFINISHED_JOBS = 20
"""Per tenant."""
COUNTED = 100_000
"""How many deliveries are looked at to say how many match; if there are more, the answer is "at least"."""

_LOOK = 1000
_COUNTING_LOOK = 5000
_STEPS_AT_ONCE = 3
_RANK = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFilter:
    """Which deliveries to replay. None lets everything through.

    Args:
        statuses: some of REPLAYABLE.
        endpoint_id: of this endpoint.
        consumer: of events for this consumer.
        event_type: of events that this filter of an endpoint would let through: a type, `order.*`, or `*`.
        created_after: made at this instant or later, by their ids as in lists; aware.
        created_before: made before this instant, likewise.
        error_kind: whose last attempt failed in this way (`shared.domain.outcome.ErrorKind`).
    """

    statuses: Sequence[str] = ("dead",)
    endpoint_id: UUID | None = None
    consumer: str | None = None
    event_type: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    error_kind: str | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """How many deliveries a replay would match: exactly, or at least so many."""

    matched_count: int
    matched_exactly: bool


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of a job did. `finished`: it was the last one."""

    looked_at_count: int
    replayed_count: int
    finished: bool


@dataclass(slots=True)
class Progress:
    """What one run did for all jobs. `complete` says that no job was left to step when it ended."""

    steps: int = 0
    deliveries_replayed: int = 0
    replays_finished: int = 0
    complete: bool = False


def estimate(database: Database, tenant_id: UUID, wanted: ReplayFilter) -> Estimate:
    """Count what a replay would match, without replaying anything.

    Raises:
        NotFound: the tenant has no such endpoint.
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.as_tenant(tenant_id) as connection:
        return _count(connection, _plan(connection, tenant_id, wanted))


def start(database: Database, tenant_id: UUID, wanted: ReplayFilter) -> Row:
    """Make a job, and take its first steps: a small one is finished when this returns.

    Raises:
        NotFound: the tenant has no such endpoint.
        Conflict: the tenant has MAX_UNFINISHED_JOBS jobs already that are running or paused.
        DatabaseUnavailable: see `Database.connection`.
    """
    job = create(database, tenant_id, wanted)
    # The job is stored: whatever happens to its steps here, the schedule goes on with them.
    with suppress(DatabaseUnavailable):
        for _ in range(_STEPS_AT_ONCE):
            taken = step(database, job["id"])
            if taken is None or taken.finished:
                break
        job = get(database, tenant_id, job["id"])
    return job


def create(database: Database, tenant_id: UUID, wanted: ReplayFilter) -> Row:
    """Make a job and leave its steps to others; raises what `start` raises."""
    with database.as_tenant(tenant_id) as connection:
        plan = _plan(connection, tenant_id, wanted)
        [jobs] = fetch(connection, "count_unfinished_replay_jobs", {"tenant_id": tenant_id})
        if jobs["unfinished_count"] >= MAX_UNFINISHED_JOBS:
            raise Conflict(
                f"{MAX_UNFINISHED_JOBS} replays are running or paused: wait for one to finish, or cancel one"
            )
        fetch(connection, "create_replay_job", {**plan, **asdict(_count(connection, plan))})
        return _get(connection, tenant_id, plan["id"])


def get(database: Database, tenant_id: UUID, job_id: UUID) -> Row:
    """A job and how far it is.

    Raises:
        NotFound: the tenant has no such job.
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.as_tenant(tenant_id) as connection:
        return _get(connection, tenant_id, job_id)


def list_jobs(database: Database, tenant_id: UUID, before: UUID | None, limit: int) -> list[Row]:
    """Up to `limit` jobs, newest first, from the one before `before` on.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.as_tenant(tenant_id) as connection:
        return fetch(
            connection,
            "list_replay_jobs",
            {"tenant_id": tenant_id, "before": before, "limit": limit},
        )


def pause(database: Database, tenant_id: UUID, job_id: UUID) -> Row:
    """Take no further steps until the job is resumed; returns after the step that is under way.

    Raises:
        NotFound: the tenant has no such job.
        Conflict: it is over.
        DatabaseUnavailable: see `Database.connection`.
    """
    return _move(database, tenant_id, job_id, "paused", from_states=("running",))


def resume(database: Database, tenant_id: UUID, job_id: UUID) -> Row:
    """Let a paused job go on, within a minute; raises what `pause` raises."""
    return _move(database, tenant_id, job_id, "running", from_states=("paused",))


def cancel(database: Database, tenant_id: UUID, job_id: UUID) -> Row:
    """End a job. What it has replayed stays replayed. Raises what `pause` raises."""
    return _move(database, tenant_id, job_id, "cancelled", from_states=("running", "paused"))


def work(database: Database, out_of_time: Callable[[], bool]) -> Progress:
    """Step the running jobs of all tenants in turn until none is left or `out_of_time()`.

    Raises:
        DatabaseUnavailable: see `Database.connection`; the steps that were taken stay.
    """
    progress = Progress()
    while not out_of_time():
        taken = step(database)
        if taken is None:
            progress.complete = True
            break
        progress.steps += 1
        progress.deliveries_replayed += taken.replayed_count
        progress.replays_finished += taken.finished
    return progress


def step(database: Database, job_id: UUID | None = None) -> Step | None:
    """Take one step of a job, or of the job whose turn it is; None if no such job is running and free.

    It is one transaction under the job's lock: two steps of a job never overlap, and the second one does not wait.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.transaction() as connection:
        jobs = fetch(connection, "lock_replay_job", {"job_id": job_id})
        if not jobs:
            return None
        [job] = jobs
        look = _look(connection, job, job["cursor"], _LOOK)
        [replayed] = fetch(
            connection,
            "replay_deliveries",
            {
                "tenant_id": job["tenant_id"],
                "delivery_ids": look["delivery_ids"],
                "statuses": job["statuses"],
                "created_at": job["created_at"],
                "rank": _RANK,
            },
        )
        taken = Step(
            look["looked_at_count"], replayed["replayed_count"], look["looked_at_count"] < _LOOK
        )
        fetch(
            connection,
            "advance_replay_job",
            {
                "job_id": job["id"],
                "last_id": look["last_id"],
                "looked_at_count": taken.looked_at_count,
                "replayed_count": taken.replayed_count,
                "is_last": taken.finished,
            },
        )
    return taken


def _plan(connection: Connection, tenant_id: UUID, wanted: ReplayFilter) -> Row:
    """A job's columns, before its matches are counted."""
    if wanted.endpoint_id is not None and not fetch(
        connection,
        "find_replayable_endpoint",
        {"tenant_id": tenant_id, "endpoint_id": wanted.endpoint_id},
    ):
        raise NotFound(f"there is no endpoint {wanted.endpoint_id}")
    [moment] = fetch(connection, "replay_moment", {})
    made_at: datetime = moment["at"]
    after = _within(wanted.created_after, made_at)
    before = _within(wanted.created_before, made_at)
    return {
        "id": moment["id"],
        "tenant_id": tenant_id,
        **asdict(wanted),
        "statuses": sorted(set(wanted.statuses)),
        "created_after": after,
        "created_before": before,
        "created_at": made_at,
        # The walk begins after its cursor, and an instant includes its first id.
        "cursor": FIRST_ID if after is None else UUID(int=first_id_at(after).int - 1),
        "end_id": moment["id"] if before is None else first_id_at(before),
    }


def _within(instant: datetime | None, made_at: datetime) -> datetime | None:
    """An instant before there was anything, or in the job's future, means the same as that end of its time."""
    return None if instant is None else min(max(instant, _EPOCH), made_at)


def _count(connection: Connection, plan: Mapping[str, Any]) -> Estimate:
    matched_count, cursor = 0, plan["cursor"]
    for _ in range(COUNTED // _COUNTING_LOOK):
        look = _look(connection, plan, cursor, _COUNTING_LOOK)
        matched_count += len(look["delivery_ids"])
        if look["looked_at_count"] < _COUNTING_LOOK:
            return Estimate(matched_count, matched_exactly=True)
        cursor = look["last_id"]
    return Estimate(matched_count, matched_exactly=False)


def _look(connection: Connection, job: Mapping[str, Any], cursor: UUID, limit: int) -> Row:
    """Look at the next `limit` deliveries after `cursor`: `looked_at_count`, `last_id`, and the matching `delivery_ids`."""
    [look] = fetch(
        connection,
        "look_for_replays",
        {
            **job,
            "walk": _walk(job["statuses"], job["endpoint_id"]),
            "cursor": cursor,
            "limit": limit,
        },
    )
    return look


def _walk(statuses: Sequence[str], endpoint_id: UUID | None) -> str:
    """The shortest of the walks that come by every delivery that can match."""
    if list(statuses) == ["dead"]:
        return "dead"
    return "tenant" if endpoint_id is None else "endpoint"


def _get(connection: Connection, tenant_id: UUID, job_id: UUID) -> Row:
    rows = fetch(connection, "get_replay_job", {"tenant_id": tenant_id, "job_id": job_id})
    if not rows:
        raise NotFound(f"there is no replay {job_id}")
    return rows[0]


def _move(
    database: Database, tenant_id: UUID, job_id: UUID, state: str, *, from_states: Sequence[str]
) -> Row:
    with database.as_tenant(tenant_id) as connection:
        moved = fetch(
            connection,
            "move_replay_job",
            {
                "tenant_id": tenant_id,
                "job_id": job_id,
                "state": state,
                "from_states": list(from_states),
            },
        )
        job = _get(connection, tenant_id, job_id)
        if not moved and job["state"] != state:
            raise Conflict(f"the replay is {job['state']} and cannot become {state}")
        return job
