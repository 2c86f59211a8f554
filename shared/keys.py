"""API keys: who may use the API, and for what."""

from collections.abc import Sequence
from uuid import UUID

from shared.crypto import ApiKey, new_api_key
from shared.errors import Invalid, NotFound
from shared.rules import check_name
from shared.store.connection import Database, Row, fetch

SCOPES = ("publish", "read", "manage")
OPERATE = "operate"
"""The scope of an operator's key: everything, for every tenant."""


def create_key(
    database: Database, tenant_id: UUID, name: str, scopes: Sequence[str] = SCOPES
) -> Row:
    """Make a tenant's API key; the answer holds its text as `key`, which is shown this once and not stored.

    Raises:
        Invalid: the name cannot be stored, or there is no such scope for a tenant.
        DatabaseUnavailable: see `Database.connection`.
    """
    check_name("name", name)
    if not scopes or not set(scopes) <= set(SCOPES):
        raise Invalid("scopes", f"must be some of {', '.join(SCOPES)}")
    key = new_api_key()
    stored = _stored(key, tenant_id, name, [scope for scope in SCOPES if scope in scopes])
    with database.as_tenant(tenant_id) as connection:
        [row] = fetch(connection, "create_api_key", stored)
    return {"key": key.text, **row}


def create_operator_key(database: Database, name: str) -> Row:
    """Make an operator's key, which may do everything for every tenant; see `create_key`.

    Raises:
        Invalid: the name cannot be stored.
        DatabaseUnavailable: see `Database.connection`.
    """
    check_name("name", name)
    key = new_api_key()
    [row] = database.fetch("create_api_key", _stored(key, None, name, [OPERATE]))
    return {"key": key.text, **row}


def list_keys(database: Database, tenant_id: UUID, before: UUID | None, limit: int) -> list[Row]:
    """Up to `limit` of a tenant's keys, revoked ones too, newest first, of those made before `before`.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.as_tenant(tenant_id) as connection:
        return fetch(
            connection, "list_api_keys", {"tenant_id": tenant_id, "before": before, "limit": limit}
        )


def list_operator_keys(database: Database, before: UUID | None, limit: int) -> list[Row]:
    """Up to `limit` of the operators' keys; see `list_keys`.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    return database.fetch("list_operator_keys", {"before": before, "limit": limit})


def revoke_key(database: Database, tenant_id: UUID, key_id: UUID) -> None:
    """Make a tenant's key worthless, at once: every request looks its key up. Revoking it again changes nothing.

    Raises:
        NotFound: the tenant has no such key.
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.as_tenant(tenant_id) as connection:
        rows = fetch(connection, "revoke_api_key", {"tenant_id": tenant_id, "key_id": key_id})
    if not rows:
        raise _missing(key_id)


def revoke_operator_key(database: Database, key_id: UUID) -> None:
    """Make an operator's key worthless; see `revoke_key`.

    Raises:
        NotFound: there is no such operator's key.
        DatabaseUnavailable: see `Database.connection`.
    """
    if not database.fetch("revoke_operator_key", {"key_id": key_id}):
        raise _missing(key_id)


def _stored(key: ApiKey, tenant_id: UUID | None, name: str, scopes: list[str]) -> Row:
    return {
        "tenant_id": tenant_id,
        "name": name,
        "key_hash": key.key_hash,
        "key_prefix": key.key_prefix,
        "scopes": scopes,
    }


def _missing(key_id: UUID) -> NotFound:
    return NotFound(f"there is no key {key_id}")
