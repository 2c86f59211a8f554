"""Requests as providers send them, signed here by what their documentation says and not by our own code."""

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

GITHUB_SECRET = "It's a Secret to Everybody, said the Moblin"
STRIPE_SECRET = "whsec_kW3zJ8vQp2rT6yU1iO4aS7dF0gH5jK9l"
SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SHOPIFY_SECRET = "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"
STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
GENERIC_SECRET = "a generic secret, chosen at random 8fA3"

SECRETS = {
    "github": GITHUB_SECRET,
    "stripe": STRIPE_SECRET,
    "slack": SLACK_SECRET,
    "shopify": SHOPIFY_SECRET,
    "standard_webhooks": STANDARD_SECRET,
    "hmac": GENERIC_SECRET,
}
GENERIC = {
    "signature_header": "X-Acme-Signature",
    "encoding": "hex",
    "signed": "{timestamp}.{body}",
    "timestamp_header": "X-Acme-Time",
    "id_header": "X-Acme-Id",
    "type_pointer": "/kind",
}


@dataclass(frozen=True)
class Signed:
    """A request's headers and body."""

    headers: Mapping[str, str]
    body: bytes


def sign(
    provider: str,
    body: bytes,
    *,
    secret: str | None = None,
    at: int | None = None,
    message_id: str | None = None,
    event: str = "push",
    content_type: str | None = "application/json",
) -> Signed:
    """What a provider would send now, or at the Unix time `at`."""
    key = (SECRETS[provider] if secret is None else secret).encode()
    timestamp = int(time.time()) if at is None else at
    own_id = message_id or str(uuid4())
    stamp = str(timestamp).encode()
    headers = {} if content_type is None else {"content-type": content_type}
    match provider:
        case "github":
            headers |= {
                "X-GitHub-Event": event,
                "X-GitHub-Delivery": own_id,
                "X-Hub-Signature-256": "sha256=" + _hex(key, body),
                "User-Agent": "GitHub-Hookshot/044aadd",
            }
        case "stripe":
            headers["Stripe-Signature"] = f"t={timestamp},v1={_hex(key, stamp + b'.' + body)}"
        case "slack":
            headers |= {
                "X-Slack-Request-Timestamp": str(timestamp),
                "X-Slack-Signature": "v0=" + _hex(key, b"v0:" + stamp + b":" + body),
            }
        case "shopify":
            headers |= {
                "X-Shopify-Topic": "orders/create",
                "X-Shopify-Webhook-Id": own_id,
                "X-Shopify-Hmac-Sha256": _base64(key, body),
            }
        case "standard_webhooks":
            raw = base64.b64decode(key.decode().removeprefix("whsec_"))
            signed = own_id.encode() + b"." + stamp + b"." + body
            headers |= {
                "webhook-id": own_id,
                "webhook-timestamp": str(timestamp),
                "webhook-signature": "v1," + _base64(raw, signed),
            }
        case "hmac":
            headers |= {
                "X-Acme-Time": str(timestamp),
                "X-Acme-Id": own_id,
                "X-Acme-Signature": _hex(key, stamp + b"." + body),
            }
        case _:
            raise ValueError(provider)
    return Signed(headers, body)


def _hex(key: bytes, signed: bytes) -> str:
    return hmac.new(key, signed, hashlib.sha256).hexdigest()


def _base64(key: bytes, signed: bytes) -> str:
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
