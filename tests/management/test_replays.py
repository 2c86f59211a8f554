"""Bulk replays over the API: sized up, made, followed, paused, cancelled."""

from collections.abc import Iterable
from contextlib import closing
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared import replay
from tests.management.conftest import Api
from tests.support.lambdas import Lambdas
from tests.support.world import World

FUTURE = "9999-12-31T23:59:59-14:00"
LONG_AGO = "0001-01-01T00:00:00+14:00"


def bury(world: World, count: int = 1, **event: Any) -> list[UUID]:
    """Deliveries that have died, one or more of each of `count` events; their ids in order."""
    for _ in range(count):
        world.publish(**event)
    return settle_all(world, "bury", error_kind="timeout")


def settle_all(world: World, verb: str, **fields: Any) -> list[UUID]:
    """Settle everything that is due with one result."""
    claimed = world.claim(limit=1000).claimed
    world.settle(*[world.report(each, verb, **fields) for each in claimed])
    return sorted(each.delivery_id for each in claimed)


def replayed(world: World) -> list[UUID]:
    """What waits for its first attempt since it was replayed."""
    rows = world.sql(
        "select id from leasehook.deliveries where status = 'pending' and attempt_base > 0 order by id"
    )
    return [row["id"] for row in rows]


def text(instant: datetime) -> str:
    return instant.isoformat()


def start(api: Api, **conditions: Any) -> dict[str, Any]:
    answer = api.post("/v1/replays", {"filter": conditions})
    assert answer.status_code == 202, answer.text
    document: dict[str, Any] = answer.json()
    return document


def matched(api: Api, **conditions: Any) -> int:
    answer = api.post("/v1/replays", {"filter": conditions, "dry_run": True})
    assert answer.status_code == 200, answer.text
    assert answer.json()["matched_exactly"]
    count: int = answer.json()["matched_count"]
    return count


def waiting(world: World, api: Api) -> str:
    """The path of a job that is running and has not begun."""
    job = replay.create(world.database, world.tenant_id, replay.ReplayFilter())
    path = f"/v1/replays/{job['id']}"
    assert api.get(path).json()["state"] == "running"
    return path


def test_a_small_replay_is_finished_at_once(world: World, api: Api) -> None:
    """WH-104."""
    world.endpoint()
    dead = bury(world, 3)
    answer = api.post("/v1/replays", {})
    job = answer.json()
    assert answer.status_code == 202
    assert (job["state"], job["matched_count"], job["matched_exactly"]) == ("finished", 3, True)
    assert (job["looked_at_count"], job["replayed_count"]) == (3, 3)
    assert job["finished_at"] is not None
    assert job["filter"]["statuses"] == ["dead"]
    assert api.get(f"/v1/replays/{job['id']}").json() == job
    assert replayed(world) == dead


def test_a_dry_run_counts_and_replays_nothing(world: World, api: Api) -> None:
    world.endpoint()
    bury(world, 3)
    answer = api.post("/v1/replays", {"dry_run": True})
    assert answer.status_code == 200
    assert answer.json() == {"matched_count": 3, "matched_exactly": True}
    assert replayed(world) == []
    assert api.get("/v1/replays").json()["data"] == []


def test_a_count_of_very_many_says_at_least(
    world: World, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "COUNTED", 4)
    monkeypatch.setattr(replay, "_COUNTING_LOOK", 2)
    world.endpoint()
    bury(world, 3)
    assert matched(api) == 3
    bury(world, 2)
    answer = api.post("/v1/replays", {"dry_run": True})
    assert answer.json() == {"matched_count": 4, "matched_exactly": False}


def test_a_filter_picks_by_status_and_error(world: World, api: Api) -> None:
    world.endpoint()
    bury(world, 2)
    world.publish_many(3)
    settle_all(world, "succeed")
    world.publish_many(1)
    settle_all(world, "retry", delay_seconds=9000.0)
    world.publish_many(1)
    world.sql(
        """
        update leasehook.deliveries set status = 'cancelled', claimable_at = null, finished_at = now()
        where status = 'pending'
        """
    )
    counts = [
        matched(api, statuses=[each]) for each in ("dead", "succeeded", "failed", "cancelled")
    ]
    assert counts == [2, 3, 1, 1]
    assert matched(api, statuses=["dead", "succeeded", "dead"]) == 5
    assert matched(api, error_kind="timeout") == 2
    assert matched(api, error_kind="tls") == 0


def test_a_filter_picks_by_endpoint_consumer_and_event_type(world: World, api: Api) -> None:
    one, two = world.endpoint()["id"], world.endpoint()["id"]
    theirs = world.endpoint(consumer="acme")["id"]
    bury(world, event_type="order.paid")
    bury(world, event_type="order.line.added")
    bury(world, event_type="orders", consumer="acme")
    assert matched(api) == 5
    assert [matched(api, endpoint_id=str(each)) for each in (one, two, theirs)] == [2, 2, 1]
    assert [matched(api, consumer=each) for each in ("acme", "other")] == [1, 0]
    types = ("order.paid", "order.*", "order.line.*", "orders", "order", "*")
    assert [matched(api, event_type=each) for each in types] == [2, 4, 2, 1, 0, 5]
    assert (
        matched(api, statuses=["dead", "failed"], endpoint_id=str(one), event_type="order.*") == 2
    )


def test_a_filter_picks_by_the_instant_of_creation(world: World, api: Api) -> None:
    world.endpoint()
    bury(world)
    middle = world.now()
    bury(world, 2)
    assert matched(api, created_before=text(middle)) == 1
    assert matched(api, created_after=text(middle)) == 2
    assert matched(api, created_after=text(middle), created_before=text(middle)) == 0
    assert matched(api, created_after=LONG_AGO, created_before=FUTURE) == 3
    assert matched(api, created_before=LONG_AGO) == matched(api, created_after=FUTURE) == 0


def test_a_replay_leaves_alone_what_is_on_its_way(world: World, api: Api) -> None:
    """WH-104: a row in flight is never reset."""
    world.endpoint()
    [dead] = bury(world)
    world.publish()
    [in_flight] = world.claim().claimed
    pending = world.publish().event_id
    before = world.row(in_flight.delivery_id)
    start(api, statuses=["dead", "cancelled", "succeeded", "failed"])
    assert replayed(world) == [dead]
    assert world.row(in_flight.delivery_id) == before
    assert world.one(
        "select attempt_base from leasehook.deliveries where event_id = %s", pending
    ) == {"attempt_base": 0}


def test_a_replay_that_dies_again_is_dead_with_its_new_reason_and_its_whole_history(
    world: World, api: Api
) -> None:
    """WH-104."""
    world.endpoint()
    [dead] = bury(world)
    start(api)
    [claimed] = world.claim().claimed
    assert (claimed.attempt_count, claimed.attempt_base) == (2, 1)
    world.settle(world.report(claimed, "bury", dead_reason="target_refused"))
    row = world.row(dead)
    assert (row["status"], row["dead_reason"]) == ("dead", "target_refused")
    attempts = world.sql("select number from leasehook.attempts order by number")
    assert [attempt["number"] for attempt in attempts] == [1, 2]
    assert start(api)["replayed_count"] == 1, "two deliberate replays are two"


def test_deliveries_of_a_deleted_endpoint_stay_dead(world: World, api: Api) -> None:
    endpoint_id = world.endpoint()["id"]
    bury(world)
    world.sql("update leasehook.endpoints set deleted_at = now()")
    assert start(api)["matched_count"] == 0
    assert replayed(world) == []
    answer = api.post("/v1/replays", {"filter": {"endpoint_id": str(endpoint_id)}})
    assert answer.status_code == 404


def test_an_endpoint_recovers_what_died_since_an_instant(world: World, api: Api) -> None:
    endpoint_id, _other = world.endpoint()["id"], world.endpoint()["id"]
    bury(world)
    since = world.now()
    bury(world, 2)
    answer = api.post(f"/v1/endpoints/{endpoint_id}/recover", {"since": text(since)})
    job = answer.json()
    assert answer.status_code == 202
    assert (job["state"], job["matched_count"], job["replayed_count"]) == ("finished", 2, 2)
    assert job["filter"]["endpoint_id"] == str(endpoint_id)
    rows = world.sql("select endpoint_id from leasehook.deliveries where status = 'pending'")
    assert {row["endpoint_id"] for row in rows} == {endpoint_id}


def test_a_paused_replay_goes_on_from_where_it_was(world: World, api: Api) -> None:
    world.endpoint()
    bury(world, 2)
    path = waiting(world, api)
    paused = api.post(f"{path}/pause")
    assert (paused.status_code, paused.json()["state"]) == (200, "paused")
    assert replay.work(world.database, lambda: False).steps == 0
    assert replayed(world) == []
    assert api.post(f"{path}/resume").json()["state"] == "running"
    replay.work(world.database, lambda: False)
    assert api.get(path).json()["state"] == "finished"
    assert len(replayed(world)) == 2


def test_a_cancelled_replay_stays_cancelled(world: World, api: Api) -> None:
    world.endpoint()
    bury(world)
    path = waiting(world, api)
    cancelled = api.post(f"{path}/cancel").json()
    assert cancelled["state"] == "cancelled"
    assert cancelled["finished_at"] is not None
    assert api.post(f"{path}/cancel").json() == cancelled
    for action in ("pause", "resume"):
        answer = api.post(f"{path}/{action}")
        assert (answer.status_code, answer.json()["type"]) == (
            409,
            "urn:leasehook:problem:conflict",
        )
    assert replay.work(world.database, lambda: False).steps == 0
    assert replayed(world) == []


def test_saying_it_twice_changes_nothing(world: World, api: Api) -> None:
    path = waiting(world, api)
    running = api.get(path).json()
    assert api.post(f"{path}/resume").json() == running
    paused = api.post(f"{path}/pause").json()
    assert api.post(f"{path}/pause").json() == paused


def test_what_has_finished_can_be_neither_paused_nor_cancelled(api: Api) -> None:
    path = f"/v1/replays/{start(api)['id']}"
    for action in ("pause", "resume", "cancel"):
        assert api.post(f"{path}/{action}").status_code == 409


def test_replays_are_listed_newest_first_in_pages(api: Api) -> None:
    ids = [start(api)["id"] for _ in range(5)]
    pages = [[job["id"] for job in page] for page in api.pages("/v1/replays", limit=2)]
    newest_first = ids[::-1]
    assert pages == [newest_first[:2], newest_first[2:4], newest_first[4:]]


def test_a_tenant_has_so_many_unfinished_replays_at_most(
    world: World, api: Api, other: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MAX_UNFINISHED_JOBS", 2)
    path = waiting(world, api)
    waiting(world, api)
    answer = api.post("/v1/replays", {})
    assert answer.status_code == 409
    assert "wait for one to finish, or cancel one" in answer.json()["detail"]
    assert other.post("/v1/replays", {}).status_code == 202
    api.post(f"{path}/cancel")
    assert api.post("/v1/replays", {}).status_code == 202


def test_another_tenants_deliveries_endpoints_and_replays_are_out_of_reach(
    world: World, api: Api, other: Api
) -> None:
    """WH-120: 404 as for unknown ids, and no side effect."""
    endpoint_id = world.endpoint()["id"]
    bury(world)
    path = waiting(world, api)
    before = api.get(path).json()
    assert start(other)["matched_count"] == 0
    for stranger in (endpoint_id, uuid4()):
        bodies: Iterable[tuple[str, object]] = (
            ("/v1/replays", {"filter": {"endpoint_id": str(stranger)}}),
            ("/v1/replays", {"filter": {"endpoint_id": str(stranger)}, "dry_run": True}),
            (f"/v1/endpoints/{stranger}/recover", {"since": LONG_AGO}),
        )
        for url, body in bodies:
            assert other.post(url, body).status_code == 404
    for method, url in [
        ("GET", path),
        *[("POST", f"{path}/{each}") for each in ("pause", "resume", "cancel")],
    ]:
        assert other.call(method, url).status_code == 404
    assert len(other.get("/v1/replays").json()["data"]) == 1
    assert api.get(path).json() == before
    assert replayed(world) == []


@pytest.mark.parametrize(
    ("scopes", "method", "path"),
    [
        (["read"], "POST", "/v1/replays"),
        (["read"], "POST", f"/v1/endpoints/{UUID(int=7)}/recover"),
        (["read"], "POST", f"/v1/replays/{UUID(int=7)}/pause"),
        (["read"], "POST", f"/v1/replays/{UUID(int=7)}/resume"),
        (["read"], "POST", f"/v1/replays/{UUID(int=7)}/cancel"),
        (["publish", "manage"], "GET", "/v1/replays"),
        (["publish", "manage"], "GET", f"/v1/replays/{UUID(int=7)}"),
    ],
)
def test_replays_are_made_by_managers_and_seen_by_readers(
    world: World, api: Api, scopes: list[str], method: str, path: str
) -> None:
    body = {"since": LONG_AGO} if path.endswith("recover") else {} if method == "POST" else None
    answer = Api(api.client, world.key(scopes)).call(method, path, body)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"filter": {"statuses": []}}, "filter.statuses"),
        ({"filter": {"statuses": ["pending"]}}, "filter.statuses.0"),
        ({"filter": {"statuses": ["in_progress"]}}, "filter.statuses.0"),
        ({"filter": {"endpoint_id": "1"}}, "filter.endpoint_id"),
        ({"filter": {"consumer": "a b"}}, "filter.consumer"),
        ({"filter": {"consumer": "a\n"}}, "filter.consumer"),
        ({"filter": {"event_type": "a..b"}}, "filter.event_type"),
        ({"filter": {"event_type": "a\0"}}, "filter.event_type"),
        ({"filter": {"event_type": "**"}}, "filter.event_type"),
        ({"filter": {"error_kind": "bad luck"}}, "filter.error_kind"),
        ({"filter": {"created_after": "2030-01-01T00:00:00"}}, "filter.created_after"),
        ({"filter": {"created_after": "2030-01-01"}}, "filter.created_after"),
        ({"filter": {"created_before": 1700000000}}, "filter.created_before"),
        ({"filter": {"created_before": "1700000000"}}, "filter.created_before"),
        ({"filter": {"status": ["dead"]}}, "filter.status"),
        ({"filter": None}, "filter"),
        ({"dry_run": "yes"}, "dry_run"),
        ({"dry": True}, "dry"),
    ],
)
def test_a_filter_that_breaks_a_rule_is_named_and_nothing_is_replayed(
    world: World, api: Api, body: object, field: str
) -> None:
    world.endpoint()
    bury(world)
    answer = api.post("/v1/replays", body)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert replayed(world) == []


def test_a_recovery_needs_its_instant(world: World, api: Api) -> None:
    answer = api.post(f"/v1/endpoints/{world.endpoint()['id']}/recover", {})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "since")


def test_the_run_of_each_minute_goes_on_with_it(
    world: World, api: Api, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.endpoint()
    bury(world, 2)
    path = waiting(world, api)
    with closing(Lambdas(world, database_url, monkeypatch)) as lambdas:
        assert lambdas.maintain({"only": "health"}).keys() == {"health"}
        assert replayed(world) == []
        answer = lambdas.maintain({"only": ["health", "replays"]})
    assert answer.keys() == {"health", "replays"}
    assert answer["replays"] == {
        "steps": 1,
        "deliveries_replayed": 2,
        "replays_finished": 1,
        "complete": True,
    }
    assert api.get(path).json()["state"] == "finished"


def test_replays_meet_the_ordinary_limits(world: World, api: Api) -> None:
    """WH-104: bulk is queued through the caps of its endpoint."""
    world.endpoint(max_in_flight=2)
    for _ in range(3):
        world.publish()
        settle_all(world, "bury")
        world.publish()
        settle_all(world, "bury")
    assert start(api)["replayed_count"] == 6
    assert len(world.claim().claimed) == 2
