"""Behind a pooler in transaction mode: a statement meets whatever server is free, and leaves nothing on it."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from shared.errors import DatabaseUnavailable
from shared.store import tenancy
from shared.store.connection import Database
from shared.store.migrations import load, migrate
from tests.support import lambda_events, pgbouncer
from tests.support.lambda_events import FakeContext
from tests.support.lambdas import Answer, Environment, Lambdas, in_step, read_answer
from tests.support.pgbouncer import PgBouncer
from tests.support.receiver import Receiver
from tests.support.world import World

pytestmark = pytest.mark.skipif(
    pgbouncer.MISSING is not None, reason=pgbouncer.MISSING or "it is here"
)

SERVERS = 2
ROUNDS = 20


@pytest.fixture
def pooler(database_url: str) -> Iterator[PgBouncer]:
    """A pooler with two servers in front of this test's database."""
    with PgBouncer(database_url, default_pool_size=str(SERVERS)) as pooler:
        yield pooler


@pytest.fixture
def lambdas(world: World, pooler: PgBouncer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lambdas]:
    """Every function, with the pooler in its DATABASE_URL."""
    lambdas = Lambdas(world, pooler.url, monkeypatch)
    yield lambdas
    lambdas.close()


def pooled_state(pooler: PgBouncer) -> list[dict[str, Any]]:
    """What clients have left on each of the pool's servers."""
    with ExitStack() as stack:
        states: list[dict[str, Any]] = []
        for _ in range(SERVERS):
            # A transaction keeps its server, so the next one has to take the other.
            client = stack.enter_context(psycopg.connect(pooler.url, row_factory=dict_row))
            states += client.execute(
                """
                    select pg_backend_pid() as pid,
                        current_user = session_user as is_itself,
                        coalesce(current_setting('leasehook.tenant_id', true), '') as tenant,
                        (select array_agg(name) from pg_settings
                         where setting <> reset_val and source = 'session'
                             and name <> 'application_name') as changed_settings,
                        (select count(*) from pg_prepared_statements) as prepared,
                        (select count(*) from pg_locks
                         where locktype = 'advisory' and pid = pg_backend_pid()) as locks
                    """,
                prepare=False,
            ).fetchall()
        return states


def request(
    environment: Environment, key: str, method: str, path: str, body: object = None
) -> Answer:
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    event = lambda_events.http_api(method, path, data, headers)
    return read_answer(environment.invoke(event, FakeContext.lasting(30)))


def test_four_functions_share_two_servers_and_leave_nothing_on_them(
    world: World, lambdas: Lambdas, pooler: PgBouncer, receiver: Receiver
) -> None:
    """WH-049."""
    other_tenant_id = tenancy.ensure_tenant(world.database, "other")
    keys = [world.key(), world.key(tenant_id=other_tenant_id)]
    own = [
        str(world.endpoint(receiver.url("/one"))["id"]),
        str(world.endpoint(receiver.url("/other"), tenant_id=other_tenant_id)["id"]),
    ]
    ingests = [lambdas.cold("ingest"), lambdas.cold("ingest")]
    api, drain = lambdas.cold("api"), lambdas.cold("drain")

    def publish(number: int) -> list[str]:
        answers = [
            request(
                ingests[number],
                keys[number],
                "POST",
                "/v1/events",
                {"type": "a", "payload": n, "idempotency_key": str(n)},
            )
            for n in range(ROUNDS)
        ]
        assert {each.status for each in answers} == {202}, answers
        return [each.json["id"] for each in answers]

    def manage(_number: int) -> list[str]:
        """Each tenant in turn sees its own endpoint, and changes it, and never meets the other's."""
        for n in range(ROUNDS):
            mine, others = own[n % 2], own[1 - n % 2]
            listed = request(api, keys[n % 2], "GET", "/v1/endpoints")
            assert [each["id"] for each in listed.json["data"]] == [mine], listed
            changed = request(
                api, keys[n % 2], "PATCH", f"/v1/endpoints/{mine}", {"description": str(n)}
            )
            assert changed.status == 200, changed
            assert request(api, keys[n % 2], "GET", f"/v1/endpoints/{others}").status == 404
        return []

    def deliver(_number: int) -> list[str]:
        for _ in range(ROUNDS):
            summary = drain.invoke(lambda_events.SCHEDULE, FakeContext.lasting(30))
            assert summary["stopped"] == "idle", summary
            assert summary["unsettled"] == summary["late"] == 0
        return []

    work = [publish, publish, manage, deliver]
    published, published_by_other, _, _ = in_step(4, lambda number: work[number](number))
    deliver(0)

    assert world.statuses() == {"succeeded": 2 * ROUNDS}
    assert Counter(each.webhook_id for each in receiver.at("/one")) == Counter(published)
    assert Counter(each.webhook_id for each in receiver.at("/other")) == Counter(published_by_other)
    servers = pooled_state(pooler)
    assert len({each.pop("pid") for each in servers}) == SERVERS
    assert servers == SERVERS * [
        {"is_itself": True, "tenant": "", "changed_settings": None, "prepared": 0, "locks": 0}
    ]


def test_migrations_that_run_together_behind_a_pooler_are_applied_once(
    empty_database_url: str,
) -> None:
    """WH-049: the lock belongs to a transaction, since a session is nobody's here."""
    with PgBouncer(empty_database_url, default_pool_size=str(SERVERS)) as pooler:
        databases = [Database(pooler.url) for _ in range(4)]
        applied = in_step(4, lambda number: migrate(databases[number]))
        servers = pooled_state(pooler)
        for database in databases:
            database.close()

    names = [f"{each.version:04}_{each.name}" for each in load()]
    assert sorted(name for each in applied for name in each) == names
    assert [each["locks"] for each in servers] == [0, 0]


def test_a_statement_that_fails_leaves_a_clean_server(world: World, pooler: PgBouncer) -> None:
    database = Database(pooler.url)
    try:
        for _ in range(2 * SERVERS):
            with (
                pytest.raises(psycopg.errors.DivisionByZero),
                database.as_tenant(world.tenant_id) as connection,
            ):
                connection.execute("select 1 / 0")
        servers = pooled_state(pooler)
    finally:
        database.close()
    assert [(each["is_itself"], each["tenant"]) for each in servers] == SERVERS * [(True, "")]


def test_a_pooler_that_cuts_its_clients_off_is_one_failure_and_then_forgotten(
    world: World, pooler: PgBouncer
) -> None:
    database = Database(pooler.url)
    try:
        with (
            pytest.raises(DatabaseUnavailable),
            database.transaction() as connection,
        ):
            [server] = connection.execute("select pg_backend_pid() as pid").fetchall()
            assert world.one("select pg_terminate_backend(%s, 5000) as gone", server["pid"])["gone"]
            connection.execute("select 1")
        with database.connection() as connection:
            assert connection.execute("select 1 as one").fetchone() == {"one": 1}
    finally:
        database.close()
