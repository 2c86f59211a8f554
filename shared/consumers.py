"""Consumers: a tenant's customers, who get the events that are published for them and no others."""

from uuid import UUID

from shared.errors import Conflict, NotFound
from shared.rules import check_consumer, check_name
from shared.store.connection import Database, Row, fetch


def create_consumer(
    database: Database, tenant_id: UUID, consumer: str, name: str | None = None
) -> Row:
    """Make a consumer; returns its `id`, `name` and `created_at`.

    Raises:
        Invalid: a field breaks a rule.
        Conflict: the tenant has a consumer of that id.
        DatabaseUnavailable: see `Database.connection`.
    """
    check_consumer("id", consumer)
    check_name("name", name)
    with database.as_tenant(tenant_id) as connection:
        rows = fetch(
            connection,
            "create_consumer",
            {"tenant_id": tenant_id, "consumer": consumer, "name": name},
        )
    if not rows:
        raise Conflict("there is a consumer of that id: PATCH changes its name")
    return rows[0]


def list_consumers(database: Database, tenant_id: UUID, after: str | None, limit: int) -> list[Row]:
    """Up to `limit` consumers in the order of their ids, from the one after `after` on.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.as_tenant(tenant_id) as connection:
        return fetch(
            connection, "list_consumers", {"tenant_id": tenant_id, "after": after, "limit": limit}
        )


def get_consumer(database: Database, tenant_id: UUID, consumer: str) -> Row:
    """A consumer.

    Raises:
        NotFound: the tenant has no consumer of that id.
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.as_tenant(tenant_id) as connection:
        rows = fetch(connection, "get_consumer", {"tenant_id": tenant_id, "consumer": consumer})
    if not rows:
        raise _missing()
    return rows[0]


def rename_consumer(database: Database, tenant_id: UUID, consumer: str, name: str | None) -> Row:
    """Give a consumer another name, or none.

    Raises:
        Invalid: the name breaks a rule.
        NotFound: the tenant has no consumer of that id.
        DatabaseUnavailable: see `Database.connection`.
    """
    check_name("name", name)
    with database.as_tenant(tenant_id) as connection:
        rows = fetch(
            connection,
            "rename_consumer",
            {"tenant_id": tenant_id, "consumer": consumer, "name": name},
        )
    if not rows:
        raise _missing()
    return rows[0]


def delete_consumer(database: Database, tenant_id: UUID, consumer: str) -> None:
    """Delete a consumer that has no endpoints any more. What was published for it stays for its retention.

    Raises:
        NotFound: the tenant has no consumer of that id.
        Conflict: it has endpoints.
        DatabaseUnavailable: see `Database.connection`.
    """
    key = {"tenant_id": tenant_id, "consumer": consumer}
    with database.as_tenant(tenant_id) as connection:
        if not fetch(connection, "lock_consumer", key):
            raise _missing()
        if fetch(connection, "consumer_has_endpoints", key)[0]["found"]:
            raise Conflict(
                "the consumer has endpoints: delete them first; GET /v1/endpoints?consumer=… lists them"
            )
        fetch(connection, "forget_consumer", key)
        fetch(connection, "delete_consumer", key)


def _missing() -> NotFound:
    return NotFound("there is no consumer of that id")
