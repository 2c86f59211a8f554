"""One Postgres for the whole run, one database per test, copied from a migrated template."""

import asyncio
import os
import secrets
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest

from shared.store.connection import Database
from shared.store.migrations import migrate
from tests.support.receiver import Receiver
from tests.support.servers import start_server
from tests.support.world import World

_SERVER_SETTINGS = {"max_connections": "200", "shared_buffers": "256MB", "max_wal_size": "4GB"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse tests that share an id: pytest-xdist runs one of them and says nothing of the others."""
    shared = [
        node_id for node_id, count in Counter(each.nodeid for each in items).items() if count > 1
    ]
    if shared:
        raise pytest.UsageError(f"several tests have the same id: {', '.join(shared)}")


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """DATABASE_URL's server, or one of our own that does not wait for the disk."""
    given = os.environ.get("DATABASE_URL")
    if given:
        yield given
        return
    data_dir = tmp_path_factory.mktemp("postgres")
    with start_server(data_dir, durable=False, settings=_SERVER_SETTINGS) as server:
        yield server.url()


@pytest.fixture(scope="session")
def template(server_url: str) -> Iterator[str]:
    """The name of a database with the current schema and nothing in it."""
    name = f"leasehook_template_{secrets.token_hex(4)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'create database "{name}"')
        database = Database(_with_database(server_url, name))
        migrate(database)
        database.close()
        yield name
        connection.execute(f'drop database "{name}" with (force)')


@pytest.fixture
def empty_database_url(server_url: str) -> Iterator[str]:
    """A database without a schema."""
    yield from temporary_database(server_url, "template1")


@pytest.fixture
def database_url(server_url: str, template: str) -> Iterator[str]:
    """A database of this test's own."""
    yield from temporary_database(server_url, template)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """Connections to this test's database."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def world(database: Database) -> World:
    """A tenant in this test's database, and what tests do to it."""
    return World(database)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A local HTTP server that answers as it is told and remembers what it got."""
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def lambda_event_loop() -> Iterator[None]:
    """An event loop of this thread, as a Lambda environment keeps one; Mangum would make one and leave it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def temporary_database(server_url: str, template: str) -> Iterator[str]:
    """The URL of a copy of a database, dropped afterwards."""
    name = f"leasehook_test_{secrets.token_hex(6)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'create database "{name}" template "{template}" strategy file_copy')
    yield _with_database(server_url, name)
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'drop database "{name}" with (force)')


def _with_database(url: str, name: str) -> str:
    return psycopg.conninfo.make_conninfo(url, dbname=name)
