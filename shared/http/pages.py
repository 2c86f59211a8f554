"""Lists: pages with an opaque cursor, which never lose or repeat a row.

Every list is in the order of ids, and an id is never given twice, so "after this id" is a place that stays where it is
whatever is inserted or deleted meanwhile.
"""

import base64
import binascii
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel

from shared.errors import Invalid

DEFAULT_LIMIT = 50
MAX_LIMIT = 200

_Item = TypeVar("_Item")

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many rows a page may have.")]
CursorText = Annotated[
    str | None,
    Query(alias="cursor", max_length=100, description="`next_cursor` of the page before."),
]


class Page(BaseModel, Generic[_Item]):
    """One page. `next_cursor` leads to the next one and is null on the last.

    A page may have fewer rows than asked for and still a next one: a filter that matches little looks at a bounded
    number of rows per page.
    """

    data: list[_Item]
    next_cursor: str | None = None


def read_cursor(text: str | None) -> UUID | None:
    """The id that a cursor stands for.

    Raises:
        Invalid: it is none of ours.
    """
    if text is None:
        return None
    try:
        last_id = UUID(bytes=base64.urlsafe_b64decode(text.encode("ascii") + b"=="))
    except (binascii.Error, ValueError):
        last_id = None
    if last_id is None or write_cursor(last_id) != text:
        raise Invalid("cursor", "must be the next_cursor of an earlier page")
    return last_id


def write_cursor(last_id: UUID) -> str:
    """A cursor for what comes after an id."""
    return base64.urlsafe_b64encode(last_id.bytes).rstrip(b"=").decode("ascii")


def page(rows: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """A page of rows that were asked for with one more than `limit`, to see whether there is more."""
    has_more = len(rows) > limit
    data = rows[:limit]
    return {"data": data, "next_cursor": write_cursor(data[-1]["id"]) if has_more else None}
