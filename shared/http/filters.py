"""Query parameters that lists have in common."""

import re
from typing import Annotated

from fastapi import Depends, Query
from pydantic import AwareDatetime, BeforeValidator

from shared.listing import Period

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def _rfc3339(value: object) -> object:
    """The parser behind it would also take numbers as seconds, and dates."""
    if isinstance(value, str) and not _RFC3339.fullmatch(value):
        raise ValueError("must be an RFC 3339 instant with an offset, such as 2030-01-31T09:00:00Z")
    return value


Instant = Annotated[AwareDatetime, BeforeValidator(_rfc3339)]

ConsumerFilter = Annotated[
    str | None, Query(pattern="^[A-Za-z0-9_.:-]{1,128}$", description="Only this consumer's.")
]
TypePattern = Query(
    max_length=130,
    pattern=r"^(\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(\.\*)?)$",
    description="An event type, a prefix such as `order.*`, or `*`.",
)
TypeFilter = Annotated[str | None, TypePattern]


def _period(
    created_after: Annotated[
        Instant | None, Query(description="Only what was made at this instant or later.")
    ] = None,
    created_before: Annotated[
        Instant | None, Query(description="Only what was made before this instant.")
    ] = None,
) -> Period:
    return Period(created_after, created_before)


PeriodFilter = Annotated[Period, Depends(_period)]
