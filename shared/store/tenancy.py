"""Tenants, and the ids of rows that must know them before they are stored."""

from uuid import UUID

from shared.store.connection import Database


def ensure_tenant(database: Database, name: str) -> UUID:
    """The id of the tenant of that name, made if there is none."""
    while True:
        rows = database.fetch("ensure_tenant", {"name": name})
        if rows:  # none: another transaction made it while this statement ran
            return UUID(str(rows[0]["id"]))


def new_id(database: Database) -> UUID:
    """A time-ordered id for a row that must know its id before it is stored."""
    return UUID(str(database.fetch("new_id", {})[0]["id"]))
