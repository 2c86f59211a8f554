"""The request limit of each API key, in its row in the database: exact across all functions."""

import math
from dataclasses import dataclass

from shared.errors import Unauthorized
from shared.store.connection import Database, Row

WINDOW_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left to an API key after a request was counted, or refused.

    Attributes:
        limit: requests per minute, all of which may be used at once; they come back evenly.
        remaining: requests that would be answered right now.
        reset_seconds: until all of them are there again, rounded up.
        retry_after_seconds: until the next one is answered; None if this one was.
    """

    limit: int
    remaining: int
    reset_seconds: int
    retry_after_seconds: int | None


def admit(database: Database, key_hash: bytes, limit: int) -> tuple[Row, Allowance]:
    """The API key (id, tenant_id, name, scopes), with one request counted against its limit, in one round trip.

    Args:
        database: where the keys are.
        key_hash: of the key.
        limit: requests per minute, at least 1.

    Raises:
        Unauthorized: the key is not known or was revoked.
        DatabaseUnavailable: see `Database.connection`.
    """
    gap_seconds = WINDOW_SECONDS / limit
    rows = database.fetch("admit_request", {"key_hash": key_hash, "gap_seconds": gap_seconds})
    if not rows:
        raise Unauthorized("the API key is not known, or was revoked")
    row = rows[0]
    used_seconds = max(0.0, row.pop("used_seconds"))
    return row, allowance(limit, used_seconds, admitted=row.pop("admitted"))


def allowance(limit: int, used_seconds: float, *, admitted: bool) -> Allowance:
    """What is left of a limit of which `used_seconds` of a minute's worth are used up."""
    gap_seconds = WINDOW_SECONDS / limit
    free_seconds = WINDOW_SECONDS - used_seconds
    return Allowance(
        limit=limit,
        remaining=max(0, math.floor(free_seconds / gap_seconds)) if admitted else 0,
        reset_seconds=math.ceil(used_seconds),
        retry_after_seconds=None if admitted else max(1, math.ceil(gap_seconds - free_seconds)),
    )
