"""Whom root becomes to run Postgres, which refuses to run as root, and where that account can go."""

import os
import platform
import pwd
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from infra.postgres.errors import PostgresError


@dataclass(frozen=True, slots=True)
class Account:
    """An account by its numbers; where None stands for one, it is the account of this process."""

    uid: int
    gid: int


def account_for(cluster: Path) -> Account | None:
    """The account that owns the cluster, else `postgres` or `nobody`; None unless this process is root's."""
    if os.geteuid() != 0:
        return None
    with suppress(FileNotFoundError):
        owner = cluster.stat()
        return Account(owner.st_uid, owner.st_gid)
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise PostgresError(
        "Postgres refuses to run as root, and there is no account `postgres` or `nobody` to run it as. "
        "Create one with `useradd --system postgres`, or run this as an ordinary user."
    )


def give(path: Path, account: Account | None) -> None:
    """Makes `account` the owner of `path`."""
    if account is not None:
        os.chown(path, account.uid, account.gid)


def barrier(path: Path, account: Account | None) -> Path | None:
    """The first directory on the way to `path` that `account` cannot pass through."""
    return next(
        (step for step in reversed(path.parents) if account and not _can_pass(step, account)), None
    )


def own_name(directory: Path, account: Account | None) -> str:
    """What a program that is started inside `directory` shall call it.

    A directory that the account could not reach by its path is reached through /proc: the working
    directory is entered before root's rights are given up.
    """
    obstacle = barrier(directory, account)
    if obstacle is None:
        return str(directory)
    if platform.system() == "Linux":
        return "/proc/self/cwd"
    raise PostgresError(
        f"Started by root, Postgres runs as another account, and that one cannot pass {obstacle}. "
        "Choose a data directory outside of it, or run this as an ordinary user."
    )


def _can_pass(directory: Path, account: Account) -> bool:
    status = directory.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & 0o100)
    if status.st_gid == account.gid:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)
