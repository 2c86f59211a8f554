"""What lists and statistics cost does not depend on history, filter or depth: read off the executed plans."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from shared import deliveries, events, statistics
from shared.deliveries import DeliveryFilter
from shared.domain.states import Status
from shared.events import EventFilter
from shared.listing import MOST_LOOKED_AT
from shared.store.connection import Connection, Database, Row, fetch
from shared.store.queries import query
from shared.store.tenancy import ensure_tenant
from tests.conftest import temporary_database
from tests.store.test_plans import crowd, nodes, rows_read, whole_scans
from tests.support.world import World

FINISHED, DUE, BLOCKED = 200_000, 20_000, 10_000
DEAD = 20_020
LIMIT = 50
PAGE = LIMIT + 1
BUSY = {"deliveries", "events", "attempts"}

SEED = """
insert into leasehook.consumers (tenant_id, id) values ({tenant}, 'acme');

update leasehook.endpoints set consumer = 'acme'
where id in (select id from leasehook.endpoints order by id limit 5);

update leasehook.deliveries set status = 'dead', dead_reason = 'gone', last_error_kind = 'dns'
where id in (select id from leasehook.deliveries where status = 'succeeded' order by id limit 20);

-- One endpoint of its own: a hundred thousand finished deliveries and as many attempts.
with busy as (
    insert into leasehook.endpoints (tenant_id, url, description) values ({tenant}, 'http://127.0.0.1:9/', 'busy')
    returning id
),

happened as (
    insert into leasehook.events (tenant_id, type, content_type, payload)
    select {tenant}, 'order.refunded', 'application/json', '{{}}' from generate_series(1, 100000)
    returning id
)

insert into leasehook.deliveries (tenant_id, event_id, endpoint_id, status, finished_at)
select {tenant}, happened.id, busy.id, 'succeeded', now()
from happened
cross join busy;

insert into leasehook.attempts
    (delivery_id, number, tenant_id, endpoint_id, started_at, duration_ms, status_code)
select d.id, 1, d.tenant_id, d.endpoint_id, now() - random() * interval '1 hour', 20, 200
from leasehook.deliveries as d
inner join leasehook.endpoints as e on d.endpoint_id = e.id
where e.description = 'busy';

update leasehook.events set consumer = 'acme'
where type = 'order.refunded' and id < (
    select id from leasehook.events where type = 'order.refunded' order by id offset 80000 limit 1
);

-- What another tenant has, newer than all of it.
insert into leasehook.events (tenant_id, type, content_type, payload)
select {other}, 'order.paid', 'application/json', '{{}}' from generate_series(1, 20000);

insert into leasehook.endpoints (tenant_id, url) values ({other}, 'http://127.0.0.1:9/');

insert into leasehook.deliveries (tenant_id, event_id, endpoint_id, status, finished_at, dead_reason)
select ev.tenant_id, ev.id, e.id, 'dead', now(), 'gone'
from leasehook.events as ev
inner join leasehook.endpoints as e on ev.tenant_id = e.tenant_id
where ev.tenant_id = {other};
"""


@pytest.fixture(scope="module")
def crowded(server_url: str, template: str) -> Iterator[World]:
    """Two tenants; the first has a long history, a few dead letters and one consumer of a few endpoints."""
    for url in temporary_database(server_url, template):
        world = World(Database(url))
        other = ensure_tenant(world.database, "other")
        crowd(world, url, finished=FINISHED, due=DUE, blocked=BLOCKED)
        with world.database.connection() as connection:
            connection.execute("set session_replication_role = replica")
            connection.execute(
                SEED.format(tenant=f"'{world.tenant_id}'", other=f"'{other}'").encode()
            )
            connection.execute("set session_replication_role = origin")
            connection.execute("vacuum analyze")
        yield world
        world.database.close()


class Cost:
    """Explains every query that passes, and adds up what was read."""

    def __init__(self) -> None:
        self.plans: list[dict[str, Any]] = []

    def fetch(self, connection: Connection, name: str, parameters: Mapping[str, Any]) -> list[Row]:
        statement = b"explain (analyze, buffers, timing off, format json) " + query(name)
        with connection.transaction(force_rollback=True):
            [row] = connection.execute(statement, parameters).fetchall()
        self.plans.append(row["QUERY PLAN"][0]["Plan"])
        return fetch(connection, name, parameters)

    def rows(self, table: str) -> int:
        return sum(rows_read(plan, table) for plan in self.plans)

    @property
    def buffers(self) -> int:
        return sum(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] for plan in self.plans)

    @property
    def whole_scans(self) -> set[str]:
        return {table for plan in self.plans for table in whole_scans(plan)} & BUSY

    @property
    def bitmaps(self) -> set[str]:
        """Tables of which all that matches is collected before the first row comes out."""
        return {
            node["Relation Name"]
            for plan in self.plans
            for node in nodes(plan)
            if node["Node Type"] == "Bitmap Heap Scan"
        } & BUSY


@pytest.fixture
def cost(monkeypatch: pytest.MonkeyPatch) -> Cost:
    """What the use cases' queries cost."""
    cost = Cost()
    for module in (deliveries, events, statistics):
        monkeypatch.setattr(module, "fetch", cost.fetch)
    return cost


def busy_endpoint(world: World) -> UUID:
    endpoint_id: UUID = world.one("select id from leasehook.endpoints where description = 'busy'")[
        "id"
    ]
    return endpoint_id


def middle(world: World, table: str) -> UUID:
    """A place deep in a list."""
    key: UUID = world.one(
        f"""
        select id from leasehook.{table}
        order by id offset (select count(*) / 2 from leasehook.{table}) limit 1
        """
    )["id"]
    return key


FILTERS: list[tuple[str, Callable[[World], DeliveryFilter], int]] = [
    ("all", lambda _: DeliveryFilter(), PAGE),
    ("dead", lambda _: DeliveryFilter(status=Status.DEAD), 20),
    ("of an endpoint", lambda w: DeliveryFilter(endpoint_id=busy_endpoint(w)), PAGE),
    ("of a consumer", lambda _: DeliveryFilter(consumer="acme"), 5 * PAGE),
    ("of an event", lambda w: DeliveryFilter(event_id=middle(w, "events")), PAGE),
    ("never", lambda _: DeliveryFilter(status=Status.CANCELLED), MOST_LOOKED_AT),
    ("rare error", lambda _: DeliveryFilter(error_kind="tls"), MOST_LOOKED_AT),
    ("rare type", lambda _: DeliveryFilter(event_type="no.such.*"), MOST_LOOKED_AT),
    (
        "of an endpoint, never",
        lambda w: DeliveryFilter(endpoint_id=busy_endpoint(w), status=Status.CANCELLED),
        MOST_LOOKED_AT,
    ),
    (
        "of a consumer, never",
        lambda _: DeliveryFilter(consumer="acme", error_kind="tls"),
        MOST_LOOKED_AT,
    ),
]


@pytest.mark.parametrize("deep", [False, True], ids=["newest", "deep"])
@pytest.mark.parametrize(
    ("asked", "most_rows"), [f[1:] for f in FILTERS], ids=[f[0] for f in FILTERS]
)
def test_a_page_of_deliveries_reads_a_bounded_number_of_rows(
    crowded: World,
    cost: Cost,
    *,
    asked: Callable[[World], DeliveryFilter],
    most_rows: int,
    deep: bool,
) -> None:
    chosen = asked(crowded)
    before = middle(crowded, "endpoints" if chosen.event_id else "deliveries") if deep else None
    listing = deliveries.list_deliveries(
        crowded.database, crowded.tenant_id, chosen, before=before, limit=LIMIT
    )
    assert (cost.whole_scans, cost.bitmaps) == (set(), set())
    assert cost.rows("deliveries") <= most_rows + len(listing.rows)
    assert cost.buffers < 12 * most_rows + 1500


EVENT_FILTERS: list[tuple[str, EventFilter, int]] = [
    ("all", EventFilter(), PAGE),
    ("of a consumer", EventFilter(consumer="acme"), PAGE),
    ("of a key", EventFilter(idempotency_key="k"), PAGE),
    ("rare type", EventFilter(type="no.such.*"), MOST_LOOKED_AT),
]


@pytest.mark.parametrize("deep", [False, True], ids=["newest", "deep"])
@pytest.mark.parametrize(
    ("asked", "most_rows"), [f[1:] for f in EVENT_FILTERS], ids=[f[0] for f in EVENT_FILTERS]
)
def test_a_page_of_events_reads_a_bounded_number_of_rows(
    crowded: World, cost: Cost, *, asked: EventFilter, most_rows: int, deep: bool
) -> None:
    before = middle(crowded, "events") if deep else None
    listing = events.list_events(
        crowded.database, crowded.tenant_id, asked, before=before, limit=LIMIT
    )
    assert (cost.whole_scans, cost.bitmaps) == (set(), set())
    assert cost.rows("events") <= most_rows + len(listing.rows)
    assert cost.buffers < 6 * most_rows + 1500


def test_an_event_of_a_thousand_deliveries_is_shown_at_the_cost_of_what_is_shown(
    crowded: World, cost: Cost
) -> None:
    event_id = crowded.one("select id from leasehook.events order by id limit 1")["id"]
    shown = events.get_event(crowded.database, crowded.tenant_id, event_id)
    assert len(shown["deliveries"]) == len(shown["reach"]) == events.MOST_ENDPOINTS
    assert shown["deliveries_truncated"]
    assert shown["reach_truncated"]
    assert cost.whole_scans == set()
    assert cost.rows("deliveries") <= 3 * (events.MOST_ENDPOINTS + 1)


def test_one_delivery_is_shown_replayed_and_cancelled_at_the_cost_of_a_few_rows(
    crowded: World, cost: Cost
) -> None:
    world = crowded
    delivery_id = middle(world, "deliveries")
    deliveries.get_delivery(world.database, world.sealer, world.tenant_id, delivery_id)
    deliveries.replay(world.database, world.tenant_id, delivery_id, "key")
    deliveries.cancel(world.database, world.tenant_id, delivery_id)
    assert cost.whole_scans == set()
    assert cost.rows("deliveries") <= 20


def test_the_statistics_of_a_busy_endpoint_are_of_a_sample(crowded: World, cost: Cost) -> None:
    shown = statistics.endpoint_statistics(
        crowded.database, crowded.tenant_id, busy_endpoint(crowded), 604_800
    )
    assert (shown["attempts"], shown["sampled"]) == (statistics.MOST_ATTEMPTS, True)
    assert (cost.whole_scans, cost.bitmaps) == (set(), set())
    assert cost.rows("attempts") <= statistics.MOST_ATTEMPTS + 1


def test_the_statistics_of_a_tenant_count_up_to_a_bound(crowded: World, cost: Cost) -> None:
    shown = statistics.tenant_statistics(crowded.database, crowded.tenant_id, crowded.now())
    assert shown["queue"]["capped"]
    assert shown["throughput"]["capped"]
    assert (cost.whole_scans, cost.bitmaps) == (set(), set())
    assert cost.rows("deliveries") <= 2 * (statistics.MOST_DELIVERIES + 1) + 20


def test_the_metrics_do_not_read_history(crowded: World, cost: Cost) -> None:
    statistics.gateway_gauges(crowded.database)
    assert cost.whole_scans == set()
    assert cost.rows("deliveries") <= DEAD


def test_a_backlog_that_the_planner_has_not_heard_of_is_not_read_as_a_whole(
    world: World, cost: Cost
) -> None:
    """It expects a few rows, which it would rather collect and sort than take in the order of an index."""
    world.sql("alter table leasehook.deliveries set (autovacuum_enabled = false)")
    for _ in range(20):
        world.endpoint(event_types=["early"])
    for _ in range(100):
        world.publish(event_type="early")
    world.sql("analyze leasehook.deliveries")
    endpoint_id = world.endpoint(event_types=["order.*"])["id"]
    world.publish_many(2 * statistics.MOST_DELIVERIES)
    asked = DeliveryFilter(endpoint_id=endpoint_id)
    listing = deliveries.list_deliveries(world.database, world.tenant_id, asked, limit=LIMIT)
    assert len(listing.rows) == LIMIT
    assert cost.rows("deliveries") <= 2 * PAGE
    statistics.tenant_statistics(world.database, world.tenant_id, world.now())
    assert cost.bitmaps == set()
    assert cost.rows("deliveries") <= 2 * (statistics.MOST_DELIVERIES + 1) + 2 * PAGE
