"""How a source's provider signs, and the secrets that it signs with: chosen, sealed for storage, and opened to verify."""

import secrets
from collections.abc import Iterable, Mapping
from typing import Any, assert_never
from uuid import UUID

from shared.crypto import KeyMissing, Sealer, Unsealable
from shared.domain.inbound import (
    PROVIDERS,
    InvalidScheme,
    InvalidSecret,
    Scheme,
    check_tolerance,
    generic,
    parse_inbound_secret,
)
from shared.domain.inbound.schemes import Base64Secret, TextSecret
from shared.domain.signing import HmacSecret, format_secret
from shared.errors import Invalid

GENERIC = "hmac"
PROVIDER_NAMES = (*PROVIDERS, GENERIC)

_KEY_BYTES = 32
# The others make the secret themselves, and show it where the webhook is set up.
_TAKE_ANY_SECRET = frozenset({"github", "standard_webhooks", GENERIC})


def scheme_of(provider: str, configuration: Mapping[str, Any] | None) -> Scheme:
    """How a provider signs. The generic one needs a configuration, the others take none.

    Raises:
        Invalid: there is no such provider, or the configuration breaks a rule.
    """
    if provider != GENERIC:
        if configuration is not None:
            raise Invalid("configuration", f"is for the provider '{GENERIC}' only")
        if provider not in PROVIDERS:
            raise Invalid("provider", f"must be one of {', '.join(PROVIDER_NAMES)}")
        return PROVIDERS[provider]
    if configuration is None:
        raise Invalid("configuration", f"the provider '{GENERIC}' needs one: it says how it signs")
    try:
        return generic(**configuration)
    except InvalidScheme as fault:
        raise Invalid(f"configuration.{fault.field}", fault.rule) from None


def check_source_tolerance(scheme: Scheme, seconds: int | None) -> None:
    """Refuse a tolerance that leaves a timestamp unchecked, or that has none to check. None is the scheme's default.

    Raises:
        Invalid: see above.
    """
    if seconds is None:
        return
    try:
        check_tolerance(scheme, seconds)
    except InvalidScheme as fault:
        raise Invalid(fault.field, fault.rule) from None


def choose_inbound_secret(provider: str, scheme: Scheme, given: str | None) -> tuple[str, bytes]:
    """The secret that a user wrote, or a new one where the provider takes any: its text, and the key it stands for.

    Raises:
        Invalid: the text is none of the provider's form, or has to be given and is not.
    """
    if given is None:
        if provider not in _TAKE_ANY_SECRET:
            raise Invalid("secret", f"must be given: {provider} makes it, and shows it to you")
        given = _new_secret(scheme)
    try:
        return given, parse_inbound_secret(scheme, given)
    except InvalidSecret as fault:
        raise Invalid("secret", str(fault)) from None


def _new_secret(scheme: Scheme) -> str:
    key = secrets.token_bytes(_KEY_BYTES)
    match scheme.secret:
        case TextSecret():
            return key.hex()
        case Base64Secret():
            return format_secret(HmacSecret(key))
        case _:
            assert_never(scheme.secret)


def seal_key(sealer: Sealer, source_id: UUID, key: bytes) -> bytes:
    """A key as it is stored: it opens for its source only."""
    return sealer.seal(key, source_id.bytes)


def open_keys(sealer: Sealer, source_id: UUID, sealed: Iterable[bytes | None]) -> list[bytes]:
    """What `seal_key` made; what does not open with the configured keys, or is empty, is left out."""
    keys = []
    for each in sealed:
        try:
            key = sealer.open(each or b"", source_id.bytes)
        except (KeyMissing, Unsealable):
            continue
        if key:
            keys.append(key)
    return keys
