"""The product as a SAM user runs it: built once, its functions in containers, Postgres in another."""

import base64
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.e2e.sam import containers
from tests.e2e.sam.containers import Network, Postgres
from tests.e2e.sam.sam import Sam
from tests.support.command_line import CommandLine
from tests.support.receiver import Receiver
from tests.support.relay import Relay

POSTGRES_IMAGE = "postgres:16"


@pytest.fixture(scope="session")
def network(run: str) -> Iterator[Network]:
    """The network of all containers."""
    with containers.network(run) as network:
        yield network


@pytest.fixture(scope="session")
def postgres(run: str, network: Network) -> Iterator[Postgres]:
    """The database's server."""
    with containers.postgres(POSTGRES_IMAGE, network, run) as postgres:
        yield postgres


@pytest.fixture(scope="session")
def secret_key() -> str:
    """What seals signing secrets."""
    return base64.b64encode(secrets.token_bytes(32)).decode()


@pytest.fixture(scope="session")
def sam(
    tmp_path_factory: pytest.TempPathFactory, network: Network, postgres: Postgres, secret_key: str
) -> Sam:
    """The build, with deliveries to this machine allowed."""
    parameters = {
        "DatabaseUrl": postgres.url(),
        "SecretKey": secret_key,
        "AllowTargets": network.subnet,
    }
    return Sam.build(tmp_path_factory.mktemp("sam"), network.name, parameters)


@pytest.fixture(scope="session")
def migrated(sam: Sam) -> list[str]:
    """The names of the migrations that the function applied to the empty database."""
    applied: list[str] = sam.invoke("MigrateFunction", "drain-once")["applied"]
    return applied


@pytest.fixture(scope="session")
def api_key(
    migrated: list[str],  # noqa: ARG001  # wanted for its effect
    postgres: Postgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """A key that the command line made, over the published port."""
    command_line = CommandLine(tmp_path_factory.mktemp("command-line"))
    key: str = command_line.json("keys", "create", DATABASE_URL=postgres.published)["key"]
    return key


@pytest.fixture(scope="session")
def api(sam: Sam, api_key: str) -> Iterator[httpx.Client]:
    """`sam local start-api`, and a client with a key."""
    headers = {"authorization": f"Bearer {api_key}"}
    with (
        sam.api() as url,
        httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client,
    ):
        yield client


@pytest.fixture
def reachable(network: Network) -> Iterator[Callable[[Receiver], str]]:
    """The address at which containers reach a receiver of this machine."""
    with ExitStack() as stack:
        yield (
            lambda receiver: (
                f"http://{network.gateway}:"
                f"{stack.enter_context(Relay(network.gateway, receiver.port)).port}"
            )
        )
