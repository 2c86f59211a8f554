"""Event types, the filters of endpoints, and which filter lets which type through."""

import re

MAX_EVENT_TYPE_LENGTH = 128
EVERYTHING = "*"

_EVENT_TYPE = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*", re.ASCII)


def is_event_type(text: str) -> bool:
    """Whether `text` may name an event type: dot-separated segments of letters, digits, `_` and `-`."""
    return len(text) <= MAX_EVENT_TYPE_LENGTH and _EVENT_TYPE.fullmatch(text) is not None


def is_filter(text: str) -> bool:
    """Whether `text` is a filter: an event type, a prefix such as `payment.*`, or `*`."""
    return text == EVERYTHING or is_event_type(text.removesuffix(".*"))


def filters_matching(event_type: str) -> tuple[str, ...]:
    """Every filter that lets `event_type` through: `*`, each proper prefix with `.*`, and the type itself.

    Fan-out asks for endpoints whose filters overlap this list, so matching is an array overlap and not a pattern
    match per endpoint. `leasehook.filters_matching` is the same function in SQL.
    """
    segments = event_type.split(".")
    prefixes = (".".join(segments[:count]) + ".*" for count in range(1, len(segments)))
    return (EVERYTHING, *prefixes, event_type)
