"""Tenants: the owners of everything, made and listed by operators."""

from uuid import UUID

from shared.errors import Conflict, NotFound
from shared.rules import check_name
from shared.store.connection import Database, Row


def create_tenant(database: Database, name: str) -> Row:
    """Make a tenant; returns its `id`, `name` and `created_at`.

    Raises:
        Invalid: the name breaks a rule.
        Conflict: there is a tenant of that name.
        DatabaseUnavailable: see `Database.connection`.
    """
    check_name("name", name)
    rows = database.fetch("create_tenant", {"name": name})
    if not rows:
        raise Conflict("there is a tenant of that name: choose another")
    return rows[0]


def list_tenants(database: Database, before: UUID | None, limit: int) -> list[Row]:
    """Up to `limit` tenants, newest first, of those made before `before`.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    return database.fetch("list_tenants", {"before": before, "limit": limit})


def get_tenant(database: Database, tenant_id: UUID) -> Row:
    """A tenant.

    Raises:
        NotFound: there is none of that id.
        DatabaseUnavailable: see `Database.connection`.
    """
    rows = database.fetch("get_tenant", {"tenant_id": tenant_id})
    if not rows:
        raise NotFound(f"there is no tenant {tenant_id}")
    return rows[0]
