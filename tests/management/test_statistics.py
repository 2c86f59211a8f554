"""Statistics over the API, and metrics for Prometheus."""

import re
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared import statistics
from shared.crypto import new_api_key
from shared.prometheus import Gauge, exposition, gauge
from tests.management.conftest import Api
from tests.support.world import World

_SAMPLE = re.compile(
    r'(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<label>[a-zA-Z_]\w*)="(?P<value>(?:[^"\\\n]|\\[\\"n])*)"\})? '
    r"(?P<number>-?[0-9.]+(?:e[+-]?[0-9]+)?)"
)


def parsed(text: str) -> dict[str, float]:
    """Metrics by name (and label); fails on whatever the format (0.0.4) does not have."""
    found: dict[str, float] = {}
    announced: list[str] = []
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, help_text = line.removeprefix("# HELP ").split(" ", 1)
            assert help_text
            assert name not in announced
            announced.append(name)
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {announced[-1]} gauge"
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample, line
            assert sample["name"] == announced[-1]
            key = sample["name"] + (f":{sample['value']}" if sample["label"] else "")
            assert key not in found
            found[key] = float(sample["number"])
    return found


@pytest.fixture
def operator(api: Api, world: World) -> Api:
    """The API with an operator's key."""
    key = new_api_key()
    world.sql(
        "insert into leasehook.api_keys (name, key_hash, key_prefix, scopes) values ('op', %s, %s, '{operate}')",
        key.key_hash,
        key.key_prefix,
    )
    return Api(api.client, key.text)


def attempts(
    world: World, endpoint_id: UUID, count: int, *, kind: str | None = None, ago: int = 60
) -> None:
    """`count` attempts of one endpoint that took 1, 2, 3, … ms, some seconds ago."""
    world.sql(
        """
        with happened as (
            insert into leasehook.events (tenant_id, type, content_type, payload)
            values (%s, 'a', 'text/plain', '') returning id, tenant_id
        ),

        delivered as (
            insert into leasehook.deliveries
                (tenant_id, event_id, endpoint_id, status, finished_at, attempt_count)
            select tenant_id, id, %s, 'succeeded', now(), %s from happened
            returning *
        )

        insert into leasehook.attempts
            (delivery_id, number, tenant_id, endpoint_id, started_at, duration_ms, status_code, error_kind, error_detail)
        select d.id, n, d.tenant_id, d.endpoint_id, now() - %s * interval '1 second' - n * interval '1 microsecond', n,
            case when %s::text is null then 200 end, %s, %s
        from delivered as d, generate_series(1, %s) as n
        """,
        world.tenant_id,
        endpoint_id,
        count,
        ago,
        kind,
        kind,
        None if kind is None else f"{kind} of {count}",
        count,
    )


def of_endpoint(api: Api, endpoint_id: UUID, query: str = "") -> dict[str, Any]:
    answer = api.get(f"/v1/endpoints/{endpoint_id}/statistics{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_an_endpoint_without_attempts_has_no_rate_and_no_latency(api: Api, world: World) -> None:
    endpoint_id = world.endpoint()["id"]
    assert of_endpoint(api, endpoint_id) == {
        "endpoint_id": str(endpoint_id),
        "window_seconds": 3600,
        "attempts": 0,
        "successes": 0,
        "success_rate": None,
        "latency_ms": None,
        "last_error": None,
        "sampled": False,
    }


def test_statistics_are_about_the_attempts_of_the_window(api: Api, world: World) -> None:
    endpoint_id, neighbour_id = world.endpoint()["id"], world.endpoint()["id"]
    attempts(world, endpoint_id, 99)
    attempts(world, endpoint_id, 1, kind="dns", ago=90)
    attempts(world, endpoint_id, 7, kind="timeout", ago=100)
    attempts(world, endpoint_id, 1000, kind="reset", ago=3700)
    attempts(world, neighbour_id, 5, kind="tls")
    shown = of_endpoint(api, endpoint_id)
    assert (shown["attempts"], shown["successes"], shown["sampled"]) == (107, 99, False)
    assert shown["success_rate"] == pytest.approx(99 / 107)
    # Only what was answered has a latency: 1 to 99 ms.
    assert shown["latency_ms"] == pytest.approx({"p50": 50, "p95": 94.1, "p99": 98.02})
    last_error = shown["last_error"]
    assert world.now() - datetime.fromisoformat(last_error.pop("at")) > timedelta(seconds=89)
    assert last_error == {"kind": "dns", "status_code": None, "detail": "dns of 1"}
    assert of_endpoint(api, endpoint_id, "?window=60")["attempts"] == 0
    assert of_endpoint(api, endpoint_id, "?window=604800")["attempts"] == 1107


def test_a_busy_endpoint_is_judged_by_its_newest_attempts(api: Api, world: World) -> None:
    endpoint_id = world.endpoint()["id"]
    attempts(world, endpoint_id, statistics.MOST_ATTEMPTS)
    assert not of_endpoint(api, endpoint_id)["sampled"]
    attempts(world, endpoint_id, 1000, kind="dns", ago=120)
    shown = of_endpoint(api, endpoint_id)
    assert shown["sampled"]
    assert (shown["attempts"], shown["success_rate"]) == (statistics.MOST_ATTEMPTS, 1.0)


@pytest.mark.parametrize("window", ["59", "604801", "1.5", "%00", "-1", ""])
def test_a_window_that_is_none_is_refused(api: Api, world: World, window: str) -> None:
    path = f"/v1/endpoints/{world.endpoint()['id']}/statistics?window={window}"
    assert api.get(path).status_code == 422


def test_another_tenants_endpoint_has_no_statistics(api: Api, other: Api, world: World) -> None:
    """WH-120: nor has one that was deleted or never was."""
    endpoint_id = world.endpoint()["id"]
    for path in (f"{endpoint_id}", f"{uuid4()}"):
        assert other.get(f"/v1/endpoints/{path}/statistics").status_code == 404
    assert api.get("/v1/endpoints/%00/statistics").status_code == 422
    world.sql("update leasehook.endpoints set deleted_at = now()")
    assert api.get(f"/v1/endpoints/{endpoint_id}/statistics").status_code == 404


def test_a_tenants_queue_is_counted_by_what_its_deliveries_wait_for(
    api: Api, other: Api, world: World
) -> None:
    world.endpoint()
    world.publish_many(6)
    first, second, third, *_ = world.claim(limit=4).claimed
    world.settle(
        world.report(first, "retry", delay_seconds=3600.0),
        world.report(second, "bury"),
        world.report(third),
    )
    disabled = world.endpoint(event_types=["parked"])["id"]
    world.sql(
        "update leasehook.endpoints set disabled_at = now(), disabled_reason = 'operator' where id = %s",
        disabled,
    )
    world.publish(event_type="parked")
    world.pass_time(10, {"deliveries": ["claimable_at"]})
    shown = api.get("/v1/statistics").json()
    assert 9 < shown["queue"].pop("oldest_due_age_seconds") < 60
    assert shown["queue"] == {
        "due": 3,
        "waiting": 1,
        "in_progress": 1,
        "parked": 1,
        "dead": 1,
        "capped": False,
    }
    empty = other.get("/v1/statistics").json()
    assert empty["queue"] == {
        "due": 0,
        "waiting": 0,
        "in_progress": 0,
        "parked": 0,
        "dead": 0,
        "oldest_due_age_seconds": None,
        "capped": False,
    }
    assert empty["throughput"]["minutes"] == []


def test_the_last_hour_is_counted_minute_by_minute(api: Api, world: World) -> None:
    world.endpoint()
    world.publish_many(4)
    first, second, *_ = world.claim().claimed
    world.settle(world.report(first), world.report(second, "bury"))
    world.sql("update leasehook.deliveries set created_at = created_at - interval '5 minutes'")
    world.publish()
    throughput = api.get("/v1/statistics").json()["throughput"]
    counts = [(row["made"], row["succeeded"], row["dead"]) for row in throughput["minutes"]]
    assert counts == [(4, 1, 1), (1, 0, 0)]
    assert not throughput["capped"]
    complete_from = datetime.fromisoformat(throughput["complete_from"])
    assert timedelta(minutes=59) < world.now() - complete_from < timedelta(minutes=61)


def test_a_busy_hour_says_from_when_on_it_is_complete(api: Api, world: World) -> None:
    world.endpoint()
    world.publish_many(statistics.MOST_DELIVERIES + 1)
    world.sql("update leasehook.deliveries set created_at = created_at - interval '5 minutes'")
    world.publish_many(3)
    shown = api.get("/v1/statistics").json()
    assert shown["queue"]["capped"]
    throughput = shown["throughput"]
    assert throughput["capped"]
    assert [row["made"] for row in throughput["minutes"]] == [3]
    first_minute = datetime.fromisoformat(throughput["minutes"][0]["minute_at"])
    assert datetime.fromisoformat(throughput["complete_from"]) <= first_minute


def test_metrics_tell_the_operator_how_everything_is(operator: Api, world: World) -> None:
    """WH-058."""
    endpoint_id = world.endpoint()["id"]
    world.endpoint(consumer="acme")
    world.publish_many(5)
    first, second, *_ = world.claim(limit=3).claimed
    world.settle(world.report(first, "retry", delay_seconds=60.0), world.report(second, "bury"))
    world.sql(
        "update leasehook.circuits set state = 'open', claimable_at = now() where endpoint_id <> %s",
        endpoint_id,
    )
    world.sql(
        "update leasehook.endpoints set disabled_at = now(), disabled_reason = 'gone' where id <> %s",
        endpoint_id,
    )
    answer = operator.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    metrics = parsed(answer.text)
    assert metrics.pop("leasehook_due_age_seconds") >= 0
    assert metrics.pop("leasehook_deliveries_dead_tuples") >= 0
    assert metrics.pop("leasehook_deliveries_live_tuples") >= 0
    assert metrics.pop("leasehook_oldest_transaction_age_seconds") >= 0
    assert metrics == {
        "leasehook_due_deliveries": 2,
        "leasehook_in_progress_deliveries": 1,
        "leasehook_lapsed_deliveries": 0,
        "leasehook_waiting_deliveries": 1,
        "leasehook_parked_deliveries": 0,
        "leasehook_dead_deliveries": 1,
        "leasehook_endpoints": 2,
        "leasehook_disabled_endpoints": 1,
        "leasehook_circuits:closed": 1,
        "leasehook_circuits:open": 1,
        "leasehook_circuits:half_open": 0,
    }


def test_a_transaction_left_open_is_seen_in_the_metrics(operator: Api, world: World) -> None:
    """WH-058."""
    with world.database.transaction() as connection:
        connection.execute("select pg_sleep(0.05)")
        metrics = parsed(operator.get("/metrics").text)
    assert metrics["leasehook_oldest_transaction_age_seconds"] >= 0.05


def test_metrics_are_for_operators(api: Api, world: World) -> None:
    assert api.get("/metrics").status_code == 403
    assert api.client.request("GET", "/metrics").status_code == 401
    assert Api(api.client, world.key(["publish"])).get("/v1/statistics").status_code == 403


def test_whatever_a_label_or_help_text_holds_stays_on_its_line() -> None:
    text = exposition(
        [
            Gauge("a", "one\ntwo \\ three", {'x"y\\z\n': 1.5}, label="l"),
            gauge("b", "b", 10_000_000_000_000_001),
        ]
    )
    assert text == (
        "# HELP a one\\ntwo \\\\ three\n# TYPE a gauge\n"
        'a{l="x\\"y\\\\z\\n"} 1.5\n'
        "# HELP b b\n# TYPE b gauge\nb 10000000000000000\n"
    )
