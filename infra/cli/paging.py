"""Long lists, page by page."""

from collections.abc import Callable
from uuid import UUID

from infra.cli.output import console
from shared.listing import Listing
from shared.store.connection import Row

_PAGE = 200


def first_rows(limit: int, page: Callable[[UUID | None, int], Listing]) -> list[Row]:
    """The first `limit` rows of a list; `page` is given the key to go on from, and how many rows to answer at most.

    A page may be short although there is more, so a rare filter takes a while: a terminal shows that it goes on.
    """
    rows: list[Row] = []
    before = None
    with console(stderr=True).status("Looking") as status:
        while len(rows) < limit:
            listing = page(before, min(limit - len(rows), _PAGE))
            rows += listing.rows
            before = listing.next_key
            if before is None:
                break
            status.update(f"Looking: {len(rows)} found so far")
    return rows
