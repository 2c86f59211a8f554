"""One attempt: open the secrets, sign, POST, report."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

import msgspec

from shared.crypto import KeyMissing, Sealer, Unsealable, ed25519_signer
from shared.domain.headers import is_reserved
from shared.domain.outcome import Answered, ErrorKind, Outcome, Unanswered
from shared.domain.signing import (
    Ed25519Secret,
    HmacSecret,
    InvalidSecret,
    Signer,
    hmac_signer,
    parse_secret,
    signature_header,
)
from shared.domain.targets import InvalidTarget, Target, parse_target
from shared.store.queue import Claimed

USER_AGENT = b"Leasehook/1 (+https://www.standardwebhooks.com)"
_MAX_ROUTES = 5000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

Headers = list[tuple[bytes, bytes]]


class Transport(Protocol):
    """What sends: one POST, one outcome, no exceptions for what a receiver does."""

    async def post(
        self,
        target: Target,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        timeout_seconds: float,
    ) -> Outcome:
        """See `shared.sender.transport.Transport.post`."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class Route:
    """The way to an endpoint, ready to use: its target, its own headers, and a signer per live secret."""

    target: Target
    headers: tuple[tuple[bytes, bytes], ...]
    signers: tuple[Signer, ...]


class Courier:
    """Carries deliveries to their endpoints.

    Remembers the routes of endpoints as long as they do not change, because opening secrets and parsing URLs costs
    more than the rest of an attempt.
    """

    def __init__(
        self, transport: Transport, sealer: Sealer, wall_clock: Callable[[], datetime]
    ) -> None:
        self._transport = transport
        self._sealer = sealer
        self._wall_clock = wall_clock
        self._routes: dict[tuple[object, ...], Route] = {}

    async def attempt(self, claimed: Claimed, timeout_seconds: float) -> Outcome:
        """Send a delivery once. Everything that can go wrong with it is an outcome."""
        try:
            route = self._route(claimed)
        except KeyMissing as error:
            return Unanswered(ErrorKind.KEY_MISSING, str(error))
        except (InvalidTarget, InvalidSecret, Unsealable, msgspec.MsgspecError) as error:
            return Unanswered(ErrorKind.UNSENDABLE, str(error))
        if not route.signers:
            return Unanswered(
                ErrorKind.UNSENDABLE, "the endpoint has no live signing secret: rotate it"
            )
        message_id = str(claimed.event_id)
        timestamp = int(self._wall_clock().timestamp())
        signature = signature_header(message_id, timestamp, claimed.payload, route.signers)
        headers = [
            (b"content-type", claimed.content_type.encode()),
            (b"user-agent", USER_AGENT),
            (b"webhook-id", message_id.encode()),
            (b"webhook-timestamp", b"%d" % timestamp),
            (b"webhook-signature", signature.encode()),
            (b"idempotency-key", str(claimed.delivery_id).encode()),
            *route.headers,
        ]
        return await self._transport.post(
            route.target, headers, claimed.payload, timeout_seconds=timeout_seconds
        )

    def _route(self, claimed: Claimed) -> Route:
        key = (claimed.endpoint_id, claimed.url, claimed.headers_sealed, *claimed.secrets_sealed)
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            route = self._routes[key] = self._open(claimed)
        return route

    def _open(self, claimed: Claimed) -> Route:
        return Route(
            target=parse_target(claimed.url),
            headers=self._custom_headers(claimed.endpoint_id, claimed.headers_sealed),
            signers=tuple(
                self._signer(claimed.endpoint_id, sealed) for sealed in claimed.secrets_sealed
            ),
        )

    def _custom_headers(
        self, endpoint_id: UUID, sealed: bytes | None
    ) -> tuple[tuple[bytes, bytes], ...]:
        if sealed is None:
            return ()
        headers = msgspec.json.decode(
            self._sealer.open(sealed, endpoint_id.bytes), type=dict[str, str]
        )
        # The names we set ourselves win, whatever was stored around the API.
        return tuple(
            (name.encode(), value.encode())
            for name, value in headers.items()
            if not is_reserved(name)
        )

    def _signer(self, endpoint_id: UUID, sealed: bytes) -> Signer:
        secret = parse_secret(
            self._sealer.open(sealed, endpoint_id.bytes).decode("ascii", "replace")
        )
        match secret:
            case HmacSecret():
                return hmac_signer(secret)
            case Ed25519Secret():
                return ed25519_signer(secret)


def describe(outcome: Outcome) -> str | None:
    """What an operator reads about an unsuccessful attempt, besides its status code."""
    match outcome:
        case Answered(status=status, location=str(location)) if 300 <= status < 400:
            return f"redirects are not followed; location: {printable(location)[:500]}"
        case Answered():
            return None
        case Unanswered(detail=detail):
            return printable(detail)[:1000]


def response_text(body: bytes) -> str:
    """A response body as text that can be stored and shown: UTF-8 or replaced, without control characters."""
    return printable(body.decode("utf-8", "replace"))


def printable(text: str) -> str:
    """Text without control characters, other than tab and newline."""
    return text if text.isprintable() else _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
