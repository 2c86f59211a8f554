"""Tenants, API keys, endpoints, deliveries: the rows that an operator makes and looks at."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from shared.crypto import ApiKey
from shared.store.connection import Database, Row, fetch


def ensure_tenant(database: Database, name: str) -> UUID:
    """The id of the tenant of that name, made if there is none."""
    while True:
        rows = database.fetch("ensure_tenant", {"name": name})
        if rows:  # none: another transaction made it while this statement ran
            return UUID(str(rows[0]["id"]))


def new_id(database: Database) -> UUID:
    """A time-ordered id for a row that must know its id before it is stored."""
    return UUID(str(database.fetch("new_id", {})[0]["id"]))


def create_api_key(
    database: Database, tenant_id: UUID, name: str, key: ApiKey, scopes: Sequence[str]
) -> Row:
    """Store a key's hash and prefix; returns id, tenant_id, name, key_prefix, scopes and created_at."""
    [row] = database.fetch(
        "create_api_key",
        {
            "tenant_id": tenant_id,
            "name": name,
            "key_hash": key.key_hash,
            "key_prefix": key.key_prefix,
            "scopes": list(scopes),
        },
    )
    return row


def create_endpoint(database: Database, endpoint: Mapping[str, Any]) -> Row:
    """Store an endpoint with its circuit and first secret, and its consumer if that is new; returns created_at."""
    with database.transaction() as connection:
        if endpoint["consumer"] is not None:
            fetch(connection, "ensure_consumer", endpoint)
        [row] = fetch(connection, "create_endpoint", endpoint)
    return row


def list_endpoints(
    database: Database, tenant_id: UUID, after: UUID | None, limit: int
) -> list[Row]:
    """Up to `limit` endpoints in the order of their ids, from the one after `after` on."""
    return database.fetch(
        "list_endpoints", {"tenant_id": tenant_id, "after": after, "limit": limit}
    )


def list_deliveries(
    database: Database,
    tenant_id: UUID,
    *,
    status: str | None = None,
    endpoint_id: UUID | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> list[Row]:
    """Up to `limit` deliveries, newest first, from the one before `before` on."""
    return database.fetch(
        "list_deliveries",
        {
            "tenant_id": tenant_id,
            "status": status,
            "endpoint_id": endpoint_id,
            "before": before,
            "limit": limit,
        },
    )


def get_delivery(
    database: Database, tenant_id: UUID, delivery_id: UUID
) -> tuple[Row, list[Row]] | None:
    """A delivery and its attempts, oldest first; None if the tenant has no such delivery."""
    key = {"tenant_id": tenant_id, "delivery_id": delivery_id}
    with database.connection() as connection:
        rows = fetch(connection, "get_delivery", key)
        return (rows[0], fetch(connection, "list_attempts", key)) if rows else None


def replay_delivery(database: Database, tenant_id: UUID, delivery_id: UUID) -> Row | None:
    """Ask for a delivery again; `replayed` says whether its state (`status_before`) allowed it. None: no such."""
    rows = database.fetch("replay_delivery", {"tenant_id": tenant_id, "delivery_id": delivery_id})
    return rows[0] if rows else None
