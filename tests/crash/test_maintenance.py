"""Maintenance that is killed between and inside its steps: nothing is half pruned, the next run goes on."""

from uuid import uuid4

import pytest

from tests.support.proxy import Moment, Proxy
from tests.support.workers import Worker
from tests.support.world import World

pytestmark = pytest.mark.crash

OLD_EVENTS = 700
"""More than one step prunes."""
DAY_SECONDS = 86400


def make_history(world: World) -> None:
    """Old events that are finished, one old event with a delivery that is still open, and ten young ones."""
    world.endpoint()
    world.endpoint()
    world.sql(
        """
        select leasehook.publish(%s, 'order.paid', '{}'::json, idempotency_key => 'old-' || n)
        from generate_series(1, %s) as n
        """,
        world.tenant_id,
        OLD_EVENTS,
    )
    token = uuid4()
    claimed = world.claim(2 * OLD_EVENTS, lease_token=token).claimed
    verbs = ["retry", *["succeed"] * (2 * OLD_EVENTS - 1)]
    world.settle(
        *[
            world.report(each, verb, lease_token=token)
            for each, verb in zip(claimed, verbs, strict=True)
        ]
    )
    world.pass_time(40 * DAY_SECONDS)
    world.publish_many(10)


def assert_nothing_is_half_pruned(world: World) -> None:
    partly_gone = world.sql(
        """
        select e.id from leasehook.events as e
        where (select count(*) from leasehook.deliveries as d where d.event_id = e.id) <> 2
        """
    )
    assert partly_gone == []
    orphaned = world.sql(
        """
        select 1 from leasehook.attempts as a
        where not exists (select 1 from leasehook.deliveries as d where d.id = a.delivery_id)
        """
    )
    assert orphaned == []
    without_history = world.sql(
        """
        select 1 from leasehook.deliveries as d
        where d.attempt_count > 0
            and not exists (select 1 from leasehook.attempts as a where a.delivery_id = d.id)
        """
    )
    assert without_history == []
    assert world.statuses()["failed"] == 1
    assert world.statuses()["pending"] == 20


def event_count(world: World) -> int:
    count: int = world.one("select count(*) from leasehook.events")["count"]
    return count


@pytest.mark.parametrize(
    ("statement", "moment", "left_count"),
    [
        pytest.param("disable_failing_endpoints", Moment.AFTER, 710, id="before-any-pruning"),
        pytest.param("prune_events", Moment.BEFORE, 710, id="deliveries-deleted-events-not-yet"),
        pytest.param("COMMIT", Moment.BEFORE, 710, id="before-the-commit-of-a-step"),
        pytest.param("COMMIT", Moment.AFTER, 710 - 500 + 1, id="between-two-steps"),
        pytest.param("prune_idempotency_keys", Moment.BEFORE, 11, id="events-pruned-keys-not-yet"),
    ],
)
def test_a_run_that_is_killed_leaves_whole_events_and_the_next_run_finishes(
    world: World,
    proxy: Proxy,
    database_url: str,
    *,
    statement: str,
    moment: Moment,
    left_count: int,
) -> None:
    make_history(world)
    with (
        proxy.hold(statement, moment) as step,
        Worker("maintain", world.environment(proxy.url), "upkeep") as worker,
    ):
        step.wait()
        worker.kill()

    assert event_count(world) == left_count
    assert_nothing_is_half_pruned(world)

    with Worker("maintain", world.environment(database_url), "upkeep") as worker:
        assert worker.answer()["upkeep"]["complete"]

    assert_nothing_is_half_pruned(world)
    assert world.sql("select key from leasehook.idempotency_keys") == []
    assert event_count(world) == 11
    assert world.statuses() == {"succeeded": 1, "failed": 1, "pending": 20}
