"""Statements end in time: on a server that is slow, on one that drips, and on one that has stopped talking."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from shared.errors import DatabaseUnavailable
from shared.store import migrations
from shared.store.connection import Database
from shared.store.migrations import Migration, migrate
from tests.support.proxy import Moment, Proxy

LIMIT_SECONDS = 0.3
SLOW = "select pg_sleep(60) -- too slow"


@contextmanager
def cut_off(within_seconds: float) -> Iterator[None]:
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match="StatementTimeout"):
        yield
    assert LIMIT_SECONDS <= time.monotonic() - began < within_seconds


@pytest.fixture
def limited(database_url: str) -> Iterator[Database]:
    database = Database(database_url, statement_seconds=LIMIT_SECONDS)
    yield database
    database.close()


def pid(database: Database) -> int:
    with database.connection() as connection:
        return connection.info.backend_pid


def test_a_slow_statement_is_cut_off_and_cancelled(limited: Database, database_url: str) -> None:
    with cut_off(2), limited.connection() as connection:
        backend = connection.info.backend_pid
        connection.execute(SLOW)
    with psycopg.connect(database_url, autocommit=True) as admin:
        deadline = time.monotonic() + 5
        while admin.execute(
            "select 1 from pg_stat_activity where pid = %s and query = %s", [backend, SLOW]
        ).fetchone():
            assert time.monotonic() < deadline, "the server was not told to stop"
    assert pid(limited) != backend


def test_what_a_cut_off_transaction_wrote_is_gone(limited: Database, database_url: str) -> None:
    with cut_off(2), limited.transaction() as connection:
        connection.execute("insert into leasehook.tenants (name) values ('half')")
        connection.execute(SLOW)
    with psycopg.connect(database_url) as other:
        assert not other.execute("select 1 from leasehook.tenants where name = 'half'").fetchone()


@pytest.mark.parametrize(("moment", "stored"), [(Moment.BEFORE, 0), (Moment.AFTER, 1)])
def test_a_commit_that_takes_too_long_is_not_known_to_have_happened(
    database_url: str, moment: Moment, stored: int
) -> None:
    with Proxy(database_url) as proxy:
        database = Database(proxy.url, statement_seconds=LIMIT_SECONDS)
        with (
            proxy.hold("COMMIT", moment),
            pytest.raises(DatabaseUnavailable),
            database.transaction() as connection,
        ):
            connection.execute("insert into leasehook.tenants (name) values ('perhaps')")
        with psycopg.connect(database_url) as other:
            [found] = other.execute(
                "select count(*) from leasehook.tenants where name = 'perhaps'"
            ).fetchall()
        assert found == (stored,)
        assert pid(database)
        database.close()


def test_a_server_that_drips_is_cut_off_although_something_always_comes(limited: Database) -> None:
    with cut_off(2), limited.connection() as connection:
        connection.execute(
            "select pg_sleep(0.02), repeat('x', 100000) from generate_series(1, 3000)"
        )


def test_a_server_that_takes_the_statement_and_says_nothing_is_given_up(database_url: str) -> None:
    """Its side of TCP acknowledges everything, so no timeout of TCP's sees it."""
    with Proxy(database_url) as proxy:
        database = Database(proxy.url, statement_seconds=LIMIT_SECONDS)
        with proxy.hold(SLOW, Moment.BEFORE), cut_off(3), database.connection() as connection:
            connection.execute(SLOW)
        with database.connection() as connection:
            assert connection.execute("select 1 as one").fetchone() == {"one": 1}
        database.close()


def test_a_server_that_accepts_and_says_nothing_is_given_up_while_connecting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        database = Database(f"postgresql://a:b@127.0.0.1:{port}/c?connect_timeout=1")
        began = time.monotonic()
        with pytest.raises(DatabaseUnavailable), database.connection():
            pass
        assert time.monotonic() - began < 4


def test_a_statement_in_time_is_left_alone(limited: Database) -> None:
    with limited.connection() as connection:
        for _ in range(5):
            connection.execute("select pg_sleep(0.1)")
        rows = connection.execute("select generate_series(1, 50000) as n").fetchall()
    assert len(rows) == 50000


def test_work_that_may_take_long_says_so_and_shares_the_connections(limited: Database) -> None:
    backend = pid(limited)
    patient = limited.allowing(None)
    with patient.connection() as connection:
        assert connection.info.backend_pid == backend
        connection.execute("select pg_sleep(%s)", [2 * LIMIT_SECONDS])
    with cut_off(2), limited.connection() as connection:
        assert connection.info.backend_pid == backend
        connection.execute(SLOW)


def test_a_migration_takes_what_it_takes(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = [Migration(1, "slow", f"select pg_sleep({2 * LIMIT_SECONDS})")]
    monkeypatch.setattr(migrations, "load", lambda: slow)
    database = Database(empty_database_url, statement_seconds=LIMIT_SECONDS)
    assert migrate(database) == ["0001_slow"]
    database.close()
