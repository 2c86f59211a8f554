"""Secrets at rest (AES-256-GCM), API keys (hashed), and the signatures that need more than a hash."""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shared.domain.signing import ED25519_PUBLIC_PREFIX, Ed25519Secret, Signer
from shared.errors import LeasehookError

API_KEY_PREFIX = "lh_"
_VERSION = b"\x01"
_KEY_ID_BYTES = 4
_NONCE_BYTES = 12


class Unsealable(LeasehookError):
    """A sealed value was changed, or moved to another row."""


class KeyMissing(LeasehookError):
    """A sealed value cannot be opened with the keys that are configured."""


class Sealer:
    """Seals and opens secrets.

    A sealed value is version, id of the key, nonce and ciphertext; `context` (such as the owning endpoint's id) is
    authenticated with it, so a value copied to another row does not open there.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        """The first of `keys` (32 bytes each) seals, all of them open."""
        self._ciphers = {_key_id(key): AESGCM(key) for key in keys}
        self._sealing_id = _key_id(keys[0])

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Encrypt `plain` for storage."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._ciphers[self._sealing_id].encrypt(nonce, plain, context)
        return _VERSION + self._sealing_id + nonce + sealed

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Decrypt what `seal` made.

        Raises:
            Unsealable, KeyMissing: see there.
        """
        header = len(_VERSION) + _KEY_ID_BYTES
        cipher = self._ciphers.get(sealed[len(_VERSION) : header])
        if sealed[:1] != _VERSION:
            raise Unsealable("the stored secret has an unknown form")
        if cipher is None:
            raise KeyMissing(
                "sealed with a key that is not in LEASEHOOK_SECRET_KEY: add the old key behind the new one"
            )
        try:
            return cipher.decrypt(
                sealed[header : header + _NONCE_BYTES], sealed[header + _NONCE_BYTES :], context
            )
        except (InvalidTag, ValueError):
            raise Unsealable("the stored secret was changed or belongs to another row") from None


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()[:_KEY_ID_BYTES]


@dataclass(frozen=True, slots=True, repr=False)
class ApiKey:
    """A new API key: `text` is shown once, `key_hash` and `key_prefix` are stored."""

    text: str
    key_hash: bytes
    key_prefix: str


def new_api_key() -> ApiKey:
    """A key of 192 random bits."""
    text = API_KEY_PREFIX + secrets.token_urlsafe(24)
    return ApiKey(text, hash_api_key(text), text[: len(API_KEY_PREFIX) + 6])


def hash_api_key(text: str) -> bytes:
    """The SHA-256 under which a key is stored and looked up.

    A plain hash is enough: the key is random, so there is nothing to guess; and the lookup by an index leaks at most
    something about hashes.
    """
    return hashlib.sha256(text.encode()).digest()


def ed25519_signer(secret: Ed25519Secret) -> Signer:
    """A signer of `v1a` entries."""
    key = Ed25519PrivateKey.from_private_bytes(secret.seed)

    def sign(signed: bytes) -> str:
        return "v1a," + base64.b64encode(key.sign(signed)).decode("ascii")

    return sign


def ed25519_public_key(secret: Ed25519Secret) -> str:
    """The public half of a secret, as receivers are given it to verify `v1a` entries."""
    public_key = Ed25519PrivateKey.from_private_bytes(secret.seed).public_key()
    return ED25519_PUBLIC_PREFIX + base64.b64encode(public_key.public_bytes_raw()).decode("ascii")
