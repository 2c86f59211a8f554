"""A primary's streaming standby: a second server that can take its place."""

import shutil
import subprocess
from pathlib import Path

from psycopg.conninfo import make_conninfo

from infra.postgres import Server, find_binaries, start_postgres
from infra.postgres.account import account_for, give
from infra.postgres.home import Home


def start_standby(primary: Server, primary_dir: Path, data_dir: Path) -> Server:
    """Copy a running primary and start the copy, which follows it.

    Args:
        primary: the server to copy.
        primary_dir: its data directory.
        data_dir: the copy's; it must not exist.
    """
    origin, home = Home(primary_dir), Home(data_dir)
    home.cluster.mkdir(mode=0o700, parents=True)
    subprocess.run(
        [
            find_binaries() / "pg_basebackup",
            f"--pgdata={home.data}",
            f"--dbname={_replication_url(primary)}",
            "--write-recovery-conf",
            "--wal-method=stream",
            "--checkpoint=fast",
            "--no-sync",
        ],
        check=True,
        capture_output=True,
    )
    shutil.copy(origin.password, home.password)
    account = account_for(origin.cluster)
    for path in (home.cluster, *home.cluster.rglob("*")):
        give(path, account)
    return start_postgres(data_dir)


def restart_as_standby(server: Server, data_dir: Path, primary: Server) -> None:
    """Start a stopped server again as the follower of the one that took its place."""
    home = Home(data_dir)
    signal, configuration = home.data / "standby.signal", home.data / "postgresql.auto.conf"
    address = _replication_url(primary).replace("'", "''")
    with configuration.open("a") as file:
        file.write(f"primary_conninfo = '{address}'\n")
    signal.touch()
    give(signal, account_for(home.cluster))
    server.start()


def _replication_url(primary: Server) -> str:
    return make_conninfo(primary.url("replication"), application_name="standby")
