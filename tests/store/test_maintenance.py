"""Maintenance: bounded steps, nothing unfinished removed, nothing said twice."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from shared.config import Settings
from shared.maintenance import maintain, queue_health
from tests.support.world import World

DAY = 86400.0
SETTINGS = Settings()


def never() -> bool:
    """There is always time."""
    return False


def finish(world: World, status: str) -> None:
    """Settle everything that is due with one result."""
    verb = {"succeeded": "succeed", "dead": "bury", "failed": "retry"}[status]
    claimed = world.claim(limit=1000).claimed
    world.settle(*[world.report(each, verb) for each in claimed])


def test_finished_deliveries_go_with_their_events_and_attempts_after_the_retention(
    world: World,
) -> None:
    world.endpoint()
    world.publish_many(3)
    finish(world, "succeeded")
    world.pass_time(29 * DAY)
    assert maintain(world.database, SETTINGS, never).events_pruned == 0
    world.pass_time(2 * DAY)
    upkeep = maintain(world.database, SETTINGS, never)
    assert (upkeep.events_pruned, upkeep.deliveries_pruned, upkeep.complete) == (3, 3, True)
    for table in ("events", "deliveries", "attempts"):
        assert world.sql(f"select 1 from leasehook.{table}") == []


def test_dead_letters_are_kept_on_their_own_clock(world: World) -> None:
    world.endpoint()
    world.publish_many(2)
    finish(world, "dead")
    world.pass_time(60 * DAY)
    assert maintain(world.database, SETTINGS, never).events_pruned == 0
    world.pass_time(31 * DAY)
    assert maintain(world.database, SETTINGS, never).events_pruned == 2


def test_an_event_with_anything_unfinished_or_unexpired_stays_whole(world: World) -> None:
    """WH-059."""
    world.endpoint()
    world.endpoint()
    world.publish()
    one, two = world.claim().claimed
    world.settle(world.report(one), world.report(two, "retry", delay_seconds=86400.0))
    world.pass_time(200 * DAY)
    upkeep = maintain(world.database, SETTINGS, never)
    assert (upkeep.events_pruned, upkeep.deliveries_pruned) == (0, 0)
    assert world.statuses() == {"succeeded": 1, "failed": 1}


def test_an_event_that_reached_nobody_is_pruned_too(world: World) -> None:
    world.publish()
    world.pass_time(31 * DAY)
    assert maintain(world.database, SETTINGS, never).events_pruned == 1


def test_a_run_that_is_out_of_time_goes_on_where_it_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.maintenance._EVENTS_PER_STEP", 2)
    world.endpoint()
    world.publish_many(3)
    finish(world, "dead")
    world.publish_many(2)
    finish(world, "succeeded")
    world.pass_time(31 * DAY)
    looked_at = []
    for _ in range(5):
        # Time for one step.
        ticks = itertools.count()
        upkeep = maintain(world.database, SETTINGS, lambda ticks=ticks: next(ticks) >= 1)  # type: ignore[misc]
        looked_at.append((upkeep.events_scanned, upkeep.events_pruned))
    assert looked_at == [(2, 0), (2, 1), (1, 1), (2, 0), (1, 0)]


def test_a_delivery_that_is_replayed_at_this_moment_is_not_pruned(world: World) -> None:
    world.endpoint()
    world.publish()
    finish(world, "succeeded")
    world.pass_time(31 * DAY)
    with ThreadPoolExecutor(1) as pool:
        with world.database.transaction() as operator:
            operator.execute(
                "update leasehook.deliveries set status = 'pending', claimable_at = now(), finished_at = null"
            )
            pruning = pool.submit(maintain, world.database, SETTINGS, never)
            world.until_somebody_waits_for_a_lock()
        upkeep = pruning.result(10)
    assert (upkeep.events_pruned, upkeep.deliveries_pruned) == (0, 0)
    assert world.statuses() == {"pending": 1}


def test_idempotency_keys_work_for_as_long_as_promised(world: World) -> None:
    world.publish(idempotency_key="k")
    world.pass_time(29 * DAY)
    maintain(world.database, SETTINGS, never)
    assert world.publish(idempotency_key="k").repeated
    world.pass_time(2 * DAY)
    assert maintain(world.database, SETTINGS, never).idempotency_keys_pruned == 1
    assert not world.publish(idempotency_key="k").repeated


def test_an_endpoint_that_has_failed_for_days_is_disabled_once(world: World) -> None:
    """WH-115: with time and reason; concurrent runs make one transition."""
    failing, other = world.endpoint()["id"], world.endpoint()["id"]
    world.publish()
    claimed = {each.endpoint_id: each for each in world.claim().claimed}
    world.settle(world.report(claimed[failing], "retry"), world.report(claimed[other]))
    world.pass_time(4.9 * DAY)
    assert maintain(world.database, SETTINGS, never).endpoints_disabled == 0
    world.pass_time(0.2 * DAY)
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: maintain(world.database, SETTINGS, never), range(4)))
    assert sum(run.endpoints_disabled for run in runs) == 1
    row = world.one(
        "select disabled_at, disabled_reason from leasehook.endpoints where id = %s", failing
    )
    assert row["disabled_reason"] == "failing"
    assert abs((row["disabled_at"] - world.now()).total_seconds()) < 10


def test_deliveries_parked_for_too_long_become_dead_and_stay_replayable(world: World) -> None:
    from shared.deliveries import replay

    world.endpoint()
    world.publish_many(3)
    world.sql("update leasehook.endpoints set disabled_at = now(), disabled_reason = 'operator'")
    world.pass_time(31 * DAY)
    assert maintain(world.database, SETTINGS, never).deliveries_buried == 3
    row = world.sql("select id, status, dead_reason from leasehook.deliveries")[0]
    assert (row["status"], row["dead_reason"]) == ("dead", "parked_too_long")
    replay(world.database, world.tenant_id, row["id"])
    assert world.row(row["id"])["status"] == "pending"


def test_what_waits_for_a_deleted_endpoint_is_cancelled(world: World) -> None:
    """WH-016 (b)."""
    world.endpoint()
    world.publish_many(3)
    [claimed] = world.claim(limit=1).claimed
    world.sql("update leasehook.endpoints set deleted_at = now()")
    assert maintain(world.database, SETTINGS, never).deliveries_cancelled == 2
    assert world.row(claimed.delivery_id)["status"] == "in_progress", (
        "a live lease is left to its drain"
    )
    world.pass_time(61)
    assert maintain(world.database, SETTINGS, never).deliveries_cancelled == 1
    assert world.statuses() == {"cancelled": 3}


def test_health_tells_due_waiting_lapsed_and_parked_apart(world: World) -> None:
    world.endpoint(event_types=["a"])
    parked = world.endpoint(event_types=["b"])["id"]
    for _ in range(4):
        world.publish(event_type="a")
    world.publish(event_type="b")
    world.sql(
        "update leasehook.endpoints set disabled_at = now(), disabled_reason = 'operator' where id = %s",
        parked,
    )
    world.pass_time(100, {"deliveries": ["claimable_at"]})
    lapsing, waiting = world.claim(limit=2).claimed
    world.settle(world.report(waiting, "retry"))
    world.sql(
        "update leasehook.deliveries set claimable_at = now() where id = %s", lapsing.delivery_id
    )

    health = queue_health(world.database)

    assert health.due_count == 2
    assert 100 <= health.due_age_seconds < 110
    assert (health.in_progress_count, health.lapsed_count) == (1, 1)
    assert (health.waiting_count, health.parked_count, health.open_circuit_count) == (1, 1, 0)


def test_a_bulk_replay_that_is_over_is_forgotten_after_the_retention(world: World) -> None:
    from shared import replay

    job = replay.start(world.database, world.tenant_id, replay.ReplayFilter())
    assert job["state"] == "finished"
    world.sql("update leasehook.replay_jobs set finished_at = now() - interval '89 days'")
    assert maintain(world.database, SETTINGS, never).replays_pruned == 0
    world.sql("update leasehook.replay_jobs set finished_at = now() - interval '91 days'")
    assert maintain(world.database, SETTINGS, never).replays_pruned == 1
    assert world.sql("select 1 from leasehook.replay_jobs") == []
