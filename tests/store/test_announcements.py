"""Operational events: what Leasehook itself tells a tenant, once each, and never about its own telling."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from shared import replay
from shared.config import Settings
from shared.domain.circuit import CircuitPolicy
from shared.maintenance import maintain
from shared.store.tenancy import ensure_tenant
from tests.support.world import World

DAY = 86400.0
TYPES = ["delivery.dead", "endpoint.circuit_opened", "endpoint.disabled", "replay.finished"]


def announced(world: World, tenant_id: UUID | None = None) -> list[dict[str, Any]]:
    """Type and payload of the operational events, oldest first."""
    rows = world.sql(
        """
        select type, content_type, payload
        from leasehook.events
        where operational and tenant_id = %s
        order by id
        """,
        tenant_id or world.tenant_id,
    )
    assert {row["content_type"] for row in rows} <= {"application/json"}
    return [{"type": row["type"], **json.loads(row["payload"])} for row in rows]


def reached(world: World) -> set[UUID]:
    """The endpoints that operational events are on their way to."""
    rows = world.sql(
        """
        select d.endpoint_id
        from leasehook.deliveries as d
        inner join leasehook.events as ev on d.event_id = ev.id
        where ev.operational
        """
    )
    return {row["endpoint_id"] for row in rows}


def fail(world: World, endpoint_id: UUID, verb: str = "bury", **fields: Any) -> None:
    """One attempt at an endpoint, with that end."""
    world.publish()
    claimed = world.claim().claimed
    world.settle(
        *[
            world.report(each, verb, **fields)
            if each.endpoint_id == endpoint_id
            else world.report(each)
            for each in claimed
        ],
        policy=CircuitPolicy(failures_to_open=1) if verb == "retry" else None,
    )


def never() -> bool:
    """There is always time."""
    return False


def run_maintenance(world: World) -> None:
    maintain(world.database, Settings(), never)


def test_a_dead_delivery_is_told_with_what_happened(world: World) -> None:
    endpoint_id = world.endpoint(event_types=["order.*"])["id"]
    world.endpoint(event_types=["delivery.dead"])
    fail(world, endpoint_id, status_code=500, error_kind="status")
    delivery = world.one("select * from leasehook.deliveries where endpoint_id = %s", endpoint_id)
    [event] = announced(world)
    assert event == {
        "type": "delivery.dead",
        "delivery_id": str(delivery["id"]),
        "event_id": str(delivery["event_id"]),
        "event_type": "order.paid",
        "endpoint_id": str(endpoint_id),
        "attempt_count": 1,
        "reason": "attempts_exhausted",
        "status_code": 500,
        "error_kind": "status",
        "at": event["at"],
    }


def test_a_delivery_that_was_parked_too_long_is_told_in_the_same_form(world: World) -> None:
    endpoint_id = world.endpoint(event_types=["order.*"])["id"]
    world.endpoint(event_types=["delivery.*"])
    fail(world, endpoint_id)
    world.publish()
    world.sql(
        "update leasehook.endpoints set disabled_at = now(), disabled_reason = 'operator' where id = %s",
        endpoint_id,
    )
    world.pass_time(31 * DAY)
    run_maintenance(world)
    settled, parked = announced(world)
    assert parked.keys() == settled.keys()
    assert (parked["reason"], parked["attempt_count"]) == ("parked_too_long", 0)


def test_an_opened_circuit_is_told_with_when_it_is_tried_again(world: World) -> None:
    endpoint_id = world.endpoint(event_types=["order.*"])["id"]
    world.endpoint(event_types=["endpoint.circuit_opened"])
    fail(world, endpoint_id, "retry")
    [event] = announced(world)
    assert event == {
        "type": "endpoint.circuit_opened",
        "endpoint_id": str(endpoint_id),
        "consecutive_failures": 1,
        "until": event["until"],
        "at": event["at"],
    }
    assert event["until"] > event["at"]


def test_an_endpoint_that_is_gone_is_told_as_disabled(world: World) -> None:
    endpoint_id = world.endpoint(event_types=["order.*"])["id"]
    world.endpoint(event_types=["endpoint.disabled"])
    fail(world, endpoint_id, dead_reason="gone", gone=True)
    [event] = announced(world)
    assert event == {
        "type": "endpoint.disabled",
        "endpoint_id": str(endpoint_id),
        "reason": "gone",
        "at": event["at"],
    }


def failing_for_days(world: World) -> UUID:
    endpoint_id: UUID = world.endpoint(event_types=["order.*"])["id"]
    world.publish()
    [claimed] = world.claim().claimed
    world.settle(world.report(claimed, "retry"))
    world.pass_time(6 * DAY)
    return endpoint_id


def test_an_endpoint_that_failed_for_days_is_told_as_disabled_once(world: World) -> None:
    """WH-115: four runs at the same moment make one transition and one event."""
    endpoint_id = failing_for_days(world)
    world.endpoint(event_types=["endpoint.*"])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: run_maintenance(world), range(4)))
    [event] = announced(world)
    assert event == {
        "type": "endpoint.disabled",
        "endpoint_id": str(endpoint_id),
        "reason": "failing",
        "at": event["at"],
    }


def test_failures_reported_by_many_drains_open_the_circuit_and_tell_of_it_once(
    world: World,
) -> None:
    """WH-115: no failure is lost, and there is one transition."""
    endpoint_id = world.endpoint(event_types=["order.*"])["id"]
    world.endpoint(event_types=["endpoint.*"])
    world.publish_many(40)
    claimed = world.claim().claimed
    reports = [world.report(each, "retry") for each in claimed]
    policy = CircuitPolicy(failures_to_open=20)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda report: world.settle(report, policy=policy), reports))
    circuit = world.circuit(endpoint_id)
    assert circuit["state"] == "open"
    assert circuit["consecutive_failures"] >= 20
    [event] = announced(world)
    assert event["consecutive_failures"] == 20


def test_a_finished_replay_is_told_with_its_counts(world: World) -> None:
    fail(world, world.endpoint(event_types=["order.*"])["id"])
    world.endpoint(event_types=["replay.finished"])
    job = replay.start(world.database, world.tenant_id, replay.ReplayFilter())
    [event] = announced(world)
    assert event == {
        "type": "replay.finished",
        "replay_id": str(job["id"]),
        "looked_at_count": 1,
        "replayed_count": 1,
        "at": event["at"],
    }


def test_a_replay_that_many_step_at_once_is_told_of_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "_LOOK", 1)
    endpoint_id = world.endpoint(event_types=["order.*"])["id"]
    for _ in range(10):
        fail(world, endpoint_id)
    world.endpoint(event_types=["replay.*"])
    replay.create(world.database, world.tenant_id, replay.ReplayFilter())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: replay.work(world.database, never), range(4)))
    replay.work(world.database, never)
    [event] = announced(world)
    assert event["replayed_count"] == 10


def test_a_cancelled_replay_is_not_told_of(world: World) -> None:
    world.endpoint(event_types=["replay.*"])
    job = replay.create(world.database, world.tenant_id, replay.ReplayFilter())
    replay.cancel(world.database, world.tenant_id, job["id"])
    replay.work(world.database, never)
    assert announced(world) == []


def _dead(world: World, endpoint_id: UUID) -> None:
    fail(world, endpoint_id)


def _opened(world: World, endpoint_id: UUID) -> None:
    fail(world, endpoint_id, "retry")


def _gone(world: World, endpoint_id: UUID) -> None:
    fail(world, endpoint_id, "succeed", gone=True)


def _failing(world: World, endpoint_id: UUID) -> None:
    world.sql(
        "update leasehook.circuits set failing_since = now() - interval '6 days' where endpoint_id = %s",
        endpoint_id,
    )
    run_maintenance(world)


def _replay_finished(world: World, _endpoint_id: UUID) -> None:
    replay.start(world.database, world.tenant_id, replay.ReplayFilter())


@pytest.mark.parametrize(
    ("happens", "event_type"),
    [
        (_dead, "delivery.dead"),
        (_opened, "endpoint.circuit_opened"),
        (_gone, "endpoint.disabled"),
        (_failing, "endpoint.disabled"),
        (_replay_finished, "replay.finished"),
    ],
)
def test_only_a_tenants_own_endpoints_that_name_the_type_or_its_prefix_are_told(
    world: World, happens: Callable[[World, UUID], None], event_type: str
) -> None:
    prefix = event_type.partition(".")[0] + ".*"
    other_type = next(each for each in TYPES if each.partition(".")[0] + ".*" != prefix)
    endpoint_id = world.endpoint(event_types=["order.*"])["id"]
    told = {world.endpoint(event_types=[each])["id"] for each in (event_type, prefix)}
    world.endpoint(event_types=["*"])
    world.endpoint(event_types=[other_type])
    world.endpoint(event_types=[event_type], consumer="acme")
    world.endpoint(event_types=[event_type], tenant_id=ensure_tenant(world.database, "other"))
    happens(world, endpoint_id)
    assert [event["type"] for event in announced(world)] == [event_type]
    assert reached(world) == told


def test_nothing_is_stored_when_nobody_asks_for_it(world: World) -> None:
    endpoint_id = world.endpoint()["id"]
    _dead(world, endpoint_id)
    _failing(world, endpoint_id)
    _replay_finished(world, endpoint_id)
    assert announced(world) == []


@pytest.mark.parametrize("event_type", TYPES)
def test_an_operational_event_that_dies_announces_nothing(world: World, event_type: str) -> None:
    """There is no loop: not for one that dies at its receiver, nor for one that is parked for too long."""
    for _ in range(2):
        world.endpoint(event_types=["delivery.dead", event_type])
    world.sql("select leasehook.announce(%s, %s, '{}')", world.tenant_id, event_type)
    first, _second = world.claim().claimed
    world.settle(world.report(first, "bury"), world.report(_second, "retry"))
    world.sql("update leasehook.endpoints set disabled_at = now(), disabled_reason = 'operator'")
    world.pass_time(31 * DAY)
    run_maintenance(world)
    assert world.statuses() == {"dead": 2}
    assert len(announced(world)) == 1
