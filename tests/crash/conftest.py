"""What crash tests share."""

from collections.abc import Iterator

import pytest

from tests.support.proxy import Proxy
from tests.support.servers import PostgresServer, start_server


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    """The way to this test's database that can be cut."""
    with Proxy(database_url) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def durable_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server of the crash tests' own, which keeps its promises through a crash: they may kill it."""
    with start_server(tmp_path_factory.mktemp("durable-postgres")) as server:
        yield server
