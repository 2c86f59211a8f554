import base64
import hashlib
import hmac
import time

import pytest
import standardwebhooks
import svix.webhooks
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from shared.crypto import ed25519_signer
from shared.domain.signing import (
    Ed25519Secret,
    HmacSecret,
    InvalidSecret,
    SigningSecret,
    format_secret,
    hmac_signer,
    parse_secret,
    signature_header,
)

# 25 bytes whose base64 has both characters that the URL-safe alphabet replaces.
KEY = b"\xfb\xef\xff" * 8 + b"\xfe"
PADDED = base64.b64encode(KEY).decode()
URL_SAFE = base64.urlsafe_b64encode(KEY).decode()

keys = st.binary(min_size=24, max_size=64)
ids = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
bodies = st.text(st.characters(codec="utf-8")).map(str.encode)


@given(keys, ids, bodies)
def test_reference_verifiers_accept_our_signature(key: bytes, message_id: str, body: bytes) -> None:
    timestamp = int(time.time())
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature_header(
            message_id, timestamp, body, [hmac_signer(HmacSecret(key))]
        ),
    }
    shown = format_secret(HmacSecret(key))
    standardwebhooks.Webhook(shown).verify(body, headers, json_parse=False)
    svix.webhooks.Webhook(shown).verify(body, headers)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(shown).verify(body + b" ", headers, json_parse=False)


def test_the_published_test_vector() -> None:
    secret = parse_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert isinstance(secret, HmacSecret)
    header = signature_header(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
        [hmac_signer(secret)],
    )
    assert header == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(keys, st.integers(0, 2**40), st.binary())
def test_the_signed_bytes_are_id_timestamp_and_body_whatever_the_body_holds(
    key: bytes, timestamp: int, body: bytes
) -> None:
    """WH-001."""
    mac = hmac.digest(key, b"msg_1." + str(timestamp).encode() + b"." + body, hashlib.sha256)
    header = signature_header("msg_1", timestamp, body, [hmac_signer(HmacSecret(key))])
    assert header == "v1," + base64.b64encode(mac).decode()


@given(st.lists(keys, min_size=2, max_size=4, unique=True), ids, bodies)
def test_during_a_rotation_every_live_secret_verifies_alone(
    live: list[bytes], message_id: str, body: bytes
) -> None:
    """WH-010."""
    timestamp = int(time.time())
    signers = [hmac_signer(HmacSecret(key)) for key in live]
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature_header(message_id, timestamp, body, signers),
    }
    assert len(headers["webhook-signature"].split(" ")) == len(live)
    for key in live:
        standardwebhooks.Webhook(key).verify(body, headers, json_parse=False)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(b"no longer live").verify(body, headers, json_parse=False)


@given(keys, st.lists(st.binary(), min_size=2, max_size=4))
def test_a_signer_forgets_what_it_signed_before(key: bytes, messages: list[bytes]) -> None:
    reused = hmac_signer(HmacSecret(key))
    assert [reused(each) for each in messages] == [
        hmac_signer(HmacSecret(key))(each) for each in messages
    ]


@given(st.binary(min_size=32, max_size=32), ids, st.binary())
def test_an_ed25519_signature_verifies_with_the_public_key(
    seed: bytes, message_id: str, body: bytes
) -> None:
    header = signature_header(message_id, 1614265330, body, [ed25519_signer(Ed25519Secret(seed))])
    version, _, signature = header.partition(",")
    assert version == "v1a"
    public_key = Ed25519PrivateKey.from_private_bytes(seed).public_key()
    signed = message_id.encode() + b".1614265330." + body
    public_key.verify(base64.b64decode(signature, validate=True), signed)
    with pytest.raises(InvalidSignature):
        public_key.verify(base64.b64decode(signature), signed + b" ")


def test_both_kinds_of_signature_travel_in_one_header() -> None:
    signers = [ed25519_signer(Ed25519Secret(b"s" * 32)), hmac_signer(HmacSecret(KEY))]
    header = signature_header("msg_1", 1, b"{}", signers)
    assert [entry.partition(",")[0] for entry in header.split(" ")] == ["v1a", "v1"]


@pytest.mark.parametrize(
    "text",
    [f"whsec_{PADDED}", f"whsec_{PADDED.rstrip('=')}", PADDED, PADDED.rstrip("=")],
    ids=["prefix and padding", "prefix alone", "padding alone", "neither"],
)
def test_a_secret_is_read_with_and_without_prefix_and_padding(text: str) -> None:
    """WH-005."""
    assert parse_secret(text) == HmacSecret(KEY)


@pytest.mark.parametrize(
    "text",
    [
        f"whsec_{URL_SAFE}",
        URL_SAFE,
        f"whsec_{PADDED}\n",
        f" whsec_{PADDED}",
        f"whsec_ {PADDED}",
        f"whsec_{PADDED[:8]} {PADDED[8:]}",
        f"whsec_{PADDED[:8]}={PADDED[8:]}",
        f"whsec_{PADDED.rstrip('=')}=",
        f"whsec_{PADDED}=",
        f"WHSEC_{PADDED}",
        f"whsec_whsec_{PADDED}",
        f"v1,whsec_{PADDED}",
        f"v1,{PADDED}",
        f"whsec_{'A' * 33}",
        f"whsec_{'A' * 33}===",
        f"whsec_{PADDED[:-1]}é",
        "",
        "   ",
        "whsec_",
        "whsec_!!!!",
        "whsec_QQ==",
        "whsec_====",
        "whsk_",
        f"whsk_{PADDED}",
        "whsk_" + "!" * 43,
    ],
)
def test_what_could_make_another_key_is_refused_with_the_accepted_form(text: str) -> None:
    """WH-005, WH-006, WH-007."""
    with pytest.raises(InvalidSecret) as refused:
        parse_secret(text)
    assert "expected 'whs" in str(refused.value)
    assert "base64" in str(refused.value)
    assert PADDED[:8] not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize(("length", "accepted"), [(23, False), (24, True), (64, True), (65, False)])
def test_an_hmac_key_has_24_to_64_bytes(length: int, accepted: bool) -> None:
    text = "whsec_" + base64.b64encode(b"k" * length).decode()
    if accepted:
        assert parse_secret(text) == HmacSecret(b"k" * length)
    else:
        with pytest.raises(InvalidSecret, match="24 to 64 random bytes"):
            parse_secret(text)


@pytest.mark.parametrize(("length", "accepted"), [(31, False), (32, True), (33, False)])
def test_an_ed25519_seed_has_32_bytes(length: int, accepted: bool) -> None:
    text = "whsk_" + base64.b64encode(b"s" * length).decode()
    if accepted:
        assert parse_secret(text) == Ed25519Secret(b"s" * length)
    else:
        with pytest.raises(InvalidSecret, match="'whsk_' followed by the base64 of a 32-byte"):
            parse_secret(text)


@given(keys.map(HmacSecret) | st.binary(min_size=32, max_size=32).map(Ed25519Secret))
def test_the_form_that_is_shown_reads_back_as_the_same_secret(secret: SigningSecret) -> None:
    assert parse_secret(format_secret(secret)) == secret


@given(st.text(max_size=100) | st.text("Aa+/=-_ \n", max_size=100))
def test_any_text_is_refused_or_decodes_strictly(text: str) -> None:
    try:
        secret = parse_secret(text)
    except InvalidSecret:
        return
    assert isinstance(secret, HmacSecret)
    assert len(secret.key) == len(text.removeprefix("whsec_").rstrip("=")) * 6 // 8


def test_a_secret_does_not_show_itself() -> None:
    """WH-122."""
    assert "kkkk" not in repr(HmacSecret(b"k" * 32))
    assert "ssss" not in repr(Ed25519Secret(b"s" * 32))
