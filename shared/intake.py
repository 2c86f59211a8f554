"""Reading a publish request: every rule is checked before anything is written, and the payload stays as it came."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from shared.domain.matching import MAX_EVENT_TYPE_LENGTH, is_event_type
from shared.errors import Invalid, TooLarge
from shared.store.publishing import NewEvent

JSON = "application/json"
MAX_REQUEST_BYTES = 4_000_000
"""Lambda takes 6 MB, of which base64 takes a third."""
MAX_BATCH = 1000
MAX_DEPTH = 200
MAX_PRIORITY = 100
MAX_CHANNELS = 20
MAX_DELAY = timedelta(days=365)

_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
_CONSUMER = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
# Possessive, so that the engine keeps no way back for each of a string's millions of bytes; and a string that never
# ends is one match too, or every escaped quote in it would start another search to the end.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)
_QUOTED_NAME = re.compile(r"`[^`]*`")


_T = TypeVar("_T")


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    payload: msgspec.Raw
    consumer: str | None = None
    idempotency_key: str | None = None
    deliver_at: str | None = None
    priority: int = 0
    channels: list[str] | None = None


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    events: list[_Envelope]


# Only our own names: an unknown member's name stands before the path, and may have been made to look like one.
_FAULT_PATH = re.compile(
    rf" - at `\$\.?((?:events(?:\[\d+\])?)?\.?(?:{'|'.join(_Envelope.__struct_fields__)})?)`\Z",
    re.ASCII,
)

_event_decoder = msgspec.json.Decoder(_Envelope)
_batch_decoder = msgspec.json.Decoder(_Batch)


def read_event(body: bytes, max_payload_bytes: int, now: datetime) -> NewEvent:
    """Read one event from the JSON text of a request.

    The payload is the text of the `payload` member, to the byte: numbers, key order, repeated keys, escapes and inner
    white space stay as they are. `now`, an aware datetime, bounds `deliver_at`.

    Raises:
        Invalid: the text is no JSON, or a field breaks a rule.
        TooLarge: the request or the payload has too many bytes.
    """
    return _event(_decode(_event_decoder, body), max_payload_bytes, now)


def read_batch(body: bytes, max_payload_bytes: int, now: datetime) -> list[NewEvent]:
    """Read the events of a batch request, 1 to MAX_BATCH.

    Raises:
        Invalid, TooLarge: see `read_event`; the field names the event's index.
    """
    batch = _decode(_batch_decoder, body)
    if not 1 <= len(batch.events) <= MAX_BATCH:
        raise Invalid("events", f"must hold 1 to {MAX_BATCH} events")
    events = []
    for index, envelope in enumerate(batch.events):
        try:
            events.append(_event(envelope, max_payload_bytes, now))
        except Invalid as fault:
            raise fault.within(f"events[{index}]") from None
    _refuse_repeated_keys(events)
    return events


def _decode(decoder: "msgspec.json.Decoder[_T]", body: bytes) -> _T:
    check_text(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _fault(str(error)) from None
    except msgspec.DecodeError as error:
        raise Invalid("body", f"must be one JSON document (RFC 8259): {error}") from None


def check_text(body: bytes) -> None:
    """Refuse a JSON text that is too large, nests too deeply, or is not UTF-8, before anything parses it.

    Raises:
        Invalid, TooLarge: see `read_event`.
    """
    if len(body) > MAX_REQUEST_BYTES:
        raise TooLarge(f"a request may have {MAX_REQUEST_BYTES} bytes")
    _check_depth(body)
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Invalid("body", f"must be JSON in UTF-8; byte {error.start} is not UTF-8") from None


def _fault(text: str) -> Invalid:
    """The decoder says what is wrong and where; the names of unknown members are the client's and not repeated."""
    path = _FAULT_PATH.search(text)
    rule = _FAULT_PATH.sub("", text)
    if rule.startswith("Object contains unknown field"):
        known = ", ".join(_Envelope.__struct_fields__)
        return Invalid(
            path[1] if path else "body",
            f"has an unknown member; known are {known} (and events, of a batch)",
        )
    if rule.startswith("Object missing required field"):
        missing = _QUOTED_NAME.findall(rule)[-1].strip("`")
        return Invalid(f"{path[1]}.{missing}" if path else missing, "is required")
    return Invalid(path[1] if path else "body", rule[0].lower() + rule[1:])


def _check_depth(body: bytes) -> None:
    """Refuse deep nesting before anything recurses over it. Most bodies have too few brackets to need a look."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for byte in _STRING.sub(b"", body).translate(None, _NO_BRACKETS):
        depth += 1 if byte in b"[{" else -1
        if depth > MAX_DEPTH:
            raise Invalid("body", f"must not nest deeper than {MAX_DEPTH} levels")


def _event(envelope: _Envelope, max_payload_bytes: int, now: datetime) -> NewEvent:
    payload = bytes(envelope.payload)
    if not is_event_type(envelope.type):
        raise Invalid(
            "type",
            f"must be at most {MAX_EVENT_TYPE_LENGTH} characters: segments of letters, digits, '_' and '-', "
            "separated by full stops, such as order.paid",
        )
    if len(payload) > max_payload_bytes:
        raise TooLarge(f"a payload may have {max_payload_bytes} bytes; this one has {len(payload)}")
    if envelope.consumer is not None and not _CONSUMER.fullmatch(envelope.consumer):
        raise Invalid("consumer", "must be 1 to 128 letters, digits, '_', '.', ':' or '-'")
    if envelope.idempotency_key is not None and not _IDEMPOTENCY_KEY.fullmatch(
        envelope.idempotency_key
    ):
        raise Invalid(
            "idempotency_key", "must be 1 to 255 printable ASCII characters without spaces"
        )
    if not -MAX_PRIORITY <= envelope.priority <= MAX_PRIORITY:
        raise Invalid("priority", f"must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
    check_channels(envelope.channels)
    return NewEvent(
        type=envelope.type,
        payload=payload,
        content_type=JSON,
        consumer=envelope.consumer,
        idempotency_key=envelope.idempotency_key,
        deliver_at=None if envelope.deliver_at is None else _deliver_at(envelope.deliver_at, now),
        priority=envelope.priority,
        channels=envelope.channels,
    )


def check_channels(channels: Sequence[str] | None) -> None:
    """Refuse a list of channels that is empty, too long, or holds what is no channel's name.

    Raises:
        Invalid: see above.
    """
    if channels is None:
        return
    if not 1 <= len(channels) <= MAX_CHANNELS or not all(map(_CONSUMER.fullmatch, channels)):
        raise Invalid(
            "channels",
            f"must be 1 to {MAX_CHANNELS} names of 1 to 128 letters, digits, '_', '.', ':' or '-'",
        )


def _deliver_at(text: str, now: datetime) -> datetime:
    rule = f"must be an RFC 3339 instant with an offset, at most {MAX_DELAY.days} days ahead, such as 2030-01-31T09:00:00Z"
    if not _RFC3339.fullmatch(text):
        raise Invalid("deliver_at", rule)
    try:
        at = datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid("deliver_at", rule) from None
    if at > now + MAX_DELAY:
        raise Invalid("deliver_at", rule)
    return at


def _refuse_repeated_keys(events: Sequence[NewEvent]) -> None:
    seen: dict[str, int] = {}
    for index, event in enumerate(events):
        if event.idempotency_key is None:
            continue
        first = seen.setdefault(event.idempotency_key, index)
        if first != index:
            raise Invalid(
                f"events[{index}].idempotency_key", f"is the same as that of events[{first}]"
            )
