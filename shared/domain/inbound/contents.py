"""What a verified webhook says about itself: its id, its type, and whether it is a challenge."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never
from urllib.parse import parse_qsl

from shared.domain.inbound.schemes import Challenge, Header, Place, Pointer, Scheme, Word
from shared.domain.matching import MAX_EVENT_TYPE_LENGTH

Headers = Mapping[str, Sequence[bytes]]
"""Names in lower case → the values as they arrived, one for each time that the header was sent."""

FALLBACK_TYPE = "received"
"""The type of an event that does not say its own."""

MAX_ID_LENGTH = 255
MAX_CHALLENGE_LENGTH = 1024
MAX_PARSED_BYTES = 6_291_456
"""Of a body that is looked into. A Lambda is given no larger one."""

_FORM = b"application/x-www-form-urlencoded"
_MAX_FORM_FIELDS = 1000
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Contents:
    """See `Verified` for the fields."""

    dedupe_id: str | None
    event_type: str
    challenge: str | None


def read_contents(scheme: Scheme, headers: Headers, body: bytes) -> Contents:
    """What the request says, whatever is in it: what cannot be read is not there. Call it after verification only."""
    document = _document(headers, body) if _looks_into_body(scheme) else None

    def find(place: Place) -> str | None:
        match place:
            case Header(name=name):
                return _presence(b", ".join(headers.get(name, ())).decode("latin-1"))
            case Pointer(path=path):
                found = _at(document, path)
                return _presence(found) if isinstance(found, str) else None
            case Word(text=text):
                return text
            case _:
                assert_never(place)

    found = None if scheme.id is None else find(scheme.id)
    event_type = FALLBACK_TYPE
    for places in scheme.types:
        parts = [part for part in map(find, places) if part is not None]
        if len(parts) == len(places):
            event_type = safe_event_type(*parts)
            break
    return Contents(
        dedupe_id=None if found is None else _safe_id(found),
        event_type=event_type,
        challenge=None if scheme.challenge is None else _challenge(scheme.challenge, document),
    )


def kept_headers(scheme: Scheme) -> tuple[str, ...]:
    """The headers of this provider that are worth storing, in lower case: never the signature's."""
    places: Iterable[object] = (
        scheme.id,
        None if scheme.timestamp is None else scheme.timestamp.place,
        *(place for places in scheme.types for place in places),
    )
    named = {place.name for place in places if isinstance(place, Header)}
    return tuple(sorted({*named, *scheme.context} - {scheme.signature_header}))


def safe_event_type(*parts: str) -> str:
    """An event type made of any texts: runs of other characters become full stops, and the end is cut if it is long."""
    segments = [segment for part in parts for segment in _SEGMENT.findall(part)]
    return ".".join(segments)[:MAX_EVENT_TYPE_LENGTH].rstrip(".") or FALLBACK_TYPE


def _looks_into_body(scheme: Scheme) -> bool:
    places = [scheme.id, *(place for places in scheme.types for place in places)]
    return scheme.challenge is not None or any(isinstance(place, Pointer) for place in places)


def _document(headers: Headers, body: bytes) -> object:
    """The JSON value in the body, the fields of a form (of a repeated one the last), or None for anything else."""
    if len(body) > MAX_PARSED_BYTES:
        return None
    content_type = b", ".join(headers.get("content-type", ()))
    if content_type.partition(b";")[0].strip().lower() != _FORM:
        return _json(body)
    try:
        fields = dict(
            parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FORM_FIELDS)
        )
    except ValueError:
        return None
    return _json(fields["payload"].encode()) if "payload" in fields else fields


def _json(text: bytes) -> object:
    # Numbers stay texts: an id has more digits than a float, and perhaps more than int() reads.
    try:
        return json.loads(
            text.decode("utf-8-sig"),
            parse_int=str,
            parse_float=str,
            parse_constant=lambda _: None,
        )
    except (ValueError, RecursionError):
        return None


def _at(document: object, path: str) -> object:
    for escaped in path.split("/")[1:]:
        token = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document.get(token)
        elif isinstance(document, list) and _INDEX.fullmatch(token):
            document = document[int(token)] if int(token) < len(document) else None
        else:
            return None
    return document


def _presence(text: str) -> str | None:
    return text.strip() or None


def _safe_id(text: str) -> str:
    """The id, or a digest in place of one that the database or a log line might not hold."""
    if len(text) <= MAX_ID_LENGTH and text.isascii() and text.isprintable():
        return text
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _challenge(challenge: Challenge, document: object) -> str | None:
    if _at(document, challenge.place.path) != challenge.text:
        return None
    echo = _at(document, challenge.echo.path)
    if isinstance(echo, str) and echo.isascii() and echo.isprintable():
        return echo if 0 < len(echo) <= MAX_CHALLENGE_LENGTH else None
    return None
