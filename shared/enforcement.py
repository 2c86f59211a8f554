"""Publishing by the rules of the event types: a payload is judged by the schema in force, and then stored, or neither.

The steady state is one round trip. The publisher says which version of the type it judged by, and the statement publishes
only if that is the version in force; else it answers with that one, and the publisher judges again. So a change of a
schema takes effect in every process with the first publish that begins after it, without asking first.

Only whoever publishes through here (HTTP, command line) is held to the schemas. `leasehook.publish` in SQL is not: Postgres
cannot judge a JSON Schema, and its callers are the operator's own code.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from shared.errors import Conflict, Invalid
from shared.json_schema import Schema, compile_schema
from shared.store import publishing
from shared.store.connection import Database
from shared.store.publishing import (
    MAX_TYPES_REFUSED,
    NewEvent,
    Published,
    RefusedType,
    TypesRefused,
)

MAX_KEPT_EXTENT = 5000
"""Of all the schemas that a process keeps compiled; see `shared.schema_extent`. A hundred usual ones, 130 MB at worst."""

# How often a type may change while it is published.
_MAX_ROUNDS = 5

Owner = bytes | UUID
"""Whose types: the hash of an API key, or the id of a tenant."""


@dataclass(frozen=True, slots=True)
class SchemaInForce:
    """A compiled schema, and the version of the event type that has it."""

    version: int
    schema: Schema


class KnownSchemas:
    """The schemas that this process has met, within a bound; those that were not used for longest go first.

    What it holds may be out of date at any time: the database says so when it matters. Safe for several threads.
    """

    def __init__(self, max_extent: int = MAX_KEPT_EXTENT) -> None:
        self._max_extent = max_extent
        self._extent = 0
        self._kept: OrderedDict[tuple[Owner, str], SchemaInForce] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, owner: Owner, event_type: str) -> SchemaInForce | None:
        """The last schema met of a type, None if there was none or it is not kept any more."""
        with self._lock:
            found = self._kept.get((owner, event_type))
            if found is not None:
                self._kept.move_to_end((owner, event_type))
            return found

    def keep(self, owner: Owner, event_type: str, met: SchemaInForce) -> None:
        """Remember a schema instead of the one before it."""
        with self._lock:
            before = self._kept.pop((owner, event_type), None)
            self._extent += met.schema.extent - (before.schema.extent if before else 0)
            self._kept[owner, event_type] = met
            while self._extent > self._max_extent:
                _, dropped = self._kept.popitem(last=False)
                self._extent -= dropped.schema.extent


def publish(database: Database, known: KnownSchemas, key_hash: bytes, event: NewEvent) -> Published:
    """Store an event whose payload fits its type, and its deliveries.

    Raises:
        Invalid: the payload does not fit the type's schema, or the type is archived; names the place in the payload.
        Unauthorized, Forbidden, Conflict, DatabaseUnavailable: see `shared.store.publishing.publish`.
    """

    def attempt(versions: Sequence[int]) -> list[Published]:
        return [publishing.publish(database, key_hash, event, versions[0])]

    [published] = _publish(known, key_hash, [event], attempt, lambda _: "")
    return published


def publish_batch(
    database: Database, known: KnownSchemas, key_hash: bytes, events: Sequence[NewEvent]
) -> list[Published]:
    """Store several events, at least one, whose payloads fit their types, in one transaction: all of them or none.

    Raises:
        Invalid: see `publish`; the place begins with the event's index.
        Unauthorized, Forbidden, Conflict, DatabaseUnavailable: see `shared.store.publishing.publish`.
    """

    def attempt(versions: Sequence[int]) -> list[Published]:
        return publishing.publish_batch(database, key_hash, events, versions)

    return _publish(known, key_hash, events, attempt, lambda index: f"events[{index}].")


def publish_as_tenant(
    database: Database, known: KnownSchemas, tenant_id: UUID, event: NewEvent
) -> Published:
    """Store an event whose payload fits its type, for callers that reach the database themselves.

    Raises:
        Invalid, Conflict, DatabaseUnavailable: see `publish`.
    """

    def attempt(versions: Sequence[int]) -> list[Published]:
        return [publishing.publish_as_tenant(database, tenant_id, event, versions[0])]

    [published] = _publish(known, tenant_id, [event], attempt, lambda _: "")
    return published


def _publish(
    known: KnownSchemas,
    owner: Owner,
    events: Sequence[NewEvent],
    attempt: Callable[[Sequence[int]], list[Published]],
    prefix: Callable[[int], str],
) -> list[Published]:
    """`attempt` publishes with the version that each event was judged by; `prefix` is where an event stands."""
    versions = [_version_that_fits(known, owner, event) for event in events]
    answers_for_all_types = len({event.type for event in events}) // MAX_TYPES_REFUSED
    for _ in range(_MAX_ROUNDS + answers_for_all_types):
        try:
            return attempt(versions)
        except TypesRefused as refusal:
            for refused in refusal.types:
                _judge(known, owner, events, refused, prefix)
                for position in refused.positions:
                    versions[position] = refused.version
    raise Conflict("an event type changed again and again meanwhile: send the request again")


def _version_that_fits(known: KnownSchemas, owner: Owner, event: NewEvent) -> int:
    """The version whose schema the payload fits, as far as is known; 0 asks for the one in force.

    A payload that does not fit what is known is no fault yet: that schema may be out of date.
    """
    met = known.get(owner, event.type)
    if met is None or met.schema.fault_of_text(event.payload, "payload") is not None:
        return 0
    return met.version


def _judge(
    known: KnownSchemas,
    owner: Owner,
    events: Sequence[NewEvent],
    refused: RefusedType,
    prefix: Callable[[int], str],
) -> None:
    if refused.archived or refused.schema is None:
        raise Invalid(
            f"{prefix(min(refused.positions))}type",
            f"is archived: no event of the type '{refused.name}' is accepted until it is restored",
        )
    met = known.get(owner, refused.name)
    if met is None or met.version != refused.version:
        met = SchemaInForce(refused.version, _compiled(refused.name, refused.schema))
        known.keep(owner, refused.name, met)
    for position in sorted(refused.positions):
        fault = met.schema.fault_of_text(events[position].payload, f"{prefix(position)}payload")
        if fault is not None:
            raise fault


def _compiled(name: str, text: str) -> Schema:
    try:
        return compile_schema(msgspec.json.decode(text))
    except Invalid as fault:
        # It was accepted by another release, or written past the API.
        raise Conflict(
            f"the schema of the event type '{name}' cannot be used ({fault}): change the event type"
        ) from None
