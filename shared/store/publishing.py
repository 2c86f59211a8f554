"""Storing events: the calls of `leasehook.publish_bytes`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from shared.errors import Conflict, Forbidden, LeasehookError, Unauthorized
from shared.store.connection import Database, Row, fetch

MAX_TYPES_REFUSED = 50
"""How many types one answer names: each brings its schema along."""

_KEY_CONFLICT = "LH409"
_NO_PLACES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NewEvent:
    """A valid event that is not stored yet. `payload` holds the bytes that will be stored, signed and sent."""

    type: str
    payload: bytes
    content_type: str
    consumer: str | None = None
    idempotency_key: str | None = None
    deliver_at: datetime | None = None
    priority: int = 0
    channels: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """A committed event; `repeated` says that its idempotency key had been used for it before."""

    event_id: UUID
    tenant_id: UUID
    delivery_count: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class RefusedType:
    """An event type that stands in the way of a publish.

    Attributes:
        name: the event type.
        version: the version in force.
        schema: the JSON text of its schema; None if it is archived and has none.
        archived: no event of this type is accepted.
        positions: which of the events it is about, from 0.
    """

    name: str
    version: int
    schema: str | None
    archived: bool
    positions: Sequence[int]


class TypesRefused(LeasehookError):
    """Nothing was published: types are archived, or have schemas that the payloads were not judged by.

    `shared.enforcement` judges them and publishes again.
    """

    def __init__(self, types: Sequence[RefusedType]) -> None:
        super().__init__(
            f"event types with a schema or archived: {', '.join(t.name for t in types)}"
        )
        self.types = types


def publish(
    database: Database, key_hash: bytes, event: NewEvent, schema_version: int = 0
) -> Published:
    """Store an event and its deliveries for the tenant of an API key, in one round trip.

    Args:
        database: where to.
        key_hash: of the API key.
        event: what to store.
        schema_version: the version of the event's type whose schema the payload fits; 0 if it was judged by none.

    Raises:
        TypesRefused: another version is in force, and has a schema; or the type is archived.
        Unauthorized: the key is not known.
        Forbidden: the key may not publish.
        Conflict: the idempotency key was used for another event.
        DatabaseUnavailable: it is not known to be stored.
    """
    parameters = asdict(event) | {"schema_version": schema_version}
    with _conflicts():
        [published] = _publish(database, "publish", parameters, key_hash)
    return published


def publish_batch(
    database: Database,
    key_hash: bytes,
    events: Sequence[NewEvent],
    schema_versions: Sequence[int] | None = None,
) -> list[Published]:
    """Store several events, at least one, in one transaction: all of them or none.

    `schema_versions` holds one version per event, as in `publish`; None is 0 for all.

    Raises:
        TypesRefused, Unauthorized, Forbidden, Conflict, DatabaseUnavailable: see `publish`.
    """
    names = [field.name for field in fields(NewEvent)]
    columns: dict[str, Any] = {name: [getattr(event, name) for event in events] for name in names}
    columns["schema_version"] = list(schema_versions or [0] * len(events))
    # An array of arrays must be rectangular in SQL, so lists travel as JSON.
    columns["channels"] = [
        None if channels is None else Jsonb(channels) for channels in columns["channels"]
    ]
    with _conflicts(
        {key: f"events[{index}]." for index, key in enumerate(columns["idempotency_key"])}
    ):
        return _publish(
            database, "publish_batch", columns | {"most_types": MAX_TYPES_REFUSED}, key_hash
        )


def publish_as_tenant(
    database: Database, tenant_id: UUID, event: NewEvent, schema_version: int = 0
) -> Published:
    """Store an event for a tenant, for callers that reach the database themselves.

    Raises:
        TypesRefused, Conflict, DatabaseUnavailable: see `publish`.
    """
    parameters = asdict(event) | {"tenant_id": tenant_id, "schema_version": schema_version}
    with _conflicts(), database.connection() as connection:
        rows = fetch(connection, "publish_as_tenant", parameters)
    [published] = _published(rows)
    return published


def authorize(database: Database, key_hash: bytes, scope: str | None) -> Row:
    """The API key (id, tenant_id, name, scopes), if it is known and has the scope; None asks for no scope.

    Raises:
        Unauthorized: the key is not known or was revoked.
        Forbidden: it lacks the scope.
        DatabaseUnavailable: see `Database.connection`.
    """
    rows = database.fetch("find_api_key", {"key_hash": key_hash})
    if not rows:
        raise Unauthorized("the API key is not known, or was revoked")
    if scope is not None and scope not in rows[0]["scopes"]:
        raise Forbidden(f"the API key lacks the scope '{scope}'")
    return rows[0]


def _publish(
    database: Database, name: str, parameters: Mapping[str, Any], key_hash: bytes
) -> list[Published]:
    with database.connection() as connection:
        rows = fetch(connection, name, {**parameters, "key_hash": key_hash})
    if not rows:
        authorize(database, key_hash, "publish")
        # It was created, or given the scope, after the publish had looked for it.
        raise Unauthorized("the API key was not known a moment ago: send the request again")
    return _published(rows)


def _published(rows: Sequence[Row]) -> list[Published]:
    refused = [
        RefusedType(
            row["refused_type"], row["version"], row["schema"], row["archived"], row["positions"]
        )
        for row in rows
        if row["refused_type"] is not None
    ]
    if refused:
        raise TypesRefused(refused)
    return [
        Published(row["event_id"], row["tenant_id"], row["delivery_count"], row["repeated"])
        for row in rows
    ]


@contextmanager
def _conflicts(places: Mapping[str, str] = _NO_PLACES) -> Iterator[None]:
    """Turn the function's own error into ours. `places` says where in the request each key stands."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate != _KEY_CONFLICT:
            raise
        place = places.get(error.diag.message_detail or "", "")
        raise Conflict(
            f"{place}idempotency_key was used for another event: use a new key for a new event"
        ) from None
