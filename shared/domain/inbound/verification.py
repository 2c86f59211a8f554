"""Whether a request is signed as its provider signs, over its bytes exactly as they arrived."""

import base64
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from shared.domain.inbound.contents import Headers, read_contents
from shared.domain.inbound.schemes import Entry, Header, Scheme

MAX_SIGNATURE_HEADER_BYTES = 32_768
MAX_SIGNED_ID_BYTES = 512

# Ten digits are the years 2001 to 2286. One length only, so that a digit cannot move from a timestamp into the body
# beside it without breaking the signature.
_TIMESTAMP = re.compile(rb"[0-9]{10}")
_PLACEHOLDER = re.compile(rb"\{(body|timestamp|id)\}")
_WHITE_SPACE = b" \t"


class Reason(StrEnum):
    """Why a request is refused: for counters and operators, never for the sender."""

    MISSING_SIGNATURE = "missing_signature"
    MALFORMED = "malformed"
    NO_SECRET = "no_secret"  # noqa: S105 - it says that there is none
    BAD_SIGNATURE = "bad_signature"
    STALE_TIMESTAMP = "stale_timestamp"


@dataclass(frozen=True, slots=True)
class Verified:
    """The request is from someone who knows the secret.

    Attributes:
        dedupe_id: what a retry of the same event repeats, 1 to 255 printable ASCII characters; None when there is none.
        event_type: always a valid event type; `received` when the request does not say.
        timestamp: when it was sent, as signed, in whole seconds since 1970; None when none is signed.
        challenge: what to answer with, as plain text and instead of storing anything; None when it is no challenge.
    """

    dedupe_id: str | None
    event_type: str
    timestamp: int | None
    challenge: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The request is not to be believed. `detail` is for the operator only, and repeats nothing of the request."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class _Envelope:
    signatures: tuple[bytes, ...]
    timestamp: bytes
    message_id: bytes


def verify(
    scheme: Scheme,
    keys: Sequence[bytes],
    headers: Headers,
    body: bytes,
    now: int,
    *,
    tolerance_seconds: int | None = None,
) -> Verified | Refused:
    """Judge a request. Never raises, whatever the bytes of the headers and the body.

    Args:
        scheme: how the source's provider signs.
        keys: the live keys, any of which will do. Empty ones are passed over: they protect nothing.
        headers: names in lower case → the values as they arrived, one for each time that the header was sent.
        body: the bytes as they arrived.
        now: in whole seconds since 1970.
        tolerance_seconds: how far from `now` a signed timestamp may be, either way, exactly that far included; None
            for the scheme's default.
    """
    envelope = _read(scheme, headers)
    if isinstance(envelope, Refused):
        return envelope
    usable = [key for key in keys if key]
    if not usable:
        return Refused(Reason.NO_SECRET, "the source has no usable secret: rotate it")
    if not _is_signed(scheme, usable, envelope, body):
        return Refused(
            Reason.BAD_SIGNATURE,
            f"none of {len(envelope.signatures)} signatures was made with any of {len(usable)} secrets over these "
            "bytes: compare the secret with the provider's, and see that nothing on the way changes the body",
        )
    timestamp = int(envelope.timestamp) if scheme.timestamp is not None else None
    if scheme.timestamp is not None and timestamp is not None:
        tolerance = (
            scheme.timestamp.tolerance_seconds if tolerance_seconds is None else tolerance_seconds
        )
        if abs(now - timestamp) > tolerance:
            return Refused(
                Reason.STALE_TIMESTAMP,
                f"the signed timestamp is {abs(now - timestamp)} s in the "
                f"{'past' if timestamp < now else 'future'}; up to {tolerance} s are accepted",
            )
    contents = read_contents(scheme, headers, body)
    return Verified(contents.dedupe_id, contents.event_type, timestamp, contents.challenge)


def _read(scheme: Scheme, headers: Headers) -> _Envelope | Refused:
    """The parts of the signed text that travel in headers, and the signatures."""
    name = scheme.signature_header
    value = _single(headers, name)
    if isinstance(value, Refused):
        return value
    if not value:
        return Refused(Reason.MISSING_SIGNATURE, f"the header {name} is missing or empty")
    if len(value) > MAX_SIGNATURE_HEADER_BYTES:
        return Refused(
            Reason.MALFORMED, f"the header {name} has over {MAX_SIGNATURE_HEADER_BYTES} bytes"
        )
    entries = [value] if scheme.separator is None else value.split(scheme.separator)
    signatures = _after(scheme.prefix, entries)
    if not signatures:
        return Refused(
            Reason.MALFORMED,
            f"the header {name} has no signature that begins with '{scheme.prefix.decode()}'",
        )
    timestamp = _timestamp(scheme, headers, entries)
    if isinstance(timestamp, Refused):
        return timestamp
    message_id = _message_id(scheme, headers)
    if isinstance(message_id, Refused):
        return message_id
    return _Envelope(signatures, timestamp, message_id)


def _single(headers: Headers, name: str) -> bytes | Refused:
    """A header's value, empty when there is none. Of two values nobody knows which one was meant."""
    values = headers.get(name, ())
    if len(values) > 1:
        return Refused(Reason.MALFORMED, f"the header {name} was sent {len(values)} times")
    return values[0].strip(_WHITE_SPACE) if values else b""


def _after(prefix: bytes, entries: Sequence[bytes]) -> tuple[bytes, ...]:
    stripped = (entry.strip(_WHITE_SPACE) for entry in entries)
    return tuple(entry.removeprefix(prefix) for entry in stripped if entry.startswith(prefix))


def _timestamp(scheme: Scheme, headers: Headers, entries: Sequence[bytes]) -> bytes | Refused:
    if scheme.timestamp is None:
        return b""
    match scheme.timestamp.place:
        case Header(name=name):
            value = _single(headers, name)
            if isinstance(value, Refused):
                return value
        case Entry(prefix=prefix):
            values = _after(prefix, entries)
            if len(values) != 1:
                return Refused(
                    Reason.MALFORMED,
                    f"the signature header has {len(values)} entries that begin with '{prefix.decode()}', not one",
                )
            [value] = values
        case _:
            assert_never(scheme.timestamp.place)
    if _TIMESTAMP.fullmatch(value) is None:
        return Refused(Reason.MALFORMED, "the timestamp is not ten ASCII digits: whole seconds")
    return value


def _message_id(scheme: Scheme, headers: Headers) -> bytes | Refused:
    """The id as it is signed; empty when it is not part of the signed text."""
    if b"{id}" not in scheme.signed or not isinstance(scheme.id, Header):
        return b""
    value = _single(headers, scheme.id.name)
    if isinstance(value, Refused):
        return value
    if not value or len(value) > MAX_SIGNED_ID_BYTES:
        return Refused(
            Reason.MALFORMED,
            f"the header {scheme.id.name} must have 1 to {MAX_SIGNED_ID_BYTES} bytes: it is signed",
        )
    if any(byte in scheme.id_excludes for byte in value):
        return Refused(
            Reason.MALFORMED,
            f"the header {scheme.id.name} holds one of '{scheme.id_excludes.decode()}', which ends an id "
            "in the signed text",
        )
    return value


def _is_signed(scheme: Scheme, keys: Sequence[bytes], envelope: _Envelope, body: bytes) -> bool:
    parts = {
        b"body": body,
        b"timestamp": envelope.timestamp,
        b"id": envelope.message_id,
    }
    signed = _PLACEHOLDER.sub(lambda placeholder: parts[placeholder[1]], scheme.signed)
    expected = [_encoded(scheme, hmac.digest(key, signed, scheme.algorithm)) for key in keys]
    # Texts are compared, not decoded ones: base64 has several texts for the same bytes, and hostile ones for none.
    # Only hexadecimal's case is let pass.
    offered = [
        signature.lower() if scheme.encoding == "hex" else signature
        for signature in envelope.signatures
    ]
    matches = [hmac.compare_digest(one, other) for one in expected for other in offered]
    return any(matches)


def _encoded(scheme: Scheme, digest: bytes) -> bytes:
    return digest.hex().encode() if scheme.encoding == "hex" else base64.b64encode(digest)
