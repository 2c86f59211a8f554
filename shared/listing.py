"""Lists that look at a bounded number of rows per page, whatever the filter."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from shared.domain.matching import EVERYTHING
from shared.domain.time_ids import FIRST_ID, LAST_ID, first_id_at
from shared.store.connection import Connection, Database, Row, fetch

MOST_LOOKED_AT = 2000
"""Rows that one page may read. A rare filter gives short pages, or empty ones, that have a next one."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of rows. The next one begins before `next_key`; None: this is the last."""

    rows: list[Row]
    next_key: UUID | None


@dataclass(frozen=True, slots=True)
class Period:
    """From an instant on and before another, both aware; None leaves that side open.

    It is about the instant in a row's id: when the row was made, while its transaction may have begun earlier.
    """

    created_after: datetime | None = None
    created_before: datetime | None = None

    @property
    def from_id(self) -> UUID:
        """The lowest id in it."""
        return FIRST_ID if self.created_after is None else first_id_at(self.created_after)

    @property
    def before_id(self) -> UUID:
        """What all ids in it are below."""
        return LAST_ID if self.created_before is None else first_id_at(self.created_before)


ALWAYS = Period()


def type_parameters(type_filter: str | None) -> dict[str, str | None]:
    """An event type (`order.paid`), a prefix (`order.*`), all (`*`, None), as the parameters of a walk."""
    if type_filter is None or type_filter == EVERYTHING:
        return {"event_type": None, "type_prefix": None}
    if type_filter.endswith(".*"):
        return {"event_type": None, "type_prefix": type_filter.removesuffix("*")}
    return {"event_type": type_filter, "type_prefix": None}


@contextmanager
def bounded(database: Database, tenant_id: UUID) -> Iterator[Connection]:
    """As `Database.as_tenant`, for statements whose limits must bound what is read under any plan.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.as_tenant(tenant_id) as connection:
        fetch(connection, "keep_to_indexes", {})
        yield connection


def is_narrow(filters: dict[str, Any]) -> bool:
    """Whether a filter may leave out rows that a walk looks at."""
    return any(value is not None for value in filters.values())


def cut(walk: Row, limit: int) -> tuple[list[UUID], UUID | None]:
    """The ids of a page and the key of the next one, of a walk that was asked for one row more than `limit`."""
    ids: list[UUID] = walk["ids"]
    if len(ids) > limit:
        last_key: UUID = walk["keys"][limit - 1]
        return ids[:limit], last_key
    frontier: UUID | None = walk["frontier"]
    return ids, frontier
