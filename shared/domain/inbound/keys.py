"""Secrets of inbound sources: a wrong form, an empty and a weak one are refused when they are configured."""

import re
from typing import assert_never

from shared.domain.inbound.schemes import Base64Secret, Scheme, TextSecret
from shared.domain.signing import HmacSecret, InvalidSecret, parse_secret

# Fewer different bytes than a random key of the least length ever has.
_MIN_DISTINCT_BYTES = 6

# Labels that documentation and headers put before a signature or a secret, and that are no part of it.
_LABELS = ("sha1=", "sha256=", "v0=", "v1=", "v1,", "v1a,")


def parse_inbound_secret(scheme: Scheme, text: str) -> bytes:
    """The HMAC key of a secret as its provider shows it, never empty.

    Raises:
        InvalidSecret: the text is not of the provider's form, or easily guessed. The message names the accepted form
            and never repeats the text.
    """
    match scheme.secret:
        case TextSecret() as form:
            key = _text_key(form, text)
            accepted = form.accepted
        case Base64Secret():
            secret = parse_secret(text)
            if not isinstance(secret, HmacSecret):
                raise InvalidSecret(
                    "expected an HMAC secret, 'whsec_' and base64, since that is how webhooks are verified here"
                )
            key = secret.key
            accepted = "'whsec_' and the base64 of random bytes"
        case _:
            assert_never(scheme.secret)
    if len(set(key)) < _MIN_DISTINCT_BYTES:
        raise InvalidSecret(f"this secret is easily guessed: expected {accepted}, made at random")
    return key


def _text_key(form: TextSecret, text: str) -> bytes:
    if text.startswith(_LABELS):
        raise InvalidSecret(
            f"this is a label before a signature or a secret: expected {form.accepted}, without the label"
        )
    # isprintable is false for control characters, and for halves of surrogate pairs, which have no UTF-8.
    if not (text.isprintable() and text == text.strip() and re.fullmatch(form.pattern, text)):
        raise InvalidSecret(f"expected {form.accepted}, with no space before or after it")
    return text.encode()
