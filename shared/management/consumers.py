"""Consumers: a tenant's customers."""

import base64
import binascii
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from shared import consumers
from shared.errors import Invalid
from shared.http.access import Manager, Reader, RuntimeOf
from shared.http.pages import DEFAULT_LIMIT, Limit, Page
from shared.http.schemas import problem_responses
from shared.http.strict import StrictRoute
from shared.management.fields import ConsumerId, Name, RequestModel
from shared.rules import CONSUMER_PATTERN, is_consumer

router = APIRouter(route_class=StrictRoute, prefix="/v1", tags=["consumers"])

_Id = Annotated[str, Path(pattern=CONSUMER_PATTERN)]
_Cursor = Annotated[
    str | None,
    Query(alias="cursor", max_length=200, description="`next_cursor` of the page before."),
]


class NewConsumer(RequestModel):
    """A consumer to make."""

    id: ConsumerId = Field(description="Your own name for it, such as its id in your database.")
    name: Name | None = None


class ConsumerChanges(RequestModel):
    """What to change; what is absent stays."""

    name: Name | None = Field(default_factory=lambda: None, description="Null: no name.")


class Consumer(BaseModel):
    """One of your customers: an event published for it reaches its endpoints and no others."""

    id: str
    name: str | None
    created_at: datetime


@router.post(
    "/consumers",
    status_code=201,
    summary="Make a consumer",
    responses=problem_responses(400, 401, 403, 404, 409, 413, 422, 503),
)
def create_consumer(runtime: RuntimeOf, caller: Manager, new: NewConsumer) -> Consumer:
    """Not needed before its first endpoint: that makes a consumer that is not there yet."""
    return Consumer.model_validate(
        consumers.create_consumer(runtime.database, caller.tenant_id, new.id, new.name)
    )


@router.get(
    "/consumers",
    summary="List consumers in the order of their ids",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def list_consumers(
    runtime: RuntimeOf, caller: Reader, limit: Limit = DEFAULT_LIMIT, cursor: _Cursor = None
) -> Page[Consumer]:
    """Each page begins after the last id of the one before."""
    rows = consumers.list_consumers(
        runtime.database, caller.tenant_id, _read_cursor(cursor), limit + 1
    )
    data = [Consumer.model_validate(row) for row in rows[:limit]]
    return Page(data=data, next_cursor=_write_cursor(data[-1].id) if len(rows) > limit else None)


@router.get(
    "/consumers/{consumer}",
    summary="Get a consumer",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def get_consumer(runtime: RuntimeOf, caller: Reader, consumer: _Id) -> Consumer:
    """`GET /v1/endpoints?consumer=…` lists its endpoints."""
    return Consumer.model_validate(
        consumers.get_consumer(runtime.database, caller.tenant_id, consumer)
    )


@router.patch(
    "/consumers/{consumer}",
    summary="Rename a consumer",
    responses=problem_responses(400, 401, 403, 404, 413, 422, 503),
)
def change_consumer(
    runtime: RuntimeOf, caller: Manager, consumer: _Id, changes: ConsumerChanges
) -> Consumer:
    """Its id stays: events and endpoints refer to it."""
    if "name" not in changes.model_fields_set:
        return get_consumer(runtime, caller, consumer)
    return Consumer.model_validate(
        consumers.rename_consumer(runtime.database, caller.tenant_id, consumer, changes.name)
    )


@router.delete(
    "/consumers/{consumer}",
    status_code=204,
    summary="Delete a consumer",
    responses=problem_responses(401, 403, 404, 409, 422, 503),
)
def delete_consumer(runtime: RuntimeOf, caller: Manager, consumer: _Id) -> None:
    """Refused (409) while it has endpoints. Its events and deliveries stay for their retention."""
    consumers.delete_consumer(runtime.database, caller.tenant_id, consumer)


def _write_cursor(last_id: str) -> str:
    return base64.urlsafe_b64encode(last_id.encode("ascii")).rstrip(b"=").decode("ascii")


def _read_cursor(text: str | None) -> str | None:
    """The id that a cursor stands for; ids are short ASCII, so whatever is none of ours is refused here."""
    if text is None:
        return None
    try:
        last_id = base64.urlsafe_b64decode(text.encode("ascii") + b"==").decode("ascii")
    except (binascii.Error, ValueError):
        last_id = ""
    if not is_consumer(last_id) or _write_cursor(last_id) != text:
        raise Invalid("cursor", "must be the next_cursor of an earlier page")
    return last_id
