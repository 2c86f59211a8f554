"""Connections: lent to one at a time, checked before use, never handed on in the middle of something."""

import contextlib
import os
import secrets
import threading

import psycopg
import pytest

from shared.errors import ConfigurationError, DatabaseUnavailable, LeasehookError
from shared.store.connection import Database
from tests.support.world import World


def pid(database: Database) -> int:
    with database.connection() as connection:
        return connection.info.backend_pid


def test_one_borrower_after_another_uses_one_connection(database: Database) -> None:
    assert len({pid(database) for _ in range(10)}) == 1


def test_borrowers_at_the_same_time_have_a_connection_each(database: Database) -> None:
    with database.connection() as one, database.connection() as other:
        assert one.info.backend_pid != other.info.backend_pid


def test_a_connection_that_died_while_idle_is_replaced_before_use(
    database: Database, world: World
) -> None:
    """WH-048."""
    first = pid(database)
    with psycopg.connect(**database._parameters, autocommit=True) as admin:
        assert admin.execute("select pg_terminate_backend(%s, 20000)", [first]).fetchone() == (
            True,
        )
    assert pid(database) != first
    assert not world.publish().repeated


def test_a_connection_that_dies_in_use_is_one_failure_and_then_forgotten(
    database: Database,
) -> None:
    with pytest.raises(DatabaseUnavailable, match="57P01"), database.connection() as connection:
        connection.execute("select pg_terminate_backend(pg_backend_pid())")
    assert pid(database)


def test_a_connection_that_was_idle_for_long_is_replaced_and_not_trusted(
    database_url: str,
) -> None:
    """NAT gateways forget silent connections, and a frozen environment sends no keepalives."""
    now = 1_000_000.0
    database = Database(database_url, clock=lambda: now)
    first = pid(database)
    for _ in range(3):
        now += 240
        assert pid(database) == first, "each use begins a new wait"
    now += 240.1
    second = pid(database)
    assert second != first
    now -= 60
    assert pid(database) != second, "a clock that was put back says nothing about the wait"
    database.close()


def test_a_database_of_many_hosts_is_found_behind_those_that_are_down(database_url: str) -> None:
    server = psycopg.conninfo.conninfo_to_dict(database_url)
    database = Database(
        psycopg.conninfo.make_conninfo(
            database_url,
            host=f"127.0.0.1,{server['host']},127.0.0.1",
            port=f"1,{server['port']},2",
        )
    )
    assert pid(database) == pid(database)
    database.close()


def test_a_connection_is_checked_whatever_its_descriptor(database: Database) -> None:
    """`select` takes none above 1023, and a drain may have more sockets than that."""
    resource = pytest.importorskip("resource")
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < 2048:
        pytest.skip("this machine allows no such descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit, 2048), most))
    null = os.open(os.devnull, os.O_RDONLY)
    taken = [os.dup(null) for _ in range(1100)]
    try:
        first = pid(database)
        assert pid(database) == first
    finally:
        for descriptor in [null, *taken]:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def test_an_error_leaves_a_clean_connection(world: World) -> None:
    """WH-064."""
    with pytest.raises(psycopg.errors.UniqueViolation), world.database.transaction() as connection:
        connection.execute("insert into leasehook.tenants (name) values ('default')")
    assert not world.publish().repeated


def test_a_transaction_left_open_does_not_reach_the_next_borrower(database: Database) -> None:
    with database.connection() as connection:
        connection.execute("begin")
        left_open = connection.info.backend_pid
    assert pid(database) != left_open


def test_a_cancelled_statement_is_unavailability(database: Database) -> None:
    with pytest.raises(DatabaseUnavailable, match="57014"), database.connection() as connection:
        connection.execute("set statement_timeout = 1")
        connection.execute("select pg_sleep(10)")
    assert pid(database)


def test_a_database_that_turned_read_only_is_unavailability_and_reconnects(world: World) -> None:
    with (
        pytest.raises(DatabaseUnavailable, match="25006"),
        world.database.connection() as connection,
    ):
        connection.execute("set default_transaction_read_only = on")
        connection.execute("insert into leasehook.tenants (name) values ('x')")
    assert not world.publish().repeated


def test_nobody_listening_is_unavailability_that_names_no_host() -> None:
    database = Database("postgresql://someone:hidden@127.0.0.1:1/secretdb")
    with pytest.raises(DatabaseUnavailable) as refused, database.connection():
        pass
    assert not any(
        word in str(refused.value) for word in ("someone", "hidden", "127.0.0.1", "secretdb")
    )


@pytest.mark.parametrize(
    ("server", "meaning"),
    [
        ("127.0.0.1:1", "nothing listens at its host and port"),
        ("nowhere.invalid:5432", "its host's name is not known"),
    ],
)
def test_why_there_is_no_connection_is_said_in_words_of_ours(server: str, meaning: str) -> None:
    with (
        pytest.raises(DatabaseUnavailable, match=meaning) as refused,
        Database(f"postgresql://someone:hidden@{server}/secretdb").connection(),
    ):
        pass
    assert server.partition(":")[0] not in str(refused.value)


def test_a_user_that_is_refused_is_told_from_a_server_that_is_down(database_url: str) -> None:
    url = f"{database_url} user=nobody_{secrets.token_hex(4)} password=hidden"
    with (
        pytest.raises(DatabaseUnavailable, match="refused the user, the password") as refused,
        Database(url).connection(),
    ):
        pass
    assert "nobody_" not in str(refused.value)


@pytest.mark.parametrize(
    ("odd", "kind"),
    [
        ("host=a..b", ConfigurationError),
        (f"host={'a' * 64}.example", ConfigurationError),
        ("host=127.0.0.1 connect_timeout=soon", ConfigurationError),
        ("host=127.0.0.1 port=abc", DatabaseUnavailable),
        ("host=127.0.0.1 port=1 sslmode=perhaps", DatabaseUnavailable),
    ],
)
def test_parameters_that_postgres_does_not_take_are_said_to_be_none(
    odd: str, kind: type[LeasehookError]
) -> None:
    with (
        pytest.raises(kind, match="PostgreSQL takes") as refused,
        Database(f"{odd} user=someone password=hidden").connection(),
    ):
        pass
    assert "hidden" not in str(refused.value)


def test_a_transaction_that_lost_its_connection_does_not_seem_committed(world: World) -> None:
    with pytest.raises(DatabaseUnavailable), world.database.transaction() as connection:
        connection.execute("insert into leasehook.tenants (name) values ('lost')")
        world.sql("select pg_terminate_backend(%s, 20000)", connection.info.backend_pid)
        with contextlib.suppress(psycopg.Error):
            connection.execute("select 1")
    assert world.sql("select from leasehook.tenants where name = 'lost'") == []


def test_a_url_that_is_none_is_a_configuration_error_that_does_not_repeat_it() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Database("postgres//user:hidden@host")
    assert "hidden" not in str(refused.value)


def test_no_statement_is_prepared(world: World) -> None:
    """WH-049: prepared statements break behind transaction-mode poolers."""
    for _ in range(20):
        world.publish()
        world.claim()
    with world.database.connection() as connection:
        row = connection.execute("select count(*) as n from pg_prepared_statements").fetchone()
    assert row == {"n": 0}


def test_many_threads_share_a_database(database: Database) -> None:
    start = threading.Barrier(8)
    seen: list[int] = []

    def work() -> None:
        start.wait()
        seen.extend(pid(database) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 160
    assert len(set(seen)) <= 8
