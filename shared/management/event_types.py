"""Event types: what a tenant says about the events it publishes."""

import base64
import binascii
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from shared import event_types
from shared.domain.matching import MAX_EVENT_TYPE_LENGTH
from shared.errors import Invalid
from shared.http.access import Manager, Reader, RuntimeOf
from shared.http.filters import TypePattern
from shared.http.pages import Limit, Page
from shared.http.schemas import problem_responses
from shared.http.strict import StrictRoute
from shared.store.connection import Row

router = APIRouter(route_class=StrictRoute, prefix="/v1", tags=["event types"])

_NAME_PATTERN = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"

_Name = Annotated[
    str,
    Path(max_length=MAX_EVENT_TYPE_LENGTH, pattern=_NAME_PATTERN, examples=["order.paid"]),
]
_Description = Annotated[
    str | None,
    Field(max_length=event_types.MAX_DESCRIPTION_LENGTH, pattern="^[^\\x00]*$"),
]
_Example = Annotated[
    Any, Field(description="A payload such as it is published; it must fit the schema.")
]
_Schema = Annotated[
    dict[str, Any] | None,
    Field(
        alias="schema",
        description="JSON Schema 2020-12 that every payload must fit. `format` is checked. Patterns are linear-time "
        "expressions, without look-around and back references. References lead to places in the same schema "
        "(`#/$defs/…`), without recursion.",
    ),
]


class NewEventType(BaseModel):
    """A type to register."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[
        str,
        Field(max_length=MAX_EVENT_TYPE_LENGTH, pattern=_NAME_PATTERN, examples=["order.paid"]),
    ]
    description: _Description = None
    example: _Example = None
    json_schema: _Schema = None


class EventTypeChanges(BaseModel):
    """What is absent stays as it is; null removes it."""

    model_config = ConfigDict(extra="forbid")

    description: _Description = None
    example: _Example = None
    json_schema: _Schema = None


class EventTypeSummary(BaseModel):
    """A type in a list."""

    name: str
    description: str | None
    has_schema: bool
    version: Annotated[int, Field(description="Raised by every change.")]
    created_at: datetime
    updated_at: datetime
    archived_at: Annotated[
        datetime | None, Field(description="Since when events of this type are refused.")
    ]


class EventType(BaseModel):
    """A registered type."""

    name: str
    description: str | None
    example: _Example
    json_schema: _Schema
    version: Annotated[int, Field(description="Raised by every change.")]
    created_at: datetime
    updated_at: datetime
    archived_at: Annotated[
        datetime | None, Field(description="Since when events of this type are refused.")
    ]


@router.post(
    "/event-types",
    status_code=201,
    summary="Register an event type",
    response_model=EventType,
    responses=problem_responses(401, 403, 404, 409, 413, 422, 503),
)
def create_event_type(new: NewEventType, caller: Manager, runtime: RuntimeOf) -> Row:
    """From here on, events of this type are accepted over HTTP only if their payload fits the schema.

    Types that are not registered may be published all the same.
    """
    return event_types.create(runtime.database, caller.tenant_id, new.name, _given(new))


@router.get(
    "/event-types",
    summary="List event types",
    response_model=Page[EventTypeSummary],
    responses=problem_responses(401, 403, 404, 422, 503),
)
def list_event_types(
    caller: Reader,
    runtime: RuntimeOf,
    archived: Annotated[
        bool | None, Query(description="Only those that are archived, or only those that are not.")
    ] = None,
    cursor: Annotated[
        str | None, Query(max_length=200, description="`next_cursor` of the page before.")
    ] = None,
    limit: Limit = 50,
) -> dict[str, Any]:
    """In the order of their names, without schemas and examples."""
    rows = event_types.list_page(
        runtime.database,
        caller.tenant_id,
        after=None if cursor is None else _name_in(cursor),
        archived=archived,
        limit=limit + 1,
    )
    data = rows[:limit]
    return {
        "data": data,
        "next_cursor": _cursor_after(data[-1]["name"]) if len(rows) > limit else None,
    }


@router.get(
    "/event-types/{name}",
    summary="Get an event type",
    response_model=EventType,
    responses=problem_responses(401, 403, 404, 422, 503),
)
def get_event_type(name: _Name, caller: Reader, runtime: RuntimeOf) -> Row:
    """With its schema and example."""
    return event_types.get(runtime.database, caller.tenant_id, name)


@router.patch(
    "/event-types/{name}",
    summary="Change an event type",
    response_model=EventType,
    responses=problem_responses(401, 403, 404, 413, 422, 503),
)
def change_event_type(
    name: _Name, changes: EventTypeChanges, caller: Manager, runtime: RuntimeOf
) -> Row:
    """Takes effect at once: the next event is judged by the new schema, in every process."""
    return event_types.change(runtime.database, caller.tenant_id, name, _given(changes))


@router.post(
    "/event-types/{name}/archive",
    summary="Refuse further events of a type",
    response_model=EventType,
    responses=problem_responses(401, 403, 404, 422, 503),
)
def archive_event_type(name: _Name, caller: Manager, runtime: RuntimeOf) -> Row:
    """What is published already is delivered, replayed and shown like before."""
    return event_types.archive(runtime.database, caller.tenant_id, name, archived=True)


@router.post(
    "/event-types/{name}/restore",
    summary="Accept events of a type again",
    response_model=EventType,
    responses=problem_responses(401, 403, 404, 422, 503),
)
def restore_event_type(name: _Name, caller: Manager, runtime: RuntimeOf) -> Row:
    """Undoes `archive`."""
    return event_types.archive(runtime.database, caller.tenant_id, name, archived=False)


@router.get(
    "/openapi/event-types.json",
    summary="Event types as an OpenAPI document",
    responses=problem_responses(401, 403, 404, 409, 422, 503),
)
def get_catalogue(
    caller: Reader,
    runtime: RuntimeOf,
    event_type: Annotated[str, TypePattern] = "*",
) -> dict[str, Any]:
    """OpenAPI 3.1 with a webhook for each type that is not archived, for your customers' tools to read."""
    return event_types.catalogue(runtime.database, caller.tenant_id, event_type)


def _given(model: NewEventType | EventTypeChanges) -> dict[str, Any]:
    """The fields that the request names, by their names in the request."""
    return model.model_dump(by_alias=True, exclude_unset=True, exclude={"name"})


def _cursor_after(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).rstrip(b"=").decode("ascii")


def _name_in(cursor: str) -> str:
    try:
        name = base64.urlsafe_b64decode(cursor.encode("ascii") + b"==").decode()
    except (binascii.Error, ValueError):
        name = ""
    if "\0" in name or _cursor_after(name) != cursor:
        raise Invalid("cursor", "must be the next_cursor of an earlier page")
    return name
