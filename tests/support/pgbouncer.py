"""A real PgBouncer in front of a test's Postgres, in transaction mode: a client has a server for one transaction only."""

import shutil
import socket
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from infra.postgres.account import account_for, give
from infra.postgres.process import Launcher

# Debian puts it where an ordinary user's PATH does not lead.
_PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")

MISSING = None if _PROGRAM else "there is no pgbouncer here: apt-get install pgbouncer"
"""Why there is none; None if there is one."""


class PgBouncer:
    """A running pooler with the user and the password of the database URL, and as many servers as it is allowed.

    Settings are those of pgbouncer.ini.
    """

    def __init__(self, database_url: str, **settings: str) -> None:
        self._target = {
            name: str(value) for name, value in conninfo_to_dict(database_url).items() if value
        }
        self._settings = settings
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = str(probe.getsockname()[1])

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            directory = Path(tempfile.mkdtemp(prefix="pgbouncer-", dir="/tmp"))
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            account = account_for(directory / "none")
            for name, text in (("users.txt", self._users()), ("pgbouncer.ini", self._ini())):
                path = directory / name
                path.write_text(text)
                path.chmod(0o600)
                give(path, account)
            give(directory, account)
            log = stack.enter_context((directory / "log").open("wb"))
            assert _PROGRAM is not None, MISSING
            launcher = Launcher(Path(_PROGRAM).parent, account, log, log.fileno(), directory)
            child = launcher.spawn(
                "pgbouncer", "pgbouncer.ini", directory=directory, environment={}
            )
            # It is wanted gone, not gone in good order.
            stack.callback(child.wait, 0)
            self._await_ready(directory / "log")
            self._leftovers = stack.pop_all()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._leftovers.close()

    @property
    def url(self) -> str:
        """The database URL that leads through here."""
        return make_conninfo(**self._target | {"host": "127.0.0.1", "port": self._port})

    def command(self, text: str) -> None:
        """Run a command of its console, such as `KILL`."""
        with psycopg.connect(self.url, dbname="pgbouncer", autocommit=True) as console:
            console.pgconn.exec_(text.encode())

    def _users(self) -> str:
        return f'"{self._target["user"]}" "{self._target["password"]}"\n'

    def _ini(self) -> str:
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self._port,
            "unix_socket_dir": "",
            "auth_type": "scram-sha-256",
            "auth_file": "users.txt",
            "admin_users": self._target["user"],
            "pool_mode": "transaction",
            "max_client_conn": "1000",
            **self._settings,
        }
        address = f"host={self._target['host']} port={self._target['port']}"
        lines = [f"{name} = {value}" for name, value in settings.items()]
        return "\n".join(["[databases]", f"* = {address}", "[pgbouncer]", *lines, ""])

    def _await_ready(self, log: Path) -> None:
        deadline = time.monotonic() + 10
        while True:
            try:
                psycopg.connect(self.url).close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"PgBouncer does not serve: {log.read_text()}") from None
                time.sleep(0.01)
            else:
                return
