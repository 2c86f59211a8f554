"""Publishing over connections that break and in processes that die: a 2xx is committed, a key is stored once."""

import http.client
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.crash.lambdas import Answer, Ingest, publish_over_http
from tests.support.proxy import Moment, Proxy
from tests.support.workers import Worker
from tests.support.world import World

pytestmark = pytest.mark.crash

Events = Sequence[Mapping[str, object]]


def keyed_events(count: int) -> Events:
    return [
        {"type": "order.paid", "payload": {"n": n}, "idempotency_key": f"key-{n}"}
        for n in range(count)
    ]


ONE, BATCH = keyed_events(1), keyed_events(25)
one_or_batch = pytest.mark.parametrize("events", [ONE, BATCH], ids=["one", "batch"])


def statement(events: Events) -> str:
    """The query that stores them."""
    return "publish" if len(events) == 1 else "publish_batch"


def stored_ids(world: World) -> list[str]:
    return [str(row["id"]) for row in world.sql("select id from leasehook.events order by id")]


def assert_stored_once(world: World, answers: Sequence[Answer], count: int) -> None:
    """Every answer names the same events, they are all there is, and each has its deliveries."""
    stored = stored_ids(world)
    assert len(stored) == count
    for answer in answers:
        assert answer.status == 202
        assert sorted(answer.event_ids) == stored
    unheard = world.sql(
        """
        select e.id from leasehook.events as e
        where (select count(*) from leasehook.deliveries as d where d.event_id = e.id) <> 2
        """
    )
    assert unheard == []


@contextmanager
def stuck_in_the_server(world: World) -> Iterator[None]:
    """Publishing runs up to the deliveries and waits there, in the middle of its transaction, while the block runs."""
    with world.database.transaction() as connection:
        connection.execute("lock table leasehook.deliveries in share mode")
        yield


def wait_until_stuck(world: World) -> None:
    deadline = time.monotonic() + 10
    while not world.sql(
        """
        select 1 from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'
        """
    ):
        assert time.monotonic() < deadline, "publishing never came to the lock"


@contextmanager
def being_published(environment: Mapping[str, str], key: str, events: Events) -> Iterator[Worker]:
    """A server that has been sent the events; its answer must never come."""
    with Worker("serve", environment) as server, ThreadPoolExecutor(1) as client:
        port = int(server.line())
        answer = client.submit(publish_over_http, port, key, *events)
        yield server
        with pytest.raises((OSError, http.client.HTTPException)):
            answer.result(10)


@one_or_batch
@pytest.mark.parametrize("moment", Moment)
def test_a_publisher_whose_server_is_killed_around_the_commit_repeats_and_is_stored_once(
    world: World, proxy: Proxy, database_url: str, moment: Moment, events: Events
) -> None:
    world.endpoint()
    world.endpoint()
    key = world.key()

    with (
        proxy.hold(statement(events), moment) as commit,
        being_published(world.environment(proxy.url), key, events) as server,
    ):
        commit.wait()
        assert len(stored_ids(world)) == (0 if moment is Moment.BEFORE else len(events))
        server.kill()
    with Ingest(world.environment(database_url), key) as ingest:
        answers = [ingest.publish(*events) for _ in range(2)]

    assert_stored_once(world, answers, len(events))


@one_or_batch
def test_a_publisher_whose_server_is_killed_inside_the_transaction_repeats_and_is_stored_once(
    world: World, database_url: str, events: Events
) -> None:
    world.endpoint()
    world.endpoint()
    key = world.key()
    environment = world.environment(database_url)

    with Ingest(environment, key) as ingest, ThreadPoolExecutor(1) as retrying:
        with (
            stuck_in_the_server(world),
            being_published(environment, key, events) as server,
        ):
            wait_until_stuck(world)
            assert stored_ids(world) == []
            server.kill()
            # The retry meets the same key inside the dead server's transaction, and has to wait for its end.
            retry = retrying.submit(ingest.publish, *events)
        answers = [retry.result(10)]

    assert_stored_once(world, answers, len(events))


@one_or_batch
@pytest.mark.parametrize("moment", Moment)
def test_a_connection_cut_around_the_commit_is_a_503_and_the_retry_is_stored_once(
    world: World, proxy: Proxy, moment: Moment, events: Events
) -> None:
    world.endpoint()
    world.endpoint()

    with Ingest(world.environment(proxy.url), world.key()) as ingest:
        with proxy.cut(statement(events), moment) as commit:
            refused = ingest.publish(*events)
        assert commit.caught == 1
        assert len(stored_ids(world)) == (0 if moment is Moment.BEFORE else len(events))
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) > 0
        answers = [ingest.publish(*events)]

    assert_stored_once(world, answers, len(events))


def test_a_warm_handler_outlives_its_terminated_session(world: World, database_url: str) -> None:
    """WH-048: after a freeze or a failover the kept session may be gone."""
    with Ingest(world.environment(database_url), world.key()) as ingest:
        assert ingest.publish({"type": "a", "payload": 1}).status == 202
        [session] = world.sql(
            """
            select pg_terminate_backend(pid, 5000) as gone from pg_stat_activity
            where datname = current_database() and pid <> pg_backend_pid()
            """
        )
        assert session["gone"]
        statuses = [ingest.publish({"type": "a", "payload": n}).status for n in range(2)]

    assert statuses == [202, 202]
    assert len(stored_ids(world)) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel drops packets by a socket filter")
def test_a_warm_handler_gives_up_a_black_holed_session_in_bounded_time(
    world: World, proxy: Proxy
) -> None:
    """WH-048: nothing is acknowledged any more, and nothing says that the connection is dead."""
    event = {"type": "a", "payload": 1, "idempotency_key": "key"}
    with Ingest(world.environment(proxy.url), world.key()) as ingest:
        assert ingest.publish({"type": "a", "payload": 0}).status == 202
        proxy.black_hole()
        began_at = time.monotonic()
        statuses = [ingest.publish(event).status for _ in range(3)]
        took_seconds = time.monotonic() - began_at

    assert statuses == [503, 202, 202]
    assert took_seconds < 5
    assert len(stored_ids(world)) == 2


def test_a_database_without_free_connections_is_a_503_that_names_nothing(
    world: World, limited_role_url: str
) -> None:
    """WH-063: 30 publishers, two connections; both are kept busy until all others have their answer."""
    world.endpoint()
    world.endpoint()
    key = world.key()
    with (
        Worker("serve", world.environment(limited_role_url)) as server,
        ThreadPoolExecutor(30) as publishers,
    ):
        port = int(server.line())
        with stuck_in_the_server(world):
            pending = [
                publishers.submit(
                    publish_over_http, port, key, {"type": "order.paid", "payload": n}
                )
                for n in range(30)
            ]
            early = as_completed(pending, timeout=30)
            refused = [next(early).result() for _ in range(28)]
            assert stored_ids(world) == []
        accepted = [each.result() for each in early]

    assert {answer.status for answer in refused} == {503}
    assert {answer.status for answer in accepted} == {202}
    assert stored_ids(world) == sorted(answer.event_ids[0] for answer in accepted)
    address = conninfo_to_dict(limited_role_url)
    secret_words = [str(address[name]) for name in ("user", "password", "dbname", "host", "port")]
    for answer in refused:
        assert not [word for word in secret_words if word in answer.text]
        assert int(answer.headers["retry-after"]) > 0


@pytest.fixture
def limited_role_url(database_url: str) -> Iterator[str]:
    """The database for a role that may publish over HTTP's statement, with two connections at most."""
    role, password = f"limited_{secrets.token_hex(6)}", secrets.token_hex(12)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            f"create role {role} login bypassrls password '{password}' connection limit 2".encode()
        )
        grant = f"do $$ begin execute format('grant %I to {role}', current_user); end $$"
        connection.execute(grant.encode())
        yield make_conninfo(database_url, user=role, password=password)
        connection.execute(f"drop owned by {role}".encode())
        connection.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = %s",
            [role],
        )
        connection.execute(f"drop role {role}".encode())
