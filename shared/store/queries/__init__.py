"""Named queries: the `.sql` files of this folder, each query under a `-- name:` line."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def query(name: str) -> bytes:
    """The text of a named query.

    Raises:
        LookupError: there is no such query.
    """
    try:
        return _library()[name]
    except KeyError:
        raise LookupError(f"no query is named {name!r}") from None


def names() -> list[str]:
    """The names of all queries, sorted."""
    return sorted(_library())


@cache
def _library() -> dict[str, bytes]:
    """All queries; a name that is used twice is a mistake in the files, found by the first use of any."""
    library: dict[str, bytes] = {}
    for file in files(__package__).iterdir():
        if file.name.endswith(".sql"):
            for name, text in _split(file.read_text(encoding="utf-8")):
                if name in library:
                    raise LookupError(f"two queries are named {name!r}")
                library[name] = text.encode()
    return library


def _split(text: str) -> Iterator[tuple[str, str]]:
    _, *parts = _NAME.split(text)
    yield from zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True)
