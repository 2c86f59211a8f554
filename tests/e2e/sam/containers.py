"""The network and the Postgres that the functions' containers meet. All of it carries the run's label."""

import json
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from tests.e2e.with_engine import RUN_LABEL

_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Network:
    """A network of the engine. `gateway` is this machine's address on it."""

    name: str
    gateway: str
    subnet: str


@dataclass(frozen=True, slots=True)
class Postgres:
    """A server in a container."""

    name: str
    password: str = field(repr=False)
    published: str = field(repr=False)
    """The URL that reaches it from this machine."""

    def url(self, *, with_password: bool = True) -> str:
        """The URL that reaches it from the network."""
        password = f":{self.password}" if with_password else ""
        return f"postgresql://leasehook{password}@{self.name}:5432/leasehook"


@contextmanager
def network(run: str) -> Iterator[Network]:
    """A network while the block runs. Containers that are on it at the end go with it: SAM leaves some behind."""
    name = f"leasehook-e2e-{run}"
    docker("network", "create", "--label", f"{RUN_LABEL}={run}", name)
    try:
        [inspected] = json.loads(docker("network", "inspect", name))
        [addresses] = inspected["IPAM"]["Config"]
        yield Network(name, addresses["Gateway"], addresses["Subnet"])
    finally:
        for container in docker("ps", "-aq", "--filter", f"network={name}").split():
            docker("rm", "-fv", container)
        docker("network", "rm", name)


@contextmanager
def postgres(image: str, on: Network, run: str) -> Iterator[Postgres]:
    """A server on the network while the block runs, with a database `leasehook`."""
    name = f"{on.name}-postgres"
    password = secrets.token_hex(16)
    docker(
        *("run", "--detach", "--pull", "never", "--name", name, "--label", f"{RUN_LABEL}={run}"),
        *("--network", on.name, "--publish", "127.0.0.1::5432"),
        *("--env", "POSTGRES_USER=leasehook", "--env", f"POSTGRES_PASSWORD={password}"),
        image,
    )
    try:
        [inspected] = json.loads(docker("inspect", name))
        [published] = inspected["NetworkSettings"]["Ports"]["5432/tcp"]
        url = f"postgresql://leasehook:{password}@127.0.0.1:{published['HostPort']}/leasehook"
        _wait_until_it_answers(url)
        yield Postgres(name, password, url)
    finally:
        docker("rm", "-fv", name)


def docker(*arguments: str) -> str:
    """Run a command of the engine; its output.

    Raises:
        RuntimeError: it failed; the message is the engine's.
    """
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"docker {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def _wait_until_it_answers(url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
