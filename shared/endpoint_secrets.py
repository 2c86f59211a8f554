"""An endpoint's signing secrets and custom headers: made, sealed for storage, and as much of them as may be shown."""

import secrets
from collections.abc import Mapping
from typing import Literal
from uuid import UUID

import msgspec

from shared.crypto import KeyMissing, Sealer, Unsealable, ed25519_public_key
from shared.domain.signing import (
    ED25519_SEED_BYTES,
    Ed25519Secret,
    HmacSecret,
    InvalidSecret,
    SigningSecret,
    format_secret,
    parse_secret,
)
from shared.errors import Invalid

Signing = Literal["v1", "v1a"]
"""`v1`: HMAC-SHA256 with a shared secret. `v1a`: ed25519, the receiver needs a public key only."""

_HMAC_KEY_BYTES = 32


def choose_secret(given: str | None, signing: Signing | None, default: Signing) -> SigningSecret:
    """The secret that a user wrote, or a new one.

    `signing` is the kind that was asked for; without it, the secret itself says its kind, and a new one is of the
    `default` kind.

    Raises:
        Invalid: the text is no secret, or one of the other kind.
    """
    if given is None:
        return _new_secret(signing or default)
    try:
        secret = parse_secret(given)
    except InvalidSecret as fault:
        raise Invalid("secret", str(fault)) from None
    if signing not in (None, signing_of(secret)):
        raise Invalid("secret", "is of the other kind than `signing`: v1 takes whsec_…, v1a whsk_…")
    return secret


def _new_secret(signing: Signing) -> SigningSecret:
    match signing:
        case "v1":
            return HmacSecret(secrets.token_bytes(_HMAC_KEY_BYTES))
        case "v1a":
            return Ed25519Secret(secrets.token_bytes(ED25519_SEED_BYTES))


def signing_of(secret: SigningSecret) -> Signing:
    """Which signatures a secret makes."""
    match secret:
        case HmacSecret():
            return "v1"
        case Ed25519Secret():
            return "v1a"


def public_key_of(secret: SigningSecret) -> str | None:
    """What a receiver verifies `v1a` signatures with, `whpk_…`; None for `v1`, which has no public half."""
    match secret:
        case HmacSecret():
            return None
        case Ed25519Secret():
            return ed25519_public_key(secret)


def seal_secret(sealer: Sealer, endpoint_id: UUID, secret: SigningSecret) -> bytes:
    """A secret as it is stored: it opens for its endpoint only."""
    return sealer.seal(format_secret(secret).encode(), endpoint_id.bytes)


def open_secret(sealer: Sealer, endpoint_id: UUID, sealed: bytes | None) -> SigningSecret | None:
    """What `seal_secret` made; None when there is none, or none that opens with the configured keys.

    That one endpoint's secret is unreadable must not hide the others, nor keep anyone from rotating it.
    """
    if sealed is None:
        return None
    try:
        return parse_secret(sealer.open(sealed, endpoint_id.bytes).decode("ascii", "replace"))
    except (KeyMissing, Unsealable, InvalidSecret):
        return None


def seal_headers(sealer: Sealer, endpoint_id: UUID, headers: Mapping[str, str]) -> bytes | None:
    """Custom headers as they are stored; None for none of them."""
    if not headers:
        return None
    return sealer.seal(msgspec.json.encode(dict(headers)), endpoint_id.bytes)


def header_names(sealer: Sealer, endpoint_id: UUID, sealed: bytes | None) -> list[str] | None:
    """The names of the custom headers, whose values are never shown; None when they do not open."""
    if sealed is None:
        return []
    try:
        headers = msgspec.json.decode(sealer.open(sealed, endpoint_id.bytes), type=dict[str, str])
    except (KeyMissing, Unsealable, msgspec.MsgspecError):
        return None
    return list(headers)
