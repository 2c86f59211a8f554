"""The demo receiver: what a customer's side looks like, in the few lines that it takes.

It checks signatures by the Standard Webhooks rules on its own, without the code that signs, so that it vouches for
what a receiver in any language would see.
"""

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

TOLERANCE_SECONDS = 300
_TIMESTAMP = re.compile(r"[0-9]{1,15}")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
App = Callable[
    [Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


@dataclass(frozen=True, slots=True)
class Received:
    """One request. `fault` says why it was refused; None means that its signature is good."""

    message_id: str
    body: bytes
    fault: str | None


def receiver_app(secret: str, report: Callable[[Received], None]) -> App:
    """An ASGI application that answers 204 to webhooks signed with `secret` (`whsec_…`), 401 to anything else.

    `report` is called once per request, in the thread that serves.
    """

    async def app(
        scope: Scope,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = _headers(scope["headers"])
        fault = signature_fault(secret, headers, body, time.time())
        report(Received(headers.get("webhook-id", ""), body, fault))
        await send({"type": "http.response.start", "status": 401 if fault else 204, "headers": []})
        await send({"type": "http.response.body", "body": (fault or "").encode()})

    return app


def signature_fault(
    secret: str, headers: Mapping[str, str], body: bytes, now_seconds: float
) -> str | None:
    """Why a request is not a webhook signed with `secret`; None if it is.

    Args:
        secret: `whsec_` and base64.
        headers: by lowercase name.
        body: as it came.
        now_seconds: since 1970; the timestamp must lie within TOLERANCE_SECONDS of it.
    """
    message_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    if not message_id or not _TIMESTAMP.fullmatch(timestamp):
        return "webhook-id or webhook-timestamp is missing, or none"
    if abs(now_seconds - int(timestamp)) > TOLERANCE_SECONDS:
        return "the timestamp is too old or in the future"
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = b"%b.%b.%b" % (message_id.encode(), timestamp.encode(), body)
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
    for entry in headers.get("webhook-signature", "").split(" "):
        version, _, signature = entry.partition(",")
        if version == "v1" and hmac.compare_digest(signature.encode(), expected):
            return None
    return "no signature fits"


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}
