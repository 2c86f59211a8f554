"""The registry of event types: what a tenant says about the events it publishes, and the schemas they must fit."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from shared.domain.matching import MAX_EVENT_TYPE_LENGTH, is_event_type, is_filter
from shared.errors import Conflict, Invalid, NotFound
from shared.json_schema import compile_schema
from shared.rules import is_storable
from shared.schema_extent import moved
from shared.store.connection import Connection, Database, Row, fetch

MAX_EVENT_TYPES = 2000
"""How many a tenant may register, archived ones included."""
MAX_DESCRIPTION_LENGTH = 5000
MAX_EXAMPLE_BYTES = 65_536
MAX_CATALOGUE_BYTES = 4_000_000
"""Of the types' texts in one OpenAPI document: a Lambda's answer may have 6 MB, base64 takes a third of it at worst."""

_UNDESCRIBED = "An event of this type."


def create(database: Database, tenant_id: UUID, name: str, fields: Mapping[str, Any]) -> Row:
    """Register a type. `fields` may hold `description`, `example` and `schema`; None is the same as absent.

    Returns: the type's row, with `version` 1.

    Raises:
        Invalid: a field breaks a rule, the schema is none, or the example does not fit it.
        Conflict: the type is registered already, or the tenant has MAX_EVENT_TYPES.
        DatabaseUnavailable: see `Database.connection`.
    """
    if not is_event_type(name):
        raise Invalid(
            "name",
            f"must be at most {MAX_EVENT_TYPE_LENGTH} characters: segments of letters, digits, '_' and '-', "
            "separated by full stops, such as order.paid",
        )
    key = {"tenant_id": tenant_id, "name": name}
    columns = _columns(fields)
    with database.as_tenant(tenant_id) as connection:
        rows = fetch(connection, "create_event_type", {**key, **columns, "most": MAX_EVENT_TYPES})
        if rows:
            return rows[0]
        if fetch(connection, "get_event_type", key):
            raise Conflict(f"the event type '{name}' is registered already: change it with PATCH")
    raise Conflict(f"a tenant may register {MAX_EVENT_TYPES} event types")


def change(database: Database, tenant_id: UUID, name: str, changes: Mapping[str, Any]) -> Row:
    """Change some of `description`, `example` and `schema`; None removes it. Every change raises `version`.

    The next publish that begins after this returned is judged by the new schema.

    Raises:
        NotFound: the tenant has no such type.
        Invalid: see `create`; the example must fit the schema, whichever of them changes.
        DatabaseUnavailable: see `Database.connection`.
    """
    key = {"tenant_id": tenant_id, "name": name}
    with database.as_tenant(tenant_id) as connection:
        rows = fetch(connection, "lock_event_type", key)
        if not rows:
            raise _unknown(name)
        if not changes:
            return rows[0]
        [row] = fetch(connection, "change_event_type", {**key, **_columns({**rows[0], **changes})})
    return row


def archive(database: Database, tenant_id: UUID, name: str, *, archived: bool) -> Row:
    """Refuse further events of a type, or accept them again; nothing changes if it is so already.

    Raises:
        NotFound: the tenant has no such type.
        DatabaseUnavailable: see `Database.connection`.
    """
    key = {"tenant_id": tenant_id, "name": name}
    with database.as_tenant(tenant_id) as connection:
        rows = fetch(connection, "archive_event_type", {**key, "archived": archived})
        return rows[0] if rows else _get(connection, key)


def get(database: Database, tenant_id: UUID, name: str) -> Row:
    """A type with its description, example, schema and version.

    Raises:
        NotFound: the tenant has no such type.
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.as_tenant(tenant_id) as connection:
        return _get(connection, {"tenant_id": tenant_id, "name": name})


def list_page(
    database: Database, tenant_id: UUID, *, after: str | None, archived: bool | None, limit: int
) -> list[Row]:
    """Up to `limit` types in the order of their names, from the one after `after` on, without schemas and examples.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.as_tenant(tenant_id) as connection:
        return fetch(
            connection,
            "list_event_types",
            {"tenant_id": tenant_id, "after": after, "archived": archived, "limit": limit},
        )


def catalogue(database: Database, tenant_id: UUID, event_type: str) -> dict[str, Any]:
    """An OpenAPI 3.1 document of the webhooks that a tenant sends: its types that are not archived.

    Args:
        database: where they are.
        tenant_id: whose.
        event_type: a filter as endpoints have them: a type, a prefix with `.*`, or `*`.

    Raises:
        Invalid: `event_type` is no filter.
        Conflict: the document would be larger than an answer may be.
        DatabaseUnavailable: see `Database.connection`.
    """
    if not is_filter(event_type):
        raise Invalid("event_type", "must be an event type, a prefix such as 'order.*', or '*'")
    with database.as_tenant(tenant_id) as connection:
        rows = fetch(
            connection,
            "catalogue_event_types",
            {
                "tenant_id": tenant_id,
                "event_type": event_type,
                "most_bytes": MAX_CATALOGUE_BYTES,
            },
        )
    if not rows[0]["fits"]:
        raise Conflict(
            "the schemas and examples are too large for one document: ask for some of the types with "
            "event_type, such as event_type=order.*"
        )
    types = [row for row in rows if row["name"] is not None]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Webhooks", "version": "1"},
        "webhooks": {row["name"]: {"post": _operation(row)} for row in types},
        "components": {
            "schemas": {
                row["name"]: moved(row["schema"], f"/components/schemas/{row['name']}")
                for row in types
                if row["schema"] is not None
            }
        },
    }


def _operation(row: Row) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if row["schema"] is not None:
        content["schema"] = {"$ref": f"#/components/schemas/{row['name']}"}
    if row["example"] is not None:
        content["example"] = row["example"]
    return {
        "operationId": row["name"],
        "description": row["description"] or _UNDESCRIBED,
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": {"2XX": {"description": "Received. Anything else is tried again."}},
    }


def _columns(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a user sets, judged together, JSON as text."""
    description, example, schema = (
        fields.get(name) for name in ("description", "example", "schema")
    )
    if description is not None and not is_storable(description, MAX_DESCRIPTION_LENGTH):
        raise Invalid(
            "description", f"must be at most {MAX_DESCRIPTION_LENGTH} characters, none of them NUL"
        )
    if len(msgspec.json.encode(example)) > MAX_EXAMPLE_BYTES:
        raise Invalid("example", f"must be at most {MAX_EXAMPLE_BYTES} bytes of JSON")
    fault = None
    if schema is not None:
        compiled = compile_schema(schema)
        fault = None if example is None else compiled.fault(example, "example")
    if fault is not None:
        raise fault
    return {"description": description, "example": _text(example), "schema": _text(schema)}


def _text(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _get(connection: Connection, key: Mapping[str, Any]) -> Row:
    rows = fetch(connection, "get_event_type", key)
    if not rows:
        raise _unknown(key["name"])
    return rows[0]


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no event type '{name}'")
