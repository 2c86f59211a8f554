"""Building the bytes of a request, or saying why they cannot be built. No I/O."""

import re
from collections.abc import Sequence
from functools import lru_cache

from shared.domain.outcome import ErrorKind, Unanswered
from shared.domain.targets import Target

HEADER_VALUE_CAP_BYTES = 8 * 1024
REQUEST_HEAD_CAP_BYTES = 32 * 1024

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}")
# Printable ASCII, with spaces and tabs inside only: all that every HTTP stack reads alike.
_VALUE = re.compile(rb"(?:[!-~](?:[ \t!-~]*[!-~])?)?")

# They frame the message or name the peer, so that only the transport can set them truthfully.
_OWN = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)


def encode_request(
    method: str, target: Target, headers: Sequence[tuple[bytes, bytes]], body: bytes
) -> bytes | Unanswered:
    """Lay out the whole request for one write: request line, Host, the given headers, Content-Length, body.

    Args:
        method: an HTTP method in upper case.
        target: where to; its authority becomes the Host header.
        headers: names and values as they go on the wire, in order; each name once, none that frames the message.
        body: sent as it is.

    Returns:
        The bytes, or an UNSENDABLE outcome that names the offending header and keeps its value to itself.
    """
    lines = [f"{method} {target.path} HTTP/1.1\r\nHost: {target.authority}\r\n".encode("ascii")]
    seen: set[bytes] = set()
    for name, value in headers:
        lowered = _lowered_token(name)
        problem = _problem(lowered, value, seen)
        if lowered is None or problem is not None:
            return Unanswered(ErrorKind.UNSENDABLE, f"the header {_shown(name)} {problem}")
        seen.add(lowered)
        lines += (name, b": ", value, b"\r\n")
    lines.append(b"Content-Length: %d\r\n\r\n" % len(body))
    if sum(map(len, lines)) > REQUEST_HEAD_CAP_BYTES:
        return Unanswered(
            ErrorKind.UNSENDABLE,
            f"the headers together are longer than {REQUEST_HEAD_CAP_BYTES:,} bytes",
        )
    lines.append(body)
    return b"".join(lines)


def _problem(lowered: bytes | None, value: bytes, seen: set[bytes]) -> str | None:
    if lowered is None:
        return "has a name that is not an HTTP token"
    if lowered in _OWN:
        return "is set by the sender alone"
    if lowered in seen:
        return "is given twice"
    if len(value) > HEADER_VALUE_CAP_BYTES:
        return f"has a value longer than {HEADER_VALUE_CAP_BYTES:,} bytes"
    if _VALUE.fullmatch(value) is None:
        return "has a value that is not printable ASCII, or that begins or ends with a space"
    return None


@lru_cache(maxsize=1024)
def _lowered_token(name: bytes) -> bytes | None:
    return name.lower() if _TOKEN.fullmatch(name) else None


def _shown(name: bytes) -> str:
    """A name fit for a log line, whatever it holds."""
    return ascii(name[:64].decode("latin-1"))
