"""One run of a server, from its start to the end of its last process."""

import ctypes
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from infra.postgres.account import Account, give, own_name
from infra.postgres.binaries import within_reach
from infra.postgres.cluster import make_cluster
from infra.postgres.errors import DataDirectoryInUse, PortTaken, PostgresError
from infra.postgres.home import Home
from infra.postgres.lock import Lock, await_deserted, locked
from infra.postgres.process import Child, Launcher

SOCKET_PORT = 5432

_START_TIMEOUT_SECONDS = 60.0
_STOP_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about a server that its sessions have in common, except for the port it got."""

    home: Home
    bin_dir: Path
    account: Account | None
    settings: Mapping[str, str]
    durable: bool


@dataclass(frozen=True, slots=True)
class Session:
    """A server that was started.

    Attributes:
        port: On 127.0.0.1; None if it listens on a socket only.
        scratch: The private directory of its socket.
    """

    postmaster: Child
    port: int | None
    scratch: Path
    _home: Home
    _ticket: str
    _leftovers: ExitStack

    def end(self) -> None:
        """Waits for the end of a postmaster that was told to stop, and of all others; leaves nothing behind."""
        self._leftovers.close()
        await_deserted(self._home, self._ticket)


def start_session(plan: Plan, port: int | None) -> Session:
    """Starts a server, after making its cluster if there is none, and waits until it is ready.

    Args:
        plan: Its home exists.
        port: On 127.0.0.1; 0 takes a free one, None listens on a socket only.

    Raises:
        PostgresError: It did not start, and nothing of it is left but its log.
    """
    with plan.home.explaining_refusals(), locked(plan.home) as lock:
        if port != 0:
            return _start(plan, lock, port)
        # Between choosing a port and listening on it somebody else may take it.
        with suppress(PortTaken):
            return _start(plan, lock, _free_port())
        return _start(plan, lock, _free_port())


def _start(plan: Plan, lock: Lock, port: int | None) -> Session:
    home, account = plan.home, plan.account
    with ExitStack() as leftovers:
        # The path of a socket may have about 100 characters, which TMPDIR alone can exceed.
        scratch = Path(tempfile.mkdtemp(prefix="leasehook-", dir="/tmp"))
        leftovers.callback(shutil.rmtree, scratch, ignore_errors=True)
        give(scratch, account)
        bin_dir = within_reach(plan.bin_dir, account, scratch)
        with home.fresh_log() as log:
            launcher = Launcher(bin_dir, account, log, lock.descriptor, scratch)
            if home.version() is None:
                make_cluster(home, launcher, durable=plan.durable)
            postmaster = _spawn_postmaster(plan, launcher, port)
        leftovers.callback(_remove_shared_memory, home, postmaster.process.pid)
        leftovers.callback(postmaster.wait, _STOP_TIMEOUT_SECONDS)
        try:
            _await_ready(home, postmaster, port)
        except BaseException:
            postmaster.kill()
            raise
        return Session(postmaster, port, scratch, home, lock.ticket, leftovers.pop_all())


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _spawn_postmaster(plan: Plan, launcher: Launcher, port: int | None) -> Child:
    data, previous = plan.home.data, plan.home.pid_file()
    settings = {
        **plan.settings,
        "listen_addresses": "" if port is None else "127.0.0.1",
        "port": str(SOCKET_PORT if port is None else port),
        "unix_socket_directories": str(launcher.scratch) if port is None else "",
    }
    return launcher.spawn(
        "postgres",
        *("-D", own_name(data, plan.account)),
        *(argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")),
        directory=data,
        # Whatever process has the id that a killed server left in `postmaster.pid` must not keep this one
        # from starting. Whether that server still runs, Postgres also tells by its shared memory.
        environment={"PG_GRANDPARENT_PID": str(previous.pid)} if previous else {},
    )


def _await_ready(home: Home, postmaster: Child, port: int | None) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if postmaster.process.poll() is not None:
            raise _refusal(home, port)
        running = home.pid_file()
        if running and running.pid == postmaster.process.pid and running.status == "ready":
            return
        time.sleep(_POLL_SECONDS)
    raise PostgresError(
        f"Postgres was not ready within {_START_TIMEOUT_SECONDS:.0f} s.{home.last_words()}"
    )


def _refusal(home: Home, port: int | None) -> PostgresError:
    words = home.last_words()
    if "Address already in use" in words:
        return PortTaken(
            f"Another program listens on port {port} of 127.0.0.1. "
            "Stop it, or choose another port (0 takes a free one)."
        )
    if "pre-existing shared memory block" in words and (other := home.pid_file()):
        return DataDirectoryInUse(
            f"{home.root} is in use by a Postgres server that was started by other means, process {other.pid}. "
            f"Stop it with `kill -INT {other.pid}`, or choose another data directory."
        )
    return PostgresError(f"Postgres did not start.{words}")


def _remove_shared_memory(home: Home, pid: int) -> None:
    """Removes the segment that outlives a killed server; an orderly end leaves neither it nor the file."""
    left = home.pid_file()
    if left is not None and left.pid == pid and left.shared_memory_id is not None:
        remove = 0  # IPC_RMID, on Linux and macOS
        ctypes.CDLL(None).shmctl(left.shared_memory_id, remove, None)
