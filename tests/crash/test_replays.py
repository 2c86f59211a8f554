"""Bulk replays whose worker is killed: the next one goes on, and nothing is replayed twice or left out."""

import time
from uuid import UUID

import pytest

from shared import replay
from shared.replay import ReplayFilter
from tests.support.proxy import Moment, Proxy
from tests.support.workers import Worker
from tests.support.world import World

pytestmark = pytest.mark.crash

DEAD = 3500
"""Four steps."""


def bury(world: World, count: int) -> None:
    """Dead deliveries, and a record of every replay that is committed."""
    world.endpoint(event_types=["order.*"])
    world.endpoint(event_types=["replay.finished"])
    world.publish_many(count)
    world.sql(
        """
        update leasehook.deliveries
        set status = 'dead', dead_reason = 'gone', attempt_count = 1, claimable_at = null, finished_at = now()
        """
    )
    world.sql("create table public.replays (delivery_id uuid)")
    world.sql(
        """
        create function public.note() returns trigger language plpgsql as $$
        begin
            insert into public.replays values (new.id);
            return null;
        end $$
        """
    )
    world.sql(
        """
        create trigger note after update on leasehook.deliveries
        for each row when (new.attempt_base > old.attempt_base) execute function public.note()
        """
    )


def create(world: World) -> UUID:
    job_id: UUID = replay.create(world.database, world.tenant_id, ReplayFilter())["id"]
    return job_id


def replayed_count(world: World) -> int:
    count: int = world.one("select count(*) from public.replays")["count"]
    return count


def assert_each_was_replayed_once(world: World, job_id: UUID, count: int) -> None:
    assert world.sql("select delivery_id from public.replays group by 1 having count(*) > 1") == []
    assert replayed_count(world) == count
    job = replay.get(world.database, world.tenant_id, job_id)
    assert (job["state"], job["looked_at_count"], job["replayed_count"]) == (
        "finished",
        count,
        count,
    )
    assert world.statuses() == {"pending": count + 1}
    assert world.sql("select 1 from leasehook.deliveries where attempt_base > 1") == []
    assert world.one("select count(*) from leasehook.events where operational") == {"count": 1}


@pytest.mark.parametrize(
    ("statement", "moment", "replayed"),
    [
        pytest.param("replay_deliveries", Moment.BEFORE, 0, id="looked-not-replayed"),
        pytest.param("advance_replay_job", Moment.BEFORE, 0, id="replayed-not-advanced"),
        pytest.param("advance_replay_job", Moment.AFTER, 0, id="advanced-not-committed"),
        pytest.param("COMMIT", Moment.AFTER, 1000, id="committed-and-never-told"),
    ],
)
def test_a_step_that_is_killed_never_happened_or_happened_whole(
    world: World,
    proxy: Proxy,
    database_url: str,
    *,
    statement: str,
    moment: Moment,
    replayed: int,
) -> None:
    bury(world, DEAD)
    job_id = create(world)
    with (
        proxy.hold(statement, moment) as step,
        Worker("maintain", world.environment(proxy.url), "replays") as worker,
    ):
        step.wait()
        worker.kill()
    assert replayed_count(world) == replayed
    assert replay.get(world.database, world.tenant_id, job_id)["replayed_count"] == replayed

    with Worker("maintain", world.environment(database_url), "replays") as worker:
        progress = worker.answer()["replays"]

    assert (progress["complete"], progress["replays_finished"]) == (True, 1)
    assert_each_was_replayed_once(world, job_id, DEAD)


def test_workers_that_are_killed_wherever_they_are_leave_nothing_twice(
    world: World, database_url: str
) -> None:
    count = 20_000
    bury(world, count)
    job_id = create(world)
    for _ in range(2):
        before = replayed_count(world)
        with (
            Worker("maintain", world.environment(database_url), "replays") as worker,
            Worker("maintain", world.environment(database_url), "replays") as rival,
        ):
            deadline = time.monotonic() + 30
            while replayed_count(world) == before:
                assert time.monotonic() < deadline
            # One that came while the other held the only job has ended: there was nothing for it to do.
            assert any([worker.kill_if_running(), rival.kill_if_running()])
    assert 2000 <= replayed_count(world) < count

    with Worker("maintain", world.environment(database_url), "replays") as worker:
        worker.answer(60)

    assert_each_was_replayed_once(world, job_id, count)
