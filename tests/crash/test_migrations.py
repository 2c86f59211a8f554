"""Migrations that race and migrations that are killed: one history, complete, and everybody ends well (WH-060)."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from shared.store.migrations import load
from tests.support.proxy import Moment, Proxy
from tests.support.servers import PostgresServer
from tests.support.workers import Worker

pytestmark = pytest.mark.crash


@pytest.fixture
def virgin_urls(durable_server: PostgresServer) -> Iterator[tuple[str, str]]:
    """Two empty databases on a server that has never heard of Leasehook: its role does not exist either."""
    names = [f"virgin_{secrets.token_hex(4)}" for _ in range(2)]
    with psycopg.connect(durable_server.url(), autocommit=True) as connection:
        for name in names:
            connection.execute(f"create database {name} template template0".encode())
        yield durable_server.url(names[0]), durable_server.url(names[1])
        for name in names:
            connection.execute(f"drop database {name} with (force)".encode())
        connection.execute("drop role if exists leasehook_publisher")


def history(url: str) -> list[tuple[int, str]]:
    """Version and checksum of every migration that was applied."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("select version, checksum from leasehook.migrations").fetchall()
    return sorted(rows)


COMPLETE_HISTORY = [(migration.version, migration.checksum) for migration in load()]
NAMES = sorted(f"{migration.version:04}_{migration.name}" for migration in load())


def environment(url: str) -> dict[str, str]:
    return {"DATABASE_URL": url}


@pytest.mark.parametrize("round_number", range(5))
def test_eight_processes_at_once_apply_each_migration_once(
    virgin_urls: tuple[str, str], round_number: int
) -> None:
    """In the last round they work on two databases of the server, whose role they all want to make."""
    urls = [virgin_urls[n % 2 if round_number == 4 else 0] for n in range(8)]
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker("migrate", environment(url))) for url in urls]
        applied = [name for worker in workers for name in worker.answer()["applied"]]

    assert sorted(applied) == sorted(NAMES * len(set(urls)))
    for url in set(urls):
        assert history(url) == COMPLETE_HISTORY


def test_a_migration_that_is_killed_half_way_leaves_nothing_and_is_applied_again(
    virgin_urls: tuple[str, str],
) -> None:
    url, _ = virgin_urls
    first_line = load()[0].text.partition("\n")[0]
    with (
        Proxy(url) as proxy,
        proxy.hold(first_line, Moment.AFTER) as half_way,
        Worker("migrate", environment(proxy.url)) as worker,
    ):
        half_way.wait()
        worker.kill()
    with psycopg.connect(url) as connection:
        left = connection.execute("select to_regnamespace('leasehook')").fetchone()
    assert left == (None,)
    with (
        Worker("migrate", environment(url)) as first,
        Worker("migrate", environment(url)) as second,
    ):
        applied = first.answer()["applied"] + second.answer()["applied"]

    assert sorted(applied) == NAMES
    assert history(url) == COMPLETE_HISTORY
