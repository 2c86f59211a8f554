"""Standard Webhooks signatures (https://www.standardwebhooks.com, specification 1.0.0) over bytes."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass

HMAC_PREFIX = "whsec_"
ED25519_PREFIX = "whsk_"
ED25519_PUBLIC_PREFIX = "whpk_"
MIN_KEY_BYTES = 24
MAX_KEY_BYTES = 64
ED25519_SEED_BYTES = 32

_FORMAT = f"expected '{HMAC_PREFIX}' followed by the standard base64 of {MIN_KEY_BYTES} to {MAX_KEY_BYTES} random bytes"


class InvalidSecret(ValueError):
    """The text is no signing secret. The message names the accepted form and never repeats the text."""


@dataclass(frozen=True, slots=True, repr=False)
class HmacSecret:
    """A shared key for `v1` signatures."""

    key: bytes


@dataclass(frozen=True, slots=True, repr=False)
class Ed25519Secret:
    """A private key's 32-byte seed for `v1a` signatures."""

    seed: bytes


SigningSecret = HmacSecret | Ed25519Secret
Signer = Callable[[bytes], str]
"""Signs the bytes `id.timestamp.body` and returns one entry of the `webhook-signature` header."""


def parse_secret(text: str) -> SigningSecret:
    """Read a secret as a user writes it: `whsec_…` (or bare base64) for HMAC, `whsk_…` for ed25519.

    Base64 may be padded or not; anything outside the standard alphabet is refused instead of skipped, because a
    skipped character silently makes another key.

    Raises:
        InvalidSecret: the text is not of that form.
    """
    if text.startswith(ED25519_PREFIX):
        seed = _decode(text.removeprefix(ED25519_PREFIX))
        if len(seed) != ED25519_SEED_BYTES:
            raise InvalidSecret(
                f"expected '{ED25519_PREFIX}' followed by the base64 of a {ED25519_SEED_BYTES}-byte ed25519 seed"
            )
        return Ed25519Secret(seed)
    key = _decode(text.removeprefix(HMAC_PREFIX))
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise InvalidSecret(_FORMAT)
    return HmacSecret(key)


def format_secret(secret: SigningSecret) -> str:
    """The form that is shown to the user once, and that `parse_secret` reads."""
    match secret:
        case HmacSecret(key=key):
            return HMAC_PREFIX + base64.b64encode(key).decode("ascii")
        case Ed25519Secret(seed=seed):
            return ED25519_PREFIX + base64.b64encode(seed).decode("ascii")


def _decode(text: str) -> bytes:
    unpadded = text.rstrip("=")
    padding = "=" * (-len(unpadded) % 4)
    if text not in (unpadded, unpadded + padding):
        raise InvalidSecret(_FORMAT)
    try:
        return base64.b64decode(unpadded + padding, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSecret(_FORMAT) from None


def hmac_signer(secret: HmacSecret) -> Signer:
    """A signer of `v1` entries; hashing the key once makes each signature cheaper."""
    keyed = hmac.new(secret.key, digestmod=hashlib.sha256)

    def sign(signed: bytes) -> str:
        mac = keyed.copy()
        mac.update(signed)
        return "v1," + base64.b64encode(mac.digest()).decode("ascii")

    return sign


def signature_header(
    message_id: str, timestamp: int, body: bytes, signers: Iterable[Signer]
) -> str:
    """The value of `webhook-signature`: one entry per live secret, separated by spaces.

    `timestamp` is in whole seconds since 1970, as sent in `webhook-timestamp`; `message_id` holds no full stop.
    """
    signed = b"%b.%d.%b" % (message_id.encode("ascii"), timestamp, body)
    return " ".join([sign(signed) for sign in signers])
