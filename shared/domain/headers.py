"""Custom headers: which names and values can travel, and which names are not an endpoint's to choose."""

import re

RESERVED = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "idempotency-key",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)
"""Set by the sender, or about the connection or the body's form. In lower case."""

MAX_VALUE_LENGTH = 4096

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?", re.ASCII)


def is_name(text: str) -> bool:
    """Whether `text` is an HTTP token (RFC 9110 §5.6.2) of at most 100 characters."""
    return _NAME.fullmatch(text) is not None


def is_value(text: str) -> bool:
    """Whether `text` is printable ASCII that neither begins nor ends with white space."""
    return len(text) <= MAX_VALUE_LENGTH and _VALUE.fullmatch(text) is not None


def is_reserved(name: str) -> bool:
    """Whether a name is not an endpoint's to choose, in any case and with any white space around it."""
    return name.strip().lower() in RESERVED
