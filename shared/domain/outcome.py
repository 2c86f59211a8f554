"""What a receiver did with one attempt. A failing receiver is data, not an exception."""

from dataclasses import dataclass
from enum import StrEnum


class ErrorKind(StrEnum):
    """Why an attempt ended without an answer, or with one that is no success.

    The values are stored in `attempts.error_kind` and shown to tenants, so they never change meaning.
    """

    DNS = "dns"
    """The name did not resolve, or not in time."""
    CONNECT = "connect"
    """No connection: refused, unreachable, reset during the handshake."""
    TLS = "tls"
    """The certificate or the handshake was not acceptable."""
    TIMEOUT = "timeout"
    """The attempt's deadline passed before a complete status line and headers arrived."""
    RESET = "reset"
    """The connection ended after the request was sent, before an answer. The receiver may have acted."""
    STALE_CONNECTION = "stale_connection"
    """A kept-alive connection turned out to be closed: says nothing about the receiver."""
    PROTOCOL = "protocol"
    """What came back was not acceptable HTTP/1.1."""
    TARGET_REFUSED = "target_refused"
    """The URL leads to an address that deliveries may not reach."""
    UNSENDABLE = "unsendable"
    """The request can never be built: its URL, a header or its secret is broken."""
    KEY_MISSING = "key_missing"
    """The key that opens the endpoint's secrets is not configured. Ours to mend, so the delivery waits."""
    INTERNAL = "internal"
    """A fault of ours, in the log."""
    STATUS = "status"
    """The receiver answered with a status that is not 2xx."""
    LOST = "lost"
    """The worker never reported: its lease lapsed. The receiver may have acted."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The receiver's status line and headers arrived.

    `body` is what was read of the body, at most the transport's cap; `truncated` says that there was more
    (or that the deadline or a reset cut it off: the status line still counts).
    `retry_after` holds the values of every Retry-After header line, unparsed; `location` the Location header.
    """

    status: int
    body: bytes = b""
    truncated: bool = False
    retry_after: tuple[str, ...] = ()
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No usable answer. `detail` is for the operator; it holds no secret, header value or URL credentials."""

    kind: ErrorKind
    detail: str


Outcome = Answered | Unanswered
