"""Starting a server, and what its user holds."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import quote

from infra.postgres.account import account_for
from infra.postgres.binaries import find_binaries
from infra.postgres.errors import PostgresError
from infra.postgres.home import Home
from infra.postgres.session import SOCKET_PORT, Plan, Session, start_session

_RESERVED_SETTINGS = frozenset(
    {"data_directory", "listen_addresses", "port", "unix_socket_directories"}
)
_SETTINGS = {
    # Shared memory in files of the data directory: a killed server leaves none in /dev/shm, which is
    # only 64 MB in a container anyway.
    "dynamic_shared_memory_type": "mmap",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
_FAST_BUT_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


def start_postgres(
    data_dir: Path,
    *,
    port: int | None = 0,
    settings: Mapping[str, str] | None = None,
    durable: bool = True,
    version: int | None = None,
) -> "Server":
    """Starts a server on `data_dir`, after making a cluster there if there is none, and waits until it is ready.

    The server stops when `stop` is called, when the `with` block ends, and when this process ends in any
    way, kill -9 included (processes that were forked from it without exec count as part of it).
    Started by root, it runs as the account that owns the cluster, else as `postgres` or `nobody`; the
    directory may nevertheless lie where that account cannot go, such as below /root.

    Args:
        data_dir: Made if missing. Any length, any characters.
        port: On 127.0.0.1; 0 takes a free one, None listens on a Unix socket only.
        settings: Server settings by name, as in postgresql.conf.
        durable: False trades the safety of committed rows in a crash of the machine for speed.
        version: The major version to run. None takes that of an existing cluster, else the preferred one.

    Raises:
        DataDirectoryInUse: A server runs there already, or is being started there.
        PostgresError: There are no binaries, the cluster is of another version, the port is taken, a
            setting is not accepted: the message says what to do.
        ValueError: `settings` names one that the arguments above decide.
    """
    chosen = dict(settings or {})
    if refused := sorted(_RESERVED_SETTINGS & chosen.keys()):
        raise ValueError(
            f"Leave {', '.join(refused)} out of settings: data_dir and port decide them."
        )
    home = Home(Path(os.path.abspath(data_dir)))  # noqa: PTH100 - resolve() would follow symbolic links
    with home.explaining_refusals():
        bin_dir = _binaries_for(home, version)
        account = account_for(home.cluster)
        # Root's directory lets the server's account pass through to the cluster, but not write beside it.
        home.root.mkdir(mode=0o700 if account is None else 0o711, parents=True, exist_ok=True)
    plan = Plan(
        home=home,
        bin_dir=bin_dir,
        account=account,
        settings=_SETTINGS | ({} if durable else _FAST_BUT_NOT_DURABLE) | chosen,
        durable=durable,
    )
    server = Server(plan, port)
    server.start()
    return server


class Server:
    """A Postgres server that this process started. Not for use by several threads at once."""

    __slots__ = ("_plan", "_port", "_session")

    def __init__(self, plan: Plan, port: int | None) -> None:
        self._plan = plan
        self._port = port
        self._session: Session | None = None

    def __repr__(self) -> str:
        state = (
            "stopped"
            if self._session is None
            else f"process {self._session.postmaster.process.pid}"
        )
        return f"<Postgres in {self._plan.home.root}, port {self._port}, {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The id of the postmaster, the server's main process.

        Raises:
            PostgresError: The server is not running.
        """
        return self._running().postmaster.process.pid

    @property
    def port(self) -> int | None:
        """The TCP port on 127.0.0.1, the same after every restart; None if there is only a socket."""
        return self._port

    def url(self, database: str = "postgres") -> str:
        """A libpq URL of the superuser, password included: do not log it.

        Raises:
            PostgresError: The server has no address, as it listens on a socket only and is not running.
        """
        credentials = f"postgres:{self._plan.home.password.read_text()}"
        name = quote(database, safe="")
        if self._port is not None:
            return f"postgresql://{credentials}@127.0.0.1:{self._port}/{name}"
        directory = quote(str(self._running().scratch), safe="")
        return f"postgresql://{credentials}@/{name}?host={directory}&port={SOCKET_PORT}"

    def start(self) -> None:
        """Starts the server after `stop` or `kill`, on the same port; see `start_postgres` for the errors."""
        if self._session is not None:
            raise PostgresError(f"The server is already running as process {self.pid}.")
        self._session = start_session(self._plan, self._port)
        self._port = self._session.port

    def stop(self) -> None:
        """Stops the server and waits until nothing of it is left; does nothing if it is not running.

        What is running is rolled back. After 30 seconds it becomes `kill`.
        """
        if self._session is not None:
            self._session.postmaster.process.send_signal(signal.SIGINT)
            self._end(self._session)

    def kill(self) -> None:
        """Crashes the server: SIGKILL for the postmaster and all its children; returns when all are gone.

        Raises:
            PostgresError: The server is not running.
        """
        session = self._running()
        session.postmaster.kill()
        self._end(session)

    def restart(self) -> None:
        """Starts the server again on the same port, after stopping it if it runs."""
        self.stop()
        self.start()

    def _running(self) -> Session:
        if self._session is None:
            raise PostgresError("The server is not running. Call start() first.")
        return self._session

    def _end(self, session: Session) -> None:
        self._session = None
        session.end()


def _binaries_for(home: Home, version: int | None) -> Path:
    if (home.root / "PG_VERSION").exists():
        raise PostgresError(
            f"{home.root} is the data directory of a Postgres that was set up by other means. "
            "Choose another directory, or start that server yourself and set DATABASE_URL."
        )
    existing = home.version()
    if existing is None or existing == version:
        return find_binaries(version)
    remedy = f"Dump it with Postgres {existing}, or remove {home.cluster} to begin with an empty database."
    if version is not None:
        raise PostgresError(
            f"{home.root} was made by Postgres {existing}, and version {version} was asked for. {remedy}"
        )
    try:
        return find_binaries(existing)
    except PostgresError as error:
        raise PostgresError(
            f"{home.root} was made by Postgres {existing}. {error} {remedy}"
        ) from error
