"""Maintain: what is past its time goes, what must not be lost stays, and the queue's health is told."""

import json
from uuid import UUID

import pytest

from shared import deliveries
from tests.support.lambdas import Lambdas
from tests.support.receiver import Receiver, answer
from tests.support.world import World

DAY = 86400.0


def test_the_health_of_the_queue_is_counted_by_what_rows_wait_for(
    world: World, lambdas: Lambdas
) -> None:
    busy, parked = (world.endpoint(event_types=[name])["id"] for name in ("busy", "parked"))
    for _ in range(3):
        world.publish(event_type="busy")
    assert len(world.claim(limit=2).claimed) == 2
    world.pass_time(40)
    assert len(world.claim(limit=1).claimed) == 1
    world.pass_time(30)
    world.publish(event_type="busy")
    world.pass_time(7)
    world.publish(event_type="busy", deliver_at=world.now().replace(year=world.now().year + 1))
    world.publish(event_type="parked")
    world.sql(
        "update leasehook.endpoints set disabled_at = now(), disabled_reason = 'operator' where id = %s",
        parked,
    )
    world.sql(
        "update leasehook.circuits set state = 'open', claimable_at = now() where endpoint_id = %s",
        busy,
    )

    health = lambdas.maintain({"only": "health"})["health"]

    assert 7 <= health.pop("due_age_seconds") < 60
    assert health == {
        "due_count": 1,
        "in_progress_count": 3,
        "lapsed_count": 2,
        "waiting_count": 1,
        "parked_count": 1,
        "open_circuit_count": 1,
    }


def test_nobody_starts_maintenance_over_http(lambdas: Lambdas) -> None:
    assert lambdas.maintain({"requestContext": {"http": {}}}).keys() == {"refused"}


def test_an_empty_queue_has_no_age(lambdas: Lambdas) -> None:
    health = lambdas.maintain()["health"]
    assert set(health.values()) == {0}


def test_a_health_check_changes_nothing(world: World, lambdas: Lambdas) -> None:
    world.endpoint()
    world.publish()
    world.sql("update leasehook.endpoints set deleted_at = now()")
    assert set(lambdas.maintain({"only": "health"})) == {"health"}
    assert world.statuses() == {"pending": 1}


def test_the_metrics_have_units_and_one_dimension(
    lambdas: Lambdas, capfd: pytest.CaptureFixture[str]
) -> None:
    lambdas.deploy(POWERTOOLS_METRICS_NAMESPACE="Leasehook")
    lambdas.maintain({"only": "health"})

    [metrics] = [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    [declared] = metrics["_aws"]["CloudWatchMetrics"]
    assert declared["Namespace"] == "Leasehook"
    assert declared["Dimensions"] == [["service"]]
    units = {each["Name"]: each["Unit"] for each in declared["Metrics"]}
    assert (units["DueAgeSeconds"], units["DueCount"]) == ("Seconds", "Count")
    assert metrics["DueCount"] == [0.0]


def test_finished_events_are_pruned_and_the_unfinished_and_the_dead_are_kept(
    world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-059."""
    receiver.answers["/gone"] = answer(410)
    world.endpoint(receiver.url("/good"), event_types=["good"])
    world.endpoint(receiver.url("/gone"), event_types=["dead"])
    ids = {name: world.publish(event_type=name).event_id for name in ("good", "dead", "nobody")}
    lambdas.drain()
    ids["waits"] = world.publish(event_type="good").event_id

    def kept() -> set[str]:
        rows = world.sql("select id from leasehook.events")
        return {name for name, event_id in ids.items() if {"id": event_id} in rows}

    world.pass_time(29 * DAY)
    lambdas.maintain()
    assert kept() == {"good", "dead", "nobody", "waits"}

    world.pass_time(2 * DAY)
    upkeep = lambdas.maintain()["upkeep"]
    assert kept() == {"dead", "waits"}
    assert (upkeep["events_pruned"], upkeep["deliveries_pruned"]) == (2, 1)
    attempts = world.sql("select status_code from leasehook.attempts")
    assert attempts == [{"status_code": 410}]

    world.pass_time(60 * DAY)
    lambdas.maintain()
    assert kept() == {"waits"}


def test_a_run_without_time_stops_and_the_next_one_finishes(world: World, lambdas: Lambdas) -> None:
    world.publish_many(1200)
    world.pass_time(31 * DAY)

    cut_short = lambdas.maintain(lasting_seconds=5.0)["upkeep"]
    assert (cut_short["complete"], cut_short["events_pruned"]) == (False, 0)

    upkeep = lambdas.maintain()["upkeep"]
    assert (upkeep["complete"], upkeep["events_pruned"]) == (True, 1200)
    assert world.sql("select 1 from leasehook.events") == []


def test_what_waits_too_long_for_a_disabled_endpoint_is_dead_and_can_be_replayed(
    world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    world.endpoint(receiver.url())
    world.publish()
    world.sql("update leasehook.endpoints set disabled_at = now(), disabled_reason = 'operator'")
    world.pass_time(29 * DAY)
    assert lambdas.maintain()["upkeep"]["deliveries_buried"] == 0
    world.pass_time(2 * DAY)
    assert lambdas.maintain()["upkeep"]["deliveries_buried"] == 1
    row = world.one("select * from leasehook.deliveries")
    assert (row["status"], row["dead_reason"]) == ("dead", "parked_too_long")

    world.sql("update leasehook.endpoints set disabled_at = null, disabled_reason = null")
    deliveries.replay(world.database, world.tenant_id, row["id"])
    assert lambdas.drain()["succeeded"] == 1


def test_an_endpoint_that_failed_for_days_is_disabled_once(
    world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-115: with several runs at the same moment, with its time and reason."""
    endpoint_id = _fail_once(world, lambdas, receiver)
    world.pass_time(4.9 * DAY)
    assert lambdas.maintain()["upkeep"]["endpoints_disabled"] == 0
    world.pass_time(0.2 * DAY)

    runs = [lambdas.cold("maintain").start() for _ in range(4)]

    assert sum(run.result(30)["upkeep"]["endpoints_disabled"] for run in runs) == 1
    row = world.one("select * from leasehook.endpoints where id = %s", endpoint_id)
    assert row["disabled_reason"] == "failing"
    assert (world.now() - row["disabled_at"]).total_seconds() < 60
    assert lambdas.maintain()["upkeep"]["endpoints_disabled"] == 0


def test_one_success_starts_the_days_anew(
    world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    _fail_once(world, lambdas, receiver)
    world.pass_time(4 * DAY)
    receiver.default = answer(200)
    assert lambdas.drain()["succeeded"] == 1
    world.pass_time(2 * DAY)
    assert lambdas.maintain()["upkeep"]["endpoints_disabled"] == 0


def _fail_once(world: World, lambdas: Lambdas, receiver: Receiver) -> UUID:
    receiver.default = answer(500)
    endpoint_id: UUID = world.endpoint(receiver.url())["id"]
    world.publish()
    assert lambdas.drain()["retried"] == 1
    return endpoint_id
