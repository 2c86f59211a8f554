"""Forward-only migrations: the numbered `.sql` files of this folder, each applied once, in order.

Expand first, contract in a later release: a migration must leave the functions of the release before working.
"""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from psycopg import sql

from shared.errors import LeasehookError
from shared.store.connection import Connection, Database

# Held for one migration's transaction at a time; any number of processes may migrate at once.
_LOCK_KEY = 0x6C656173  # "leas"


class MigrationError(LeasehookError):
    """The database's history and these files do not fit together."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file. `checksum` is the SHA-256 of its text."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """What must not change once the migration has been applied anywhere."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def load() -> list[Migration]:
    """The migrations that ship with this code, in order."""
    found = sorted(file.name for file in files(__package__).iterdir() if file.name.endswith(".sql"))
    return [
        Migration(
            int(name[:4]), name[5:-4], files(__package__).joinpath(name).read_text(encoding="utf-8")
        )
        for name in found
    ]


def migrate(database: Database) -> list[str]:
    """Bring the schema up to date; returns the names of the migrations that were applied, none when it was.

    Each migration is one transaction under an advisory lock, with its row in `leasehook.migrations` written by the
    same transaction: a process that is killed half-way leaves nothing, and of several that run at once one does the
    work while the others wait and find it done.

    Raises:
        MigrationError: the database is ahead of this code, or an applied migration's text has changed.
        DatabaseUnavailable: see `Database.connection`.
    """
    applied_now = []
    # An index on a large table takes what it takes, and so does whoever holds the lock.
    database = database.allowing(None)
    for migration in load():
        with database.transaction() as connection:
            connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK_KEY])
            applied = _history(connection)
            check(applied, load())
            if migration.version in applied:
                continue
            connection.execute(sql.SQL(migration.text))
            connection.execute(
                "insert into leasehook.migrations (version, name, checksum) values (%s, %s, %s)",
                [migration.version, migration.name, migration.checksum],
            )
            applied_now.append(f"{migration.version:04}_{migration.name}")
    return applied_now


def check(applied: dict[int, str], known: list[Migration]) -> None:
    """Refuse a history that these files do not continue.

    Args:
        applied: version → checksum, as the database has it.
        known: the migrations of this code.

    Raises:
        MigrationError: see `migrate`.
    """
    checksums = {migration.version: migration.checksum for migration in known}
    ahead = sorted(set(applied) - set(checksums))
    if ahead:
        raise MigrationError(
            f"the database has migration {ahead[-1]:04} and this code ends at {max(checksums):04}: "
            "deploy the newer code instead"
        )
    for version, checksum in applied.items():
        if checksums[version] != checksum:
            raise MigrationError(
                f"migration {version:04} was applied with another text: restore the file, and put the change into a new one"
            )


def _history(connection: Connection) -> dict[int, str]:
    connection.execute("create schema if not exists leasehook")
    connection.execute(
        """
        create table if not exists leasehook.migrations (
            version integer primary key,
            name text not null,
            checksum text not null,
            applied_at timestamptz not null default now()
        )
        """
    )
    rows = connection.execute("select version, checksum from leasehook.migrations").fetchall()
    return {row["version"]: row["checksum"] for row in rows}
