"""Drains that are killed, cut off, out of time, repeated or poisoned: everything arrives, copies share their id."""

from collections import Counter
from collections.abc import Mapping
from uuid import UUID

import pytest

from tests.crash.lambdas import drain
from tests.support.proxy import Moment, Proxy
from tests.support.receiver import Receiver, answer
from tests.support.workers import EXIT_OF_THE_POISONED, Worker
from tests.support.world import World

pytestmark = pytest.mark.crash

LEASE_SECONDS = 61
"""After this much time every lease of a dead worker has lapsed."""


def copies(receiver: Receiver) -> Counter[str]:
    """How often each event has arrived."""
    return Counter(request.webhook_id for request in receiver.received)


def event_ids(world: World) -> set[str]:
    return {str(row["id"]) for row in world.sql("select id from leasehook.events")}


def attempts(world: World) -> Counter[int]:
    """How many deliveries there are per number of attempts."""
    rows = world.sql("select attempt_count from leasehook.deliveries")
    return Counter(row["attempt_count"] for row in rows)


def test_a_drain_killed_while_it_posts_loses_nothing(
    world: World, database_url: str, receiver: Receiver
) -> None:
    gate = receiver.gate()
    receiver.default = gate.then(answer())
    endpoint = world.endpoint(receiver.url())
    world.publish_many(20)
    environment = world.environment(database_url, LEASEHOOK_DRAIN_CONCURRENCY="8")

    with Worker("drain", environment) as worker:
        receiver.wait_for(8)
        assert world.statuses() == {"in_progress": 8, "pending": 12}
        in_flight = set(copies(receiver))
        worker.kill()
    gate.open()

    assert attempts(world) == {1: 8, 0: 12}, "an attempt is charged for what was claimed only"
    assert drain(environment).succeeded == 12
    assert world.statuses() == {"in_progress": 8, "succeeded": 12}
    world.pass_time(LEASE_SECONDS)
    assert drain(environment).succeeded == 8

    assert world.statuses() == {"succeeded": 20}
    assert set(copies(receiver)) == event_ids(world)
    assert {webhook_id for webhook_id, count in copies(receiver).items() if count > 1} == in_flight
    for request in receiver.received:
        request.verify(endpoint["secret"])


@pytest.mark.parametrize("moment", Moment)
def test_a_drain_killed_around_its_settle_repeats_what_was_not_written(
    world: World, proxy: Proxy, database_url: str, receiver: Receiver, moment: Moment
) -> None:
    world.endpoint(receiver.url())
    world.publish_many(5)

    with (
        proxy.hold("settle", moment) as settle,
        Worker("drain", world.environment(proxy.url)) as worker,
    ):
        settle.wait()
        receiver.wait_for(5)
        written = world.statuses().get("succeeded", 0)
        assert (written > 0) == (moment is Moment.AFTER)
        assert world.statuses().get("in_progress", 0) == 5 - written
        worker.kill()
    world.pass_time(LEASE_SECONDS)
    assert drain(world.environment(database_url)).succeeded == 5 - written

    assert world.statuses() == {"succeeded": 5}
    assert set(copies(receiver)) == event_ids(world)
    assert copies(receiver).total() == 5 + 5 - written


def test_a_claim_that_is_cut_before_the_server_sees_it_takes_nothing(
    world: World, proxy: Proxy, database_url: str, receiver: Receiver
) -> None:
    world.endpoint(receiver.url())
    world.publish_many(5)

    with proxy.cut("claim", Moment.BEFORE) as claim:
        summary = drain(world.environment(proxy.url))

    assert claim.caught == 1
    assert summary.claimed == 0
    assert summary.stopped.startswith("the database did not answer")
    assert world.statuses() == {"pending": 5}
    assert attempts(world) == {0: 5}
    assert drain(world.environment(database_url)).succeeded == 5


def test_a_claim_whose_answer_is_lost_sends_nothing_until_its_lease_has_lapsed(
    world: World, proxy: Proxy, database_url: str, receiver: Receiver
) -> None:
    world.endpoint(receiver.url())
    world.publish_many(5)

    with proxy.cut("claim", Moment.AFTER) as claim:
        summary = drain(world.environment(proxy.url))

    assert claim.caught == 1
    assert summary.claimed == 0
    assert summary.stopped.startswith("the database did not answer")
    assert world.statuses() == {"in_progress": 5}
    assert drain(world.environment(database_url)).claimed == 0
    world.pass_time(LEASE_SECONDS)
    assert drain(world.environment(database_url)).succeeded == 5
    assert world.statuses() == {"succeeded": 5}
    assert copies(receiver) == dict.fromkeys(event_ids(world), 1)


@pytest.mark.parametrize("moment", Moment)
def test_a_settle_that_is_cut_is_repeated_over_a_new_connection(
    world: World, proxy: Proxy, receiver: Receiver, moment: Moment
) -> None:
    world.endpoint(receiver.url())
    world.publish_many(5)

    with proxy.cut("settle", moment) as settle:
        summary = drain(world.environment(proxy.url))

    assert settle.caught == 1
    assert summary.unsettled == 0
    assert world.statuses() == {"succeeded": 5}
    assert copies(receiver) == dict.fromkeys(event_ids(world), 1)
    recorded = world.sql("select delivery_id from leasehook.attempts where not late")
    assert len(recorded) == 5


def test_a_drain_whose_database_goes_away_before_it_settles_ends_well_and_its_rows_come_back(
    world: World, proxy: Proxy, database_url: str, receiver: Receiver
) -> None:
    gate = receiver.gate()
    receiver.default = gate.then(answer())
    world.endpoint(receiver.url())
    world.publish_many(5)

    with Worker("drain", world.environment(proxy.url)) as worker:
        receiver.wait_for(5)
        with proxy.unreachable():
            gate.open()
            summary = worker.answer()

    assert summary["unsettled"] == 5
    assert summary["stopped"].startswith("the database did not answer")
    assert world.statuses() == {"in_progress": 5}
    world.pass_time(LEASE_SECONDS)
    drain(world.environment(database_url))
    assert world.statuses() == {"succeeded": 5}
    assert copies(receiver) == dict.fromkeys(event_ids(world), 2)


def test_an_answer_that_comes_after_the_lease_decides_nothing(
    world: World, database_url: str, receiver: Receiver
) -> None:
    """A slow worker's failure arrives while another holds the row, whose success then counts."""
    endpoint = world.endpoint(receiver.url())
    published = world.publish()
    # With its only slot taken, the slow drain does not claim its own row again.
    environment = world.environment(database_url, LEASEHOOK_DRAIN_CONCURRENCY="1")
    late, timely = receiver.gate(), receiver.gate()
    receiver.default = late.then(answer(500))

    with Worker("drain", environment) as slow:
        receiver.wait_for(1)
        receiver.default = timely.then(answer())
        world.pass_time(LEASE_SECONDS)
        with Worker("drain", environment) as successor:
            receiver.wait_for(2)
            [held] = world.sql("select status, lease_token from leasehook.deliveries")
            late.open()
            assert slow.answer()["late"] == 1
            assert world.sql("select status, lease_token from leasehook.deliveries") == [held]
            timely.open()
            assert successor.answer()["succeeded"] == 1

    assert held["status"] == "in_progress"
    assert world.statuses() == {"succeeded": 1}
    assert world.circuit(endpoint["id"])["consecutive_failures"] == 0
    assert copies(receiver) == {str(published.event_id): 2}


def test_a_schedule_that_fires_three_times_posts_nothing_twice(
    world: World, proxy: Proxy, database_url: str, receiver: Receiver
) -> None:
    """WH-033: one tick delivered three times, to a drain that loses its database after its results are stored."""
    world.endpoint(receiver.url())
    world.publish_many(20)

    with proxy.cut("settle", Moment.AFTER, times=99) as settle:
        summary = drain(world.environment(proxy.url))
    assert settle.caught >= 3, "the drain has tried, and never got an answer"
    assert summary.unsettled == 20

    for _ in range(2):
        assert drain(world.environment(database_url)).claimed == 0
    assert world.statuses() == {"succeeded": 20}
    assert copies(receiver) == dict.fromkeys(event_ids(world), 1)


def test_three_drains_at_once_post_nothing_twice(
    world: World, database_url: str, receiver: Receiver
) -> None:
    """WH-033."""
    gate = receiver.gate()
    receiver.default = gate.then(answer())
    world.endpoint(receiver.url())
    world.publish_many(40)
    environment = world.environment(database_url, LEASEHOOK_DRAIN_CONCURRENCY="16")

    with (
        Worker("drain", environment) as first,
        Worker("drain", environment) as second,
        Worker("drain", environment) as third,
    ):
        receiver.wait_for(40)
        gate.open()
        delivered = [worker.answer()["succeeded"] for worker in (first, second, third)]

    assert sum(delivered) == 40
    assert max(delivered) < 40, "more than one has taken part"
    assert copies(receiver) == dict.fromkeys(event_ids(world), 1)


def test_an_invocation_with_too_little_time_for_an_attempt_starts_nothing(
    world: World, database_url: str, receiver: Receiver
) -> None:
    """WH-035."""
    world.endpoint(receiver.url())
    world.publish_many(50)

    with Worker("drain", world.environment(database_url), "8") as worker:
        summary = worker.answer()

    assert summary["stopped"] == "time"
    assert summary["claimed"] == 0
    assert receiver.received == []
    assert attempts(world) == {0: 50}
    assert world.statuses() == {"pending": 50}


def test_an_invocation_ends_in_time_with_every_row_settled_and_slow_endpoints_left_alone(
    world: World, database_url: str, receiver: Receiver
) -> None:
    """WH-035: five seconds left are enough for an attempt of one second, and not for one of ten."""
    receiver.default = receiver.gate().then(answer())
    world.endpoint(receiver.url("/held"), timeout_seconds=1)
    slow = world.endpoint(receiver.url("/slow"), timeout_seconds=10)
    world.publish_many(3)
    settings = {"LEASEHOOK_TIMEOUT_SECONDS": "1", "LEASEHOOK_SETTLE_MARGIN_SECONDS": "0.5"}

    with Worker("drain", world.environment(database_url, **settings), "5") as worker:
        summary = worker.answer()

    assert summary["left_seconds"] > 0
    assert summary["claimed"] == summary["retried"] == 3
    assert world.statuses() == {"failed": 3, "pending": 3}
    assert receiver.at("/slow") == []
    waiting = world.sql(
        "select attempt_count from leasehook.deliveries where endpoint_id = %s", slow["id"]
    )
    assert [row["attempt_count"] for row in waiting] == [0, 0, 0]


def test_an_invocation_killed_at_its_timeout_charges_no_attempt_to_what_it_never_sent(
    world: World, database_url: str, receiver: Receiver
) -> None:
    """WH-035."""
    gate = receiver.gate()
    receiver.default = gate.then(answer())
    world.endpoint(receiver.url(), timeout_seconds=2)
    world.publish_many(50)
    environment = world.environment(
        database_url, LEASEHOOK_TIMEOUT_SECONDS="2", LEASEHOOK_DRAIN_CONCURRENCY="10"
    )

    with Worker("drain", environment, "11") as worker:
        receiver.wait_for(10)
        assert world.statuses() == {"in_progress": 10, "pending": 40}
        worker.kill()
    gate.open()
    assert attempts(world) == {1: 10, 0: 40}
    world.pass_time(LEASE_SECONDS)
    drain(environment)

    assert world.statuses() == {"succeeded": 50}
    assert set(copies(receiver)) == event_ids(world)
    assert copies(receiver).total() <= 50 + 10


def test_a_row_that_kills_every_worker_ends_dead_and_the_rows_behind_it_are_delivered(
    world: World, database_url: str, receiver: Receiver
) -> None:
    """WH-092, with one request at a time."""
    world.endpoint(receiver.url(), retry_delays_seconds=[1, 1])
    poison = world.publish(b'{"poison": true}')
    world.publish_many(5)
    environment = world.environment(database_url, LEASEHOOK_DRAIN_CONCURRENCY="1")

    assert poisoned_drain(environment, poison.event_id) == EXIT_OF_THE_POISONED
    assert poisoned_drain(environment, poison.event_id) == 0
    assert world.statuses() == {"in_progress": 1, "succeeded": 5}
    for _ in range(2):
        world.pass_time(LEASE_SECONDS)
        assert poisoned_drain(environment, poison.event_id) == EXIT_OF_THE_POISONED
    world.pass_time(LEASE_SECONDS)
    assert poisoned_drain(environment, poison.event_id) == 0

    assert world.statuses() == {"dead": 1, "succeeded": 5}
    dead = world.one("select * from leasehook.deliveries where status = 'dead'")
    assert dead["event_id"] == poison.event_id
    assert dead["dead_reason"] == "worker_lost"
    assert copies(receiver) == dict.fromkeys(event_ids(world) - {str(poison.event_id)}, 1)


def test_a_row_that_kills_every_worker_takes_no_other_row_with_it(
    world: World, database_url: str, receiver: Receiver
) -> None:
    """WH-092, with all rows in flight at once."""
    world.endpoint(receiver.url(), retry_delays_seconds=[1, 1])
    poison = world.publish(b'{"poison": true}')
    world.publish_many(5)
    environment = world.environment(database_url)

    while world.statuses().keys() != {"succeeded", "dead"}:
        poisoned_drain(environment, poison.event_id)
        world.pass_time(LEASE_SECONDS)
        assert world.statuses() != {"dead": 6}

    assert world.statuses() == {"dead": 1, "succeeded": 5}
    assert str(poison.event_id) not in copies(receiver)


def poisoned_drain(environment: Mapping[str, str], poison: UUID) -> int:
    """The exit code of a drain that dies when it sends the event."""
    with Worker("poisoned_drain", environment, str(poison)) as worker:
        return worker.exit_code()
