"""The cost of the queue's statements depends on the batch, not on history or backlog: read off the executed plans."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from shared.store import queue
from shared.store.connection import Database
from shared.store.queries import query
from tests.conftest import temporary_database
from tests.support.world import World

FINISHED, DUE, BLOCKED, ENDPOINTS = 1_000_000, 100_000, 100_000, 1000
BATCH = 200

SEED = """
insert into leasehook.endpoints (tenant_id, url)
select %(tenant_id)s, 'http://127.0.0.1:9/' from generate_series(1, %(endpoints)s);

insert into leasehook.circuits (endpoint_id, tenant_id, state, claimable_at)
select id, tenant_id, case when blocked then 'open' else 'closed' end,
    case when blocked then now() + interval '1 hour' end
from (select id, tenant_id, row_number() over (order by id) %% 10 = 0 as blocked from leasehook.endpoints) as e;

insert into leasehook.events (tenant_id, type, content_type, payload)
select %(tenant_id)s, 'order.paid', 'application/json', '{}'
from generate_series(1, (%(finished)s + 10 * %(due)s) / %(endpoints)s);

insert into leasehook.deliveries (tenant_id, event_id, endpoint_id, status, claimable_at, finished_at)
select ev.tenant_id, ev.id, c.endpoint_id,
    (case when ev.number <= %(finished)s / %(endpoints)s then 'succeeded' else 'pending' end)::leasehook.delivery_status,
    case when ev.number > %(finished)s / %(endpoints)s then now() - interval '1 minute' end,
    case when ev.number <= %(finished)s / %(endpoints)s then now() end
from (select *, row_number() over (order by id) as number from leasehook.events) as ev
cross join leasehook.circuits as c
where ev.number <= (%(finished)s + %(due)s) / %(endpoints)s
    or (c.state = 'open' and ev.number <= (%(finished)s + 10 * %(blocked)s) / %(endpoints)s);
"""


def crowd(world: World, url: str, *, finished: int, due: int, blocked: int) -> None:
    """Fill the queue: so many finished, due, and due behind open circuits (a tenth of the endpoints)."""
    numbers = {"finished": finished, "due": due, "blocked": blocked, "endpoints": ENDPOINTS}
    # A client-side cursor sends several statements; the rows are consistent, so their keys need no checking.
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute(SEED.encode(), {"tenant_id": world.tenant_id} | numbers)
        connection.execute("vacuum analyze")


@pytest.fixture(scope="module")
def crowded(server_url: str, template: str) -> Iterator[World]:
    """A million finished deliveries, a hundred thousand due ones, as many due ones behind open circuits."""
    for url in temporary_database(server_url, template):
        world = World(Database(url))
        crowd(world, url, finished=FINISHED, due=DUE, blocked=BLOCKED)
        yield world
        world.database.close()


def explain(world: World, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Execute a query and return its plan with the rows and buffers it really touched; nothing is kept."""
    with world.database.connection() as connection, connection.transaction(force_rollback=True):
        statement = b"explain (analyze, buffers, timing off, format json) " + query(name)
        row = connection.execute(statement, parameters).fetchone()
    assert row is not None
    plan: dict[str, Any] = row["QUERY PLAN"][0]["Plan"]
    return plan


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every node of a plan that was executed: before Postgres 18 some are planned that a false condition keeps from it."""
    if plan["Actual Loops"] > 0:
        yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def rows_read(plan: dict[str, Any], table: str) -> int:
    """How many rows of a table its scans went over at the least, also those that a filter removed."""
    return sum(
        _certain(node["Actual Rows"], node["Actual Loops"])
        + _certain(node.get("Rows Removed by Filter", 0), node["Actual Loops"])
        for node in nodes(plan)
        if node.get("Relation Name") == table and "Scan" in node["Node Type"]
    )


def _certain(rows_per_loop: float, loops: int) -> int:
    """The rows of all loops. Their mean is a whole number before Postgres 18, rounded by up to a half."""
    is_rounded = isinstance(rows_per_loop, int) and loops > 1
    return int(max(rows_per_loop - 0.5 * is_rounded, 0) * loops)


def whole_scans(plan: dict[str, Any]) -> set[str]:
    """The tables that are read from end to end."""
    return {node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"}


def claim_parameters(**changes: Any) -> dict[str, Any]:
    request = queue.ClaimRequest(
        uuid4(), BATCH, 60.0, queue.START, 2 * BATCH, 100, [], [], 15, 1000.0
    )
    return {field.name: getattr(request, field.name) for field in fields(request)} | changes


def test_a_claim_touches_rows_in_proportion_to_its_batch(crowded: World) -> None:
    """WH-057."""
    plan = explain(crowded, "claim", claim_parameters())
    assert plan["Actual Rows"] == BATCH
    assert not whole_scans(plan) & {"deliveries", "attempts"}
    # Two lanes per row are looked at, each row is picked and updated once.
    assert rows_read(plan, "deliveries") <= 5 * BATCH
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 150 * BATCH


def test_rows_behind_open_circuits_are_not_stepped_over(crowded: World) -> None:
    """WH-057: only blocked endpoints are due; their 110,000 rows are not looked at to find that out."""
    with crowded.database.connection() as connection, connection.transaction(force_rollback=True):
        connection.execute(
            "delete from leasehook.circuits as c using leasehook.endpoints as e "
            "where e.id = c.endpoint_id and c.state = 'closed'"
        )
        statement = b"explain (analyze, buffers, timing off, format json) " + query("claim")
        row = connection.execute(statement, claim_parameters(visit_limit=2000)).fetchone()
    assert row is not None
    plan = row["QUERY PLAN"][0]["Plan"]
    assert rows_read(plan, "deliveries") <= 2 * ENDPOINTS


def test_settling_touches_rows_in_proportion_to_its_batch(crowded: World) -> None:
    claimed = crowded.claim(limit=BATCH).claimed
    reports = [crowded.report(each, lease_token=None) for each in claimed]
    plan = explain(
        crowded,
        "settle",
        queue.report_columns(reports) | {"failures_to_open": 10, "cooldowns_seconds": [30.0]},
    )
    crowded.settle(*[crowded.report(each, "release") for each in claimed])
    assert not whole_scans(plan) & {"deliveries", "attempts"}
    assert rows_read(plan, "deliveries") <= 4 * BATCH


def test_measuring_the_queue_does_not_read_history(crowded: World) -> None:
    plan = explain(crowded, "queue_health", {})
    assert "deliveries" not in whole_scans(plan)
    assert rows_read(plan, "deliveries") < 1.1 * (DUE + BLOCKED) + 2 * BATCH


def test_looking_at_one_delivery_reads_a_handful_of_rows(crowded: World) -> None:
    delivery = crowded.sql("select id from leasehook.deliveries limit 1")[0]["id"]
    key = {"tenant_id": crowded.tenant_id, "delivery_id": delivery}
    for name in ("get_delivery", "list_attempts", "replay_delivery"):
        plan = explain(crowded, name, key)
        assert rows_read(plan, "deliveries") <= 3


def test_pruning_reads_in_proportion_to_its_step(crowded: World) -> None:
    parameters = {"cursor": queue.START, "limit": 10, "retention_days": 0, "dead_retention_days": 0}
    plan = explain(crowded, "prune_deliveries", parameters)
    assert "deliveries" not in whole_scans(plan)
    # Ten events, each with a thousand deliveries: looked for once, deleted once.
    assert rows_read(plan, "deliveries") <= 2.2 * 10 * ENDPOINTS
