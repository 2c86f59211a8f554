"""Making a database cluster."""

import os
import secrets
import shutil
from pathlib import Path

from infra.postgres.account import give, own_name
from infra.postgres.binaries import version_of
from infra.postgres.errors import PostgresError
from infra.postgres.home import Home
from infra.postgres.process import Launcher


def make_cluster(home: Home, launcher: Launcher, *, durable: bool) -> None:
    """Makes the cluster with a password of its own; a crash leaves it complete or absent.

    Raises:
        PostgresError: `initdb` failed; the message has its reasons.
    """
    staging = home.root / "cluster.new"
    if staging.exists():
        shutil.rmtree(staging)
    staging.mkdir(mode=0o700)
    password, data = staging / home.password.name, staging / home.data.name
    password.touch(mode=0o600)
    password.write_text(secrets.token_urlsafe(32))
    data.mkdir(mode=0o700)
    for path in (password, data, staging):
        give(path, launcher.account)
    directory = own_name(data, launcher.account)
    # Stretching a random password of 256 bits protects nothing, and doubles the time of a connect.
    scram = ("--set=scram_iterations=1",) if (version_of(launcher.bin_dir) or 0) >= 16 else ()
    initdb = launcher.spawn(
        "initdb",
        f"--pgdata={directory}",
        f"--pwfile={directory}/../{password.name}",
        "--username=postgres",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        *scram,
        *(() if durable else ("--no-sync",)),
        directory=data,
        environment={},
    )
    if initdb.wait() != 0:
        raise PostgresError(f"The database cluster could not be made.{home.last_words()}")
    if durable:
        _sync(password)
        _sync(staging)
    staging.rename(home.cluster)
    if durable:
        _sync(home.root)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
