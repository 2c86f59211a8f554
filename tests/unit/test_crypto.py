import hashlib

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from shared.crypto import KeyMissing, Sealer, Unsealable, hash_api_key, new_api_key

OLD_KEY, NEW_KEY = b"o" * 32, b"n" * 32
CONTEXT = b"the endpoint's id"
sealer = Sealer([NEW_KEY])


@given(st.binary(), st.binary())
def test_what_was_sealed_opens_in_its_own_context(plain: bytes, context: bytes) -> None:
    assert sealer.open(sealer.seal(plain, context), context) == plain


def test_a_sealed_value_shows_nothing_and_is_never_the_same_twice() -> None:
    """WH-122."""
    first, second = sealer.seal(b"whsec_secret", CONTEXT), sealer.seal(b"whsec_secret", CONTEXT)
    assert b"secret" not in first
    assert first != second


@given(st.binary(), st.binary(), st.binary())
def test_a_value_copied_to_another_row_does_not_open_there(
    plain: bytes, context: bytes, other: bytes
) -> None:
    if context != other:
        with pytest.raises(Unsealable, match="changed or belongs to another row"):
            sealer.open(sealer.seal(plain, context), other)


def test_a_value_in_which_any_bit_was_changed_does_not_open() -> None:
    sealed = sealer.seal(b"secret", CONTEXT)
    for position in range(len(sealed)):
        for bit in range(8):
            changed = bytearray(sealed)
            changed[position] ^= 1 << bit
            with pytest.raises((Unsealable, KeyMissing)):
                sealer.open(bytes(changed), CONTEXT)


def test_a_value_that_was_cut_off_or_lengthened_does_not_open() -> None:
    sealed = sealer.seal(b"secret", CONTEXT)
    for length in range(len(sealed)):
        with pytest.raises((Unsealable, KeyMissing)):
            sealer.open(sealed[:length], CONTEXT)
    with pytest.raises(Unsealable):
        sealer.open(sealed + b"\0", CONTEXT)


@given(st.binary(max_size=60))
def test_bytes_that_were_never_sealed_do_not_open(junk: bytes) -> None:
    for sealed in (junk, sealer.seal(b"", CONTEXT)[:5] + junk):
        with pytest.raises((Unsealable, KeyMissing)):
            sealer.open(sealed, CONTEXT)


def test_a_value_of_an_unknown_form_is_told_from_one_with_an_unknown_key() -> None:
    sealed = sealer.seal(b"secret", CONTEXT)
    with pytest.raises(Unsealable, match="unknown form"):
        sealer.open(b"\x02" + sealed[1:], CONTEXT)
    with pytest.raises(Unsealable, match="unknown form"):
        sealer.open(b"", CONTEXT)


def test_the_stored_form_does_not_change_from_one_release_to_the_next() -> None:
    nonce = b"twelve bytes"
    ciphertext = AESGCM(NEW_KEY).encrypt(nonce, b"secret", CONTEXT)
    stored = b"\x01" + hashlib.sha256(NEW_KEY).digest()[:4] + nonce + ciphertext
    assert sealer.open(stored, CONTEXT) == b"secret"


def test_keys_are_rotated_by_putting_the_new_one_first() -> None:
    sealed_before = Sealer([OLD_KEY]).seal(b"secret", CONTEXT)
    rotating = Sealer([NEW_KEY, OLD_KEY])
    assert rotating.open(sealed_before, CONTEXT) == b"secret"
    assert sealer.open(rotating.seal(b"secret", CONTEXT), CONTEXT) == b"secret"


def test_a_key_that_is_not_configured_is_named_by_its_setting() -> None:
    with pytest.raises(
        KeyMissing, match="LEASEHOOK_SECRET_KEY: add the old key behind the new one"
    ):
        sealer.open(Sealer([OLD_KEY]).seal(b"secret", CONTEXT), CONTEXT)


def test_of_an_api_key_only_its_hash_and_a_short_prefix_are_for_storing() -> None:
    """WH-125."""
    key = new_api_key()
    assert key.text.startswith("lh_")
    assert len(key.text) == len("lh_") + 192 // 6
    assert key.key_hash == hash_api_key(key.text) == hashlib.sha256(key.text.encode()).digest()
    assert key.key_prefix == key.text[:9]
    assert key.text[9:] not in repr(key)


def test_api_keys_differ_from_the_first_random_character_on() -> None:
    """WH-125."""
    assert len({new_api_key().key_prefix for _ in range(100)}) == 100
