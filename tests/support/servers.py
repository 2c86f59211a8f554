"""The Postgres servers of tests: embedded, or in containers of the image that LEASEHOOK_TEST_POSTGRES_IMAGE names."""

import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import psycopg

if TYPE_CHECKING:
    from testcontainers.community.postgres import PostgresContainer

IMAGE_VARIABLE = "LEASEHOOK_TEST_POSTGRES_IMAGE"

_START_SECONDS = 60.0
_PORTS = range(20000, 32000)
"""Below those that the kernel gives to clients: one of them could take a killed server's port."""

_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


class PostgresServer(Protocol):
    """A server that may be crashed and started again, under the same address."""

    def url(self, database: str = "postgres") -> str:
        """A URL of the superuser."""

    def kill(self) -> None:
        """SIGKILL for all its processes; returns when they are gone."""

    def start(self) -> None:
        """Start it after `kill`; returns when it answers."""


@contextmanager
def start_server(
    data_dir: Path, *, durable: bool = True, settings: Mapping[str, str] | None = None
) -> Iterator[PostgresServer]:
    """A server while the block runs.

    Args:
        data_dir: of the embedded one; a container keeps its own.
        durable: False trades what a crash would leave for speed.
        settings: server settings by name.
    """
    image = os.environ.get(IMAGE_VARIABLE)
    if not image:
        from infra.postgres import start_postgres

        with start_postgres(data_dir, durable=durable, settings=settings) as embedded:
            yield embedded
        return
    chosen = ({} if durable else _NOT_DURABLE) | dict(settings or {})
    with _started_container(image, chosen) as container:
        yield container


@contextmanager
def _started_container(image: str, settings: Mapping[str, str]) -> Iterator[PostgresServer]:
    from testcontainers.community.postgres import PostgresContainer

    port, password = _free_port(), secrets.token_hex(16)
    # A port that the engine chose would be another one after each restart.
    container = PostgresContainer(
        image, username="postgres", password=password, dbname="postgres", driver=None
    ).with_bind_ports(5432, port)
    container.with_command([part for each in settings.items() for part in ("-c", "=".join(each))])
    run = os.environ.get("LEASEHOOK_ENGINE_RUN", "")
    # Parallel queries share memory through /dev/shm, of which a container has 64 MB by default.
    container.with_kwargs(labels={"leasehook.run": run}, shm_size="256m")
    with container:
        server = _Container(container, f"postgresql://postgres:{password}@127.0.0.1:{port}")
        server.wait_until_it_answers()
        yield server


class _Container:
    def __init__(self, container: "PostgresContainer", address: str) -> None:
        self._container = container.get_wrapped_container()
        self._address = address

    def url(self, database: str = "postgres") -> str:
        return f"{self._address}/{database}"

    def kill(self) -> None:
        self._container.kill(signal="KILL")
        self._container.wait(timeout=_START_SECONDS)

    def start(self) -> None:
        self._container.start()
        self.wait_until_it_answers()

    def wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return


def _free_port() -> int:
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
