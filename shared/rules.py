"""Rules that more than one kind of thing keeps: texts that can be stored, ids that customers choose, numbers in a range."""

import re

from shared.errors import Invalid

MAX_NAME_LENGTH = 200
CONSUMER_PATTERN = "^[A-Za-z0-9_.:-]{1,128}$"
"""How the id of a consumer is written, and the name of a channel. For JSON Schema, so without Python's own syntax."""

_CONSUMER = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
# PostgreSQL's text holds neither NUL nor half of a surrogate pair.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def check_name(field: str, text: str | None) -> None:
    """Refuse a name that is empty, too long, or cannot be stored. None, where there may be no name, is fine.

    Raises:
        Invalid: see above.
    """
    if text is not None and not (text and is_storable(text, MAX_NAME_LENGTH)):
        raise Invalid(field, f"must be 1 to {MAX_NAME_LENGTH} characters, none of them NUL")


def check_consumer(field: str, text: str | None) -> None:
    """Refuse what is no consumer's id.

    Raises:
        Invalid: see above.
    """
    if text is not None and not is_consumer(text):
        raise Invalid(field, "must be 1 to 128 letters, digits, '_', '.', ':' or '-'")


def is_consumer(text: str) -> bool:
    """Whether a text may be a consumer's id."""
    return _CONSUMER.fullmatch(text) is not None


def check_range(field: str, value: int | None, low: int, high: int) -> None:
    """Refuse a number outside `low` to `high`, both allowed. None is fine.

    Raises:
        Invalid: see above.
    """
    if value is not None and not low <= value <= high:
        raise Invalid(field, f"must be a whole number from {low} to {high}")


def is_storable(text: str, most: int) -> bool:
    """Whether a text has at most `most` characters and the database can hold it."""
    return len(text) <= most and _UNSTORABLE.search(text) is None
