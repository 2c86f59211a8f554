"""The lock of a data directory: at most one server, and a sure sign of when the last of it has gone."""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from infra.postgres.errors import DataDirectoryInUse, PostgresError
from infra.postgres.home import Home, PidFile

_TIMEOUT_SECONDS = 1.0
_UNSETTLED_TIMEOUT_SECONDS = 15.0
_DESERTED_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Lock:
    """A held lock: its descriptor, and what stands in the file for as long as nobody else has got it."""

    descriptor: int
    ticket: str


@contextmanager
def locked(home: Home) -> Iterator[Lock]:
    """Holds the lock while the block runs; the processes that inherit the descriptor hold it longer.

    A server that is on its way out gets a moment to finish; a longer one if it says that it is stopping, or
    if there is none yet, as its making may have been given up.

    Raises:
        DataDirectoryInUse: It holds the lock all the same.
    """
    began = time.monotonic()
    while (descriptor := _try_lock(home)) is None:
        running = home.pid_file()
        settled = running is not None and running.status != "stopping"
        patience = _TIMEOUT_SECONDS if settled else _UNSETTLED_TIMEOUT_SECONDS
        if time.monotonic() - began > patience:
            raise _in_use(home, running)
        time.sleep(_POLL_SECONDS)
    try:
        ticket = f"{os.getpid()} {secrets.token_hex(8)}\n"
        os.ftruncate(descriptor, 0)
        os.write(descriptor, ticket.encode())
        yield Lock(descriptor, ticket)
    finally:
        os.close(descriptor)


def await_deserted(home: Home, ticket: str) -> None:
    """Waits until all processes have ended that inherited the lock with this ticket.

    The children of a postmaster that was killed from outside end a little later than it.
    """
    deadline = time.monotonic() + _DESERTED_TIMEOUT_SECONDS
    with suppress(FileNotFoundError):
        while _path(home).read_text() == ticket:
            if (descriptor := _try_lock(home)) is not None:
                os.close(descriptor)
                return
            if time.monotonic() > deadline:
                raise PostgresError(
                    f"The main process of the server in {home.root} has ended, but others of it still run. "
                    f"End them: they are the `postgres` processes that keep {_path(home)} open."
                )
            time.sleep(_POLL_SECONDS)


def _path(home: Home) -> Path:
    return home.root / "lock"


def _try_lock(home: Home) -> int | None:
    descriptor = os.open(_path(home), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _in_use(home: Home, running: PidFile | None) -> DataDirectoryInUse:
    starter = _path(home).read_text().partition(" ")[0] or "unknown"
    holder = (
        f"process {starter}, which is setting it up"
        if running is None
        else f"the Postgres server with process id {running.pid}, started by process {starter}"
    )
    return DataDirectoryInUse(
        f"{home.root} is in use by {holder}. Stop that one, or choose another data directory."
    )
