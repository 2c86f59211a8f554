"""The steps of a bulk replay: bounded, durable, one at a time, and behind live traffic."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from shared import replay
from shared.domain.states import Status, Verb, sources
from shared.replay import ReplayFilter
from shared.store.connection import Connection, Database, fetch
from shared.store.queries import query
from shared.store.tenancy import ensure_tenant
from tests.conftest import temporary_database
from tests.store.test_plans import crowd, nodes, rows_read
from tests.support.lambdas import wait_until_somebody_waits_for_a_lock
from tests.support.world import World

EVERY_STATUS = replay.REPLAYABLE


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three deliveries a step."""
    monkeypatch.setattr(replay, "_LOOK", 3)


def bury(world: World, count: int = 1, **event: Any) -> list[UUID]:
    """Dead deliveries; their ids in order."""
    for _ in range(count):
        world.publish(**event)
    return settle_all(world, "bury")


def settle_all(world: World, verb: str, **fields: Any) -> list[UUID]:
    claimed = world.claim(limit=1000).claimed
    world.settle(*[world.report(each, verb, **fields) for each in claimed])
    return sorted(each.delivery_id for each in claimed)


def create(world: World, **conditions: Any) -> UUID:
    job_id: UUID = replay.create(world.database, world.tenant_id, ReplayFilter(**conditions))["id"]
    return job_id


def state_of(world: World, job_id: UUID) -> str:
    state: str = replay.get(world.database, world.tenant_id, job_id)["state"]
    return state


def replayed(world: World) -> list[UUID]:
    rows = world.sql(
        "select id from leasehook.deliveries where status = 'pending' and attempt_base > 0 order by id"
    )
    return [row["id"] for row in rows]


def never() -> bool:
    """There is always time."""
    return False


@pytest.mark.usefixtures("small_steps")
def test_each_step_replays_the_next_few_in_the_order_of_their_ids(world: World) -> None:
    world.endpoint()
    dead = bury(world, 7)
    job_id = create(world)
    seen = []
    for expected in (3, 3, 1):
        taken = replay.step(world.database)
        assert taken is not None
        assert (taken.looked_at_count, taken.replayed_count) == (expected, expected)
        seen.append(taken.finished)
        assert replayed(world) == dead[: len(replayed(world))]
    assert seen == [False, False, True]
    assert replayed(world) == dead
    assert state_of(world, job_id) == "finished"
    assert replay.step(world.database) is None


@pytest.mark.usefixtures("small_steps")
def test_a_step_reads_no_more_when_little_matches(world: World) -> None:
    world.endpoint()
    bury(world, 5)
    wanted = bury(world, 1, event_type="rare")
    bury(world, 3)
    create(world, event_type="rare")
    taken = [replay.step(world.database) for _ in range(4)]
    assert [each and each.looked_at_count for each in taken] == [3, 3, 3, 0]
    assert replayed(world) == wanted


@pytest.mark.usefixtures("small_steps")
def test_what_dies_again_during_the_job_is_not_replayed_twice(world: World) -> None:
    world.endpoint()
    first = bury(world, 3)
    last = bury(world, 3)
    create(world)
    replay.step(world.database)
    # One that has been replayed, and one that somebody else replays before the job comes by, die again.
    world.sql(
        """
        update leasehook.deliveries
        set status = 'pending', claimable_at = now(), finished_at = null, dead_reason = null
        where id = %s
        """,
        last[0],
    )
    assert settle_all(world, "bury") == sorted([*first, last[0]])
    replay.work(world.database, never)
    assert replayed(world) == last[1:]


def test_what_dies_after_the_job_was_made_is_not_in_it(world: World) -> None:
    world.endpoint()
    world.publish()
    job_id = create(world)
    bury(world)
    replay.work(world.database, never)
    job = replay.get(world.database, world.tenant_id, job_id)
    assert (job["state"], job["replayed_count"]) == ("finished", 0)
    assert replayed(world) == []


@pytest.mark.usefixtures("small_steps")
def test_jobs_take_turns(world: World) -> None:
    other = ensure_tenant(world.database, "other")
    for tenant_id in (world.tenant_id, other):
        world.endpoint(tenant_id=tenant_id)
        bury(world, 6, tenant_id=tenant_id)
    for tenant_id in (world.tenant_id, other):
        replay.create(world.database, tenant_id, ReplayFilter())
    for _ in range(2):
        replay.step(world.database)
    rows = world.sql(
        "select count(*) as count from leasehook.deliveries where status = 'pending' group by tenant_id"
    )
    assert [row["count"] for row in rows] == [3, 3]


def test_a_step_of_a_job_that_is_being_stepped_does_not_wait(world: World) -> None:
    world.endpoint()
    bury(world)
    job_id = create(world)
    with world.database.transaction() as connection:
        assert fetch(connection, "lock_replay_job", {"job_id": job_id})
        assert replay.step(world.database, job_id) is None
        assert replay.step(world.database) is None
    assert replay.step(world.database, job_id) is not None


@pytest.mark.usefixtures("small_steps")
def test_concurrent_runs_replay_each_delivery_once(world: World) -> None:
    world.endpoint()
    dead = bury(world, 60)
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
    job_id = create(world)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(replay.work, world.database, never) for _ in range(4)]
        total = sum(run.result(30).deliveries_replayed for run in runs)
    replay.work(world.database, never)
    assert total == len(dead)
    rows = world.sql("select delivery_id from public.replays order by delivery_id")
    assert [row["delivery_id"] for row in rows] == dead
    job = replay.get(world.database, world.tenant_id, job_id)
    assert (job["state"], job["replayed_count"], job["looked_at_count"]) == ("finished", 60, 60)


def test_a_step_locks_its_rows_in_the_order_of_their_ids(world: World) -> None:
    """WH-053: as settling does, so that neither waits for the other in a circle."""
    world.endpoint()
    first, *_, last = bury(world, 5)
    # In the table it now comes after the others.
    world.sql("update leasehook.deliveries set dead_reason = 'gone' where id = %s", first)
    create(world)
    lock = b"select 1 from leasehook.deliveries where id = %s for update nowait"
    with ThreadPoolExecutor(1) as pool:
        with world.database.transaction() as connection:
            connection.execute(lock, [first])
            step = pool.submit(replay.step, world.database)
            wait_until_somebody_waits_for_a_lock(world)
            connection.execute(lock, [last])
        assert step.result(10) == replay.Step(5, 5, finished=True)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            "status = 'pending', claimable_at = now(), finished_at = null, dead_reason = null",
            id="replayed",
        ),
        pytest.param("finished_at = clock_timestamp()", id="replayed-and-dead-again"),
    ],
)
def test_a_delivery_that_changes_between_look_and_replay_is_looked_at_again(
    world: World, change: str
) -> None:
    world.endpoint()
    [dead] = bury(world)
    create(world)
    with ThreadPoolExecutor(1) as pool:
        with world.database.transaction() as connection:
            statement = f"update leasehook.deliveries set {change} where id = %s"
            connection.execute(statement.encode(), [dead])
            step = pool.submit(replay.step, world.database)
            wait_until_somebody_waits_for_a_lock(world)
        assert step.result(10) == replay.Step(1, 0, finished=True)
    assert replayed(world) == []


def test_a_run_that_is_out_of_time_stops_between_steps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "_LOOK", 2)
    world.endpoint()
    bury(world, 5)
    create(world)
    ticks = iter([False, False, True])
    progress = replay.work(world.database, lambda: next(ticks))
    assert (progress.steps, progress.deliveries_replayed, progress.complete) == (2, 4, False)
    progress = replay.work(world.database, never)
    assert (progress.deliveries_replayed, progress.replays_finished, progress.complete) == (
        1,
        1,
        True,
    )


@pytest.mark.usefixtures("small_steps")
def test_the_request_that_makes_a_job_takes_a_few_steps_and_leaves_the_rest(world: World) -> None:
    world.endpoint()
    bury(world, 12)
    job = replay.start(world.database, world.tenant_id, ReplayFilter())
    assert (job["state"], job["matched_count"], job["replayed_count"]) == ("running", 12, 9)
    replay.work(world.database, never)
    assert state_of(world, job["id"]) == "finished"


def test_live_traffic_goes_first(world: World) -> None:
    world.endpoint()
    bury(world, 2)
    replay.start(world.database, world.tenant_id, ReplayFilter())
    live = world.publish()
    [claimed] = world.claim(limit=1).claimed
    assert claimed.event_id == live.event_id
    assert len(world.claim().claimed) == 2


def test_an_ordered_endpoint_gets_its_replays_in_the_order_of_publishing(world: World) -> None:
    """Also when it became ordered after they had died."""
    endpoint_id = world.endpoint()["id"]
    dead = bury(world, 3)
    world.sql("update leasehook.endpoints set ordered = true where id = %s", endpoint_id)
    replay.start(world.database, world.tenant_id, ReplayFilter())
    world.publish()
    order = []
    for _ in range(4):
        [claimed] = world.claim().claimed
        order.append(claimed.delivery_id)
        world.settle(world.report(claimed))
    assert order[:3] == dead


def test_an_endpoint_that_is_no_longer_ordered_is_not_held_in_line(world: World) -> None:
    endpoint_id = world.endpoint()["id"]
    world.sql("update leasehook.endpoints set ordered = true where id = %s", endpoint_id)
    for _ in range(2):
        bury(world)
    world.sql("update leasehook.endpoints set ordered = false where id = %s", endpoint_id)
    replay.start(world.database, world.tenant_id, ReplayFilter())
    assert len(world.claim().claimed) == 2


def test_the_filter_takes_every_status_that_may_be_replayed() -> None:
    assert {Status(each) for each in EVERY_STATUS} == sources(Verb.REPLAY)


@pytest.fixture(scope="module")
def history(server_url: str, template: str) -> Iterator[World]:
    """200,000 deliveries of which 1,000 are dead, and 20,000 events and dead deliveries of another tenant."""
    for url in temporary_database(server_url, template):
        world = World(Database(url))
        crowd(world, url, finished=200_000, due=0, blocked=0)
        other = ensure_tenant(world.database, "other")
        world.sql(
            """
            update leasehook.deliveries
            set status = 'dead', dead_reason = 'gone', last_error_kind = 'timeout'
            where event_id in (select id from leasehook.events order by id limit 1)
            """
        )
        world.sql("set session_replication_role = replica")
        world.sql(
            """
            insert into leasehook.deliveries (tenant_id, event_id, endpoint_id, status, finished_at, dead_reason)
            select %s, gen_random_uuid(), gen_random_uuid(), 'dead', now(), 'gone'
            from generate_series(1, 20000)
            """,
            other,
        )
        world.sql(
            """
            insert into leasehook.events (tenant_id, type, content_type, payload)
            select %s, 'order.paid', 'application/json', '{}'
            from generate_series(1, 20000)
            """,
            other,
        )
        world.sql("vacuum analyze leasehook.deliveries, leasehook.events")
        yield world
        world.database.close()


@pytest.mark.parametrize("as_tenant", [False, True], ids=["owner", "tenant"])
@pytest.mark.parametrize(
    ("conditions", "index"),
    [
        pytest.param({}, "deliveries_dead", id="dead"),
        pytest.param({"event_type": "rare"}, "deliveries_dead", id="rare-type"),
        pytest.param({"error_kind": "tls"}, "deliveries_dead", id="rare-error"),
        pytest.param({"statuses": EVERY_STATUS}, "deliveries_by_tenant", id="any-status"),
        pytest.param(
            {"statuses": EVERY_STATUS, "consumer": "x"}, "deliveries_by_tenant", id="rare-consumer"
        ),
        pytest.param(
            {"statuses": EVERY_STATUS, "endpoint_id": ...}, "deliveries_by_endpoint", id="endpoint"
        ),
    ],
)
def test_a_look_reads_no_more_than_its_step_whatever_the_filter(
    history: World, conditions: dict[str, Any], index: str, *, as_tenant: bool
) -> None:
    """Steps look as the owner, counting looks under row-level security."""
    if "endpoint_id" in conditions:
        endpoint_id = history.sql("select id from leasehook.endpoints limit 1")[0]["id"]
        conditions = {**conditions, "endpoint_id": endpoint_id}
    parameters = look_parameters(history, **conditions)
    if as_tenant:
        with history.database.as_tenant(history.tenant_id) as connection:
            plan = explain(connection, "look_for_replays", parameters)
    else:
        with history.database.connection() as connection:
            plan = explain(connection, "look_for_replays", parameters)
    assert 0 < rows_read(plan, "deliveries") <= 1000
    assert rows_read(plan, "events") <= 1000
    used = {
        node["Index Name"]
        for node in nodes(plan)
        if node.get("Relation Name") == "deliveries" and node["Actual Loops"]
    }
    assert used == {index}


def test_a_step_changes_its_rows_without_a_scan(history: World) -> None:
    with history.database.connection() as connection:
        [look] = fetch(connection, "look_for_replays", look_parameters(history))
    parameters = {
        **look_parameters(history),
        "delivery_ids": look["delivery_ids"],
        "rank": 100,
    }
    assert len(look["delivery_ids"]) == 1000
    with history.database.transaction() as connection:
        plan = explain(connection, "replay_deliveries", parameters)
    assert rows_read(plan, "deliveries") <= 4 * 1000
    assert rows_read(plan, "endpoints") <= 1000


def explain(connection: Connection, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Execute a query and return its plan with what it really read; nothing is kept."""
    with connection.transaction(force_rollback=True):
        statement = b"explain (analyze, timing off, format json) " + query(name)
        row = connection.execute(statement, parameters).fetchone()
    assert row is not None
    plan: dict[str, Any] = row["QUERY PLAN"][0]["Plan"]
    return plan


def look_parameters(world: World, **conditions: Any) -> dict[str, Any]:
    with world.database.as_tenant(world.tenant_id) as connection:
        plan = replay._plan(connection, world.tenant_id, ReplayFilter(**conditions))
    return {**plan, "walk": replay._walk(plan["statuses"], plan["endpoint_id"]), "limit": 1000}
