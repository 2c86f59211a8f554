"""What a running `leasehook dev` tells the other commands: a file per port in the user's state directory.

The file is locked for as long as its process lives, so a file that a killed process left behind is told from a live
one even when the process id has been given to another program since.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from shared.errors import LeasehookError


class StateError(LeasehookError):
    """The state directory cannot be used; the message says what to do."""


class DevState(msgspec.Struct, frozen=True, kw_only=True):
    """A running `leasehook dev`.

    `settings` are the environment variables with which another process works on the same data.
    """

    pid: int
    url: str
    api_key: str
    settings: dict[str, str]

    def __repr__(self) -> str:
        return f"<leasehook dev at {self.url}, process {self.pid}>"

    @property
    def database_url(self) -> str:
        """Of the embedded Postgres, password included."""
        return self.settings["DATABASE_URL"]


def state_directory(environment: Mapping[str, str]) -> Path:
    """Where the files lie: `$XDG_STATE_HOME/leasehook`, by default below `~/.local/state`."""
    base = environment.get("XDG_STATE_HOME", "")
    return (Path(base) if base else Path.home() / ".local" / "state") / "leasehook"


@contextmanager
def published(state: DevState, directory: Path, port: int) -> Iterator[None]:
    """Keep the state readable, for this user only, while the block runs.

    Raises:
        StateError: the directory cannot be written.
    """
    path = directory / f"dev-{port}.json"
    staging = path.with_suffix(f".{os.getpid()}.new")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_dead(directory)
        descriptor = os.open(staging, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise StateError(
            f"{directory} cannot be written ({error.strerror}): set XDG_STATE_HOME to a directory of yours"
        ) from None
    with os.fdopen(descriptor, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(msgspec.json.encode(state))
        file.flush()
        staging.replace(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def live_states(directory: Path) -> list[DevState]:
    """The running ones, the one started last first."""
    found = []
    for path in directory.glob("dev-*.json"):
        with suppress(OSError, msgspec.MsgspecError), path.open("rb") as file:
            if not _is_locked(file.fileno()):
                continue
            started = os.fstat(file.fileno()).st_mtime_ns
            found.append((started, msgspec.json.decode(file.read(), type=DevState)))
    return [state for _, state in sorted(found, key=lambda item: item[0], reverse=True)]


def _remove_dead(directory: Path) -> None:
    for path in directory.glob("dev-*.json"):
        with suppress(OSError), path.open("rb") as file:
            if not _is_locked(file.fileno()):
                path.unlink()


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
