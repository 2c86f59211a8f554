"""The application and two tenants that have one of everything."""

from collections.abc import Iterator

import pytest

from functions.api import create_app
from shared.keys import create_operator_key
from shared.runtime import Runtime
from tests.contract.estate import Estate, settle_down
from tests.management.conftest import Api, Client
from tests.support.world import World


@pytest.fixture
def client(world: World, database_url: str) -> Iterator[Client]:
    """The application without a limit, so that a request that changes nothing leaves no trace at all."""
    environment = world.environment(database_url, LEASEHOOK_API_REQUESTS_PER_MINUTE="0")
    runtime = Runtime.read(environment)
    client = Client(create_app(runtime))
    yield client
    client.close()
    runtime.database.close()


@pytest.fixture
def alpha(world: World, client: Client) -> Estate:
    """A tenant that has everything."""
    return settle_down(world, client, "alpha")


@pytest.fixture
def beta(world: World, client: Client, alpha: Estate) -> Estate:  # noqa: ARG001  # one after the other
    """Another one."""
    return settle_down(world, client, "beta")


@pytest.fixture
def operator(world: World, client: Client) -> Api:
    """The API for an operator."""
    return Api(client, create_operator_key(world.database, "operator")["key"])
