"""What the providers' own libraries sign and their documentation publishes is accepted; one byte changed is refused."""

import base64
import datetime as dt
import hashlib
import hmac
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import standardwebhooks
import stripe
import svix.webhooks
from hypothesis import given, settings
from hypothesis import strategies as st
from slack_sdk.signature import SignatureVerifier

from shared.domain.inbound import (
    PROVIDERS,
    Reason,
    Refused,
    Scheme,
    Verified,
    generic,
    kept_headers,
    parse_inbound_secret,
    verify,
)

NOW = 1_760_000_000
TEXT_SECRET = "0123456789abcdefghijklmnopqrstuv"
STRIPE_SECRET = f"whsec_{TEXT_SECRET}"
WHSEC = "whsec_" + base64.b64encode(bytes(range(32))).decode()

# Two spaces, CRLF, escapes that parsers undo, a repeated key, a number that floats round, and a newline at the end.
PRETTY = (
    b'{\r\n  "id":  "evt_1",\r\n  "type": "order.paid",\r\n  "zz": "\\u0026 \\/",\r\n'
    b'  "zz": 1.10,\r\n  "n": 12345678901234567890123\r\n}\r\n'
)
EMOJI = '{"id":"evt_2","msg":"déploiement ✅ 🚀"}'.encode()


def stripe_headers(body: bytes, secret: str = STRIPE_SECRET, at: int = NOW) -> dict[str, str]:
    header = stripe.WebhookSignature.generate_signature_header(body.decode(), secret, at)
    return {"Stripe-Signature": header}


def github_headers(body: bytes, secret: str = TEXT_SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "X-GitHub-Event": "pull_request",
        "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "X-Hub-Signature-256": f"sha256={digest}",
    }


def shopify_headers(body: bytes) -> dict[str, str]:
    digest = hmac.new(TEXT_SECRET.encode(), body, hashlib.sha256).digest()
    return {
        "X-Shopify-Topic": "orders/create",
        "X-Shopify-Webhook-Id": "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
        "X-Shopify-Event-Id": "98880550-7158-44d4-b7cd-2c97c8a091b5",
        "X-Shopify-Hmac-SHA256": base64.b64encode(digest).decode(),
    }


def slack_headers(body: bytes) -> dict[str, str]:
    signature = SignatureVerifier(TEXT_SECRET).generate_signature(timestamp=str(NOW), body=body)
    assert signature is not None
    return {"X-Slack-Request-Timestamp": str(NOW), "X-Slack-Signature": signature}


def standard_headers(body: bytes) -> dict[str, str]:
    at = dt.datetime.fromtimestamp(NOW, dt.UTC)
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(NOW),
        "webhook-signature": standardwebhooks.Webhook(WHSEC).sign("msg_1", at, body.decode()),
    }


def svix_headers(body: bytes) -> dict[str, str]:
    at = dt.datetime.fromtimestamp(NOW, dt.UTC)
    return {
        "svix-id": "msg_1",
        "svix-timestamp": str(NOW),
        "svix-signature": svix.webhooks.Webhook(WHSEC).sign("msg_1", at, body.decode()),
    }


SVIX = generic(
    signature_header="Svix-Signature",
    encoding="base64",
    prefix="v1,",
    separator=" ",
    signed="{id}.{timestamp}.{body}",
    secret="base64",
    timestamp_header="Svix-Timestamp",
    id_header="Svix-Id",
    type_pointer="/type",
)


@dataclass(frozen=True)
class Provider:
    scheme: Scheme
    secret: str
    sign: Callable[[bytes], dict[str, str]]
    signed_headers: tuple[str, ...] = ()

    @property
    def keys(self) -> list[bytes]:
        return [parse_inbound_secret(self.scheme, self.secret)]

    def judge(self, headers: dict[str, str], body: bytes, now: int = NOW) -> Verified | Refused:
        return verify(self.scheme, self.keys, as_received(headers), body, now)


def as_received(headers: dict[str, str]) -> dict[str, list[bytes]]:
    return {name.lower(): [value.encode()] for name, value in headers.items()}


PROVIDERS_UNDER_TEST = {
    "stripe": Provider(PROVIDERS["stripe"], STRIPE_SECRET, stripe_headers),
    "github": Provider(PROVIDERS["github"], TEXT_SECRET, github_headers),
    "shopify": Provider(PROVIDERS["shopify"], TEXT_SECRET, shopify_headers),
    "slack": Provider(
        PROVIDERS["slack"], TEXT_SECRET, slack_headers, ("x-slack-request-timestamp",)
    ),
    "standard_webhooks": Provider(
        PROVIDERS["standard_webhooks"],
        WHSEC,
        standard_headers,
        ("webhook-id", "webhook-timestamp"),
    ),
    "svix, as a scheme of the user's": Provider(
        SVIX, WHSEC, svix_headers, ("svix-id", "svix-timestamp")
    ),
}

every_provider = pytest.mark.parametrize(
    "provider", PROVIDERS_UNDER_TEST.values(), ids=PROVIDERS_UNDER_TEST.keys()
)


def test_every_provider_is_under_test() -> None:
    assert PROVIDERS.keys() <= PROVIDERS_UNDER_TEST.keys()


@every_provider
@pytest.mark.parametrize(
    "body", [PRETTY, EMOJI, b"", b"\n"], ids=["pretty", "emoji", "empty", "\n"]
)
def test_what_the_provider_signs_is_accepted_over_its_bytes(
    provider: Provider, body: bytes
) -> None:
    """WH-002, WH-003."""
    headers = provider.sign(body)
    assert isinstance(provider.judge(headers, body), Verified)


@every_provider
def test_the_same_json_written_otherwise_is_refused(provider: Provider) -> None:
    """WH-002."""
    headers = provider.sign(PRETTY)
    for rewritten in (
        PRETTY.replace(b":  ", b": ", 1),
        PRETTY.rstrip(),
        PRETTY.replace(b"\r\n", b"\n"),
        PRETTY.replace(b"\\u0026", b"&"),
        json.dumps(json.loads(PRETTY)).encode(),
    ):
        refused = provider.judge(headers, rewritten)
        assert isinstance(refused, Refused)
        assert refused.reason == Reason.BAD_SIGNATURE


def with_one_byte_changed(data: st.DataObject, value: bytes) -> bytes:
    where = data.draw(st.integers(0, len(value) - 1))
    instead = data.draw(st.integers(0, 255).filter(lambda byte: byte != value[where]))
    return value[:where] + bytes([instead]) + value[where + 1 :]


@every_provider
@settings(max_examples=60)
@given(data=st.data(), body=st.text(st.characters(codec="utf-8"), min_size=1).map(str.encode))
def test_one_byte_changed_anywhere_in_what_is_signed_is_refused(
    provider: Provider, data: st.DataObject, body: bytes
) -> None:
    headers = as_received(provider.sign(body))
    assert isinstance(verify(provider.scheme, provider.keys, headers, body, NOW), Verified)

    name = data.draw(
        st.sampled_from(["body", provider.scheme.signature_header, *provider.signed_headers])
    )
    changed_body, changed = body, headers
    if name == "body":
        changed_body = with_one_byte_changed(data, body)
    else:
        value = with_one_byte_changed(data, headers[name][0])
        changed = {**headers, name: [value]}
    judged = verify(provider.scheme, provider.keys, changed, changed_body, NOW)
    if changed_body == body and only_case_differs(provider, name, headers, changed):
        assert isinstance(judged, Verified)
    else:
        assert isinstance(judged, Refused)


def only_case_differs(
    provider: Provider,
    name: str,
    headers: dict[str, list[bytes]],
    changed: dict[str, list[bytes]],
) -> bool:
    """Whether a hexadecimal digit's case is the whole difference, which is let pass."""
    before, after = headers[name][0], changed[name][0]
    digits = slice(-64, None)
    return (
        provider.scheme.encoding == "hex"
        and name == provider.scheme.signature_header
        and before[:-64] == after[:-64]
        and before[digits].lower() == after[digits].lower()
    )


@every_provider
def test_another_secret_is_refused_and_any_live_one_will_do(provider: Provider) -> None:
    headers = as_received(provider.sign(PRETTY))
    [key] = provider.keys
    other = hashlib.sha256(key).digest()
    refused = verify(provider.scheme, [other], headers, PRETTY, NOW)
    assert isinstance(refused, Refused)
    assert refused.reason == Reason.BAD_SIGNATURE
    for keys in ([other, key], [key, other]):
        assert isinstance(verify(provider.scheme, keys, headers, PRETTY, NOW), Verified)


def forged(provider: Provider, key: bytes) -> dict[str, list[bytes]]:
    """The provider's headers for PRETTY, with a signature made with another key."""
    scheme = provider.scheme
    headers = as_received(provider.sign(PRETTY))
    parts = {b"{body}": PRETTY, b"{timestamp}": str(NOW).encode(), b"{id}": b"msg_1"}
    signed = scheme.signed
    for placeholder, part in parts.items():
        signed = signed.replace(placeholder, part)
    digest = hmac.digest(key, signed, "sha256")
    text = digest.hex().encode() if scheme.encoding == "hex" else base64.b64encode(digest)
    value = headers[scheme.signature_header][0]
    return {**headers, scheme.signature_header: [value[: -len(text)] + text]}


@every_provider
def test_without_a_usable_secret_nothing_is_accepted(provider: Provider) -> None:
    """WH-006: not even what was signed with the empty key."""
    [key] = provider.keys
    genuine = forged(provider, key)
    assert isinstance(verify(provider.scheme, [key], genuine, PRETTY, NOW), Verified)
    with_empty_key = forged(provider, b"")
    for keys in ([], [b""], [b"", b""]):
        refused = verify(provider.scheme, keys, with_empty_key, PRETTY, NOW)
        assert isinstance(refused, Refused)
        assert refused.reason == Reason.NO_SECRET
    one_left = verify(provider.scheme, [b"", key], with_empty_key, PRETTY, NOW)
    assert isinstance(one_left, Refused)
    assert one_left.reason == Reason.BAD_SIGNATURE


@every_provider
def test_white_space_around_headers_is_let_pass(provider: Provider) -> None:
    headers = {name: f" \t{value} " for name, value in provider.sign(PRETTY).items()}
    assert isinstance(provider.judge(headers, PRETTY), Verified)


@every_provider
def test_the_headers_worth_keeping_have_no_signature_among_them(provider: Provider) -> None:
    """WH-122."""
    kept = kept_headers(provider.scheme)
    assert provider.scheme.signature_header not in kept
    assert all(name == name.lower() for name in kept)


@every_provider
def test_a_time_at_the_edge_of_the_tolerance_is_the_last_one_accepted(provider: Provider) -> None:
    """WH-012: 300 seconds either way, themselves included."""
    headers = provider.sign(PRETTY)
    verdicts = {
        offset: type(provider.judge(headers, PRETTY, NOW + offset))
        for offset in (-600, -301, -300, -299, 0, 299, 300, 301)
    }
    if provider.scheme.timestamp is None:
        assert set(verdicts.values()) == {Verified}
        return
    assert [offset for offset, verdict in verdicts.items() if verdict is Verified] == [
        -300,
        -299,
        0,
        299,
        300,
    ]
    late = provider.judge(headers, PRETTY, NOW + 301)
    assert isinstance(late, Refused)
    assert late.reason == Reason.STALE_TIMESTAMP
    assert "301 s in the past" in late.detail


def test_stripes_library_accepts_and_refuses_the_same_headers() -> None:
    """WH-011: two v1 values are one too many for nobody."""
    good = stripe_headers(PRETTY)["Stripe-Signature"].partition("v1=")[2]
    stripes = PROVIDERS_UNDER_TEST["stripe"]
    for header, accepted in {
        f"t={NOW},v1=BAD,v1={good}": True,
        f"t={NOW},v1={good},v1=BAD": True,
        f"t={NOW},v1={good},v0=BAD": True,
        f"t={NOW},v0={good}": False,
        f"t={NOW}": False,
        f"v1={good}": False,
        "v1": False,
        f"t={NOW},v1": False,
    }.items():
        judged = stripes.judge({"Stripe-Signature": header}, PRETTY)
        assert isinstance(judged, Verified) == accepted, header
        try:
            stripe.WebhookSignature.verify_header(PRETTY, header, STRIPE_SECRET)
        except stripe.SignatureVerificationError:
            assert not accepted, header
        else:
            assert accepted, header


def test_a_stripe_header_with_two_times_is_refused_and_spaces_are_let_pass() -> None:
    """WH-011."""
    good = stripe_headers(PRETTY)["Stripe-Signature"].partition("v1=")[2]
    stripes = PROVIDERS_UNDER_TEST["stripe"]
    for times in (f"t={NOW - 900},t={NOW}", f"t={NOW},t={NOW - 900}", f"t={NOW},t={NOW}"):
        refused = stripes.judge({"Stripe-Signature": f"{times},v1={good}"}, PRETTY)
        assert isinstance(refused, Refused)
        assert refused.reason == Reason.MALFORMED
    spaced = stripes.judge({"Stripe-Signature": f"t={NOW}, v1=BAD,\tv1={good} "}, PRETTY)
    assert isinstance(spaced, Verified)


def test_a_timestamp_that_stripe_signed_and_someone_changed_is_refused() -> None:
    header = stripe_headers(PRETTY)["Stripe-Signature"].replace(str(NOW), str(NOW + 1))
    refused = PROVIDERS_UNDER_TEST["stripe"].judge({"Stripe-Signature": header}, PRETTY)
    assert isinstance(refused, Refused)
    assert refused.reason == Reason.BAD_SIGNATURE


def test_githubs_published_vector() -> None:
    """https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries."""
    github = replace(PROVIDERS_UNDER_TEST["github"], secret="It's a Secret to Everybody")
    header = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert isinstance(github.judge({"X-Hub-Signature-256": header}, b"Hello, World!"), Verified)
    assert isinstance(github.judge({"X-Hub-Signature-256": header}, b"Hello, World?"), Refused)


def test_slacks_published_vector() -> None:
    """https://docs.slack.dev/authentication/verifying-requests-from-slack."""
    slack = replace(PROVIDERS_UNDER_TEST["slack"], secret="8f742231b10e8888abcd99yyyzzz85a5")
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
        b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
        b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
        b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Slack-Request-Timestamp": "1531420618",
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    assert slack.judge(headers, body, now=1_531_420_618) == Verified(
        None, "command.webhook-collect", 1_531_420_618
    )


def test_the_standard_webhooks_published_vector() -> None:
    standard = replace(
        PROVIDERS_UNDER_TEST["standard_webhooks"], secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    )
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    judged = standard.judge(headers, b'{"test": 2432232314}', now=1_614_265_330)
    assert judged == Verified("msg_p5jXN8AQM9LWM0D4loKWxJek", "received", 1_614_265_330)


def test_an_older_signature_of_github_is_never_enough() -> None:
    """WH-014: SHA-1 alone, and SHA-1 beside a wrong SHA-256."""
    github = PROVIDERS_UNDER_TEST["github"]
    sha1 = "sha1=" + hmac.new(TEXT_SECRET.encode(), PRETTY, hashlib.sha1).hexdigest()
    alone = github.judge({"X-Hub-Signature": sha1}, PRETTY)
    assert isinstance(alone, Refused)
    assert alone.reason == Reason.MISSING_SIGNATURE
    for header in (sha1, "sha256=" + "0" * 64, sha1.replace("sha1=", "sha256=")):
        beside = github.judge({"X-Hub-Signature": sha1, "X-Hub-Signature-256": header}, PRETTY)
        assert isinstance(beside, Refused)


def test_upper_case_hexadecimal_is_accepted_and_an_upper_case_label_is_not() -> None:
    """WH-014."""
    github = PROVIDERS_UNDER_TEST["github"]
    digest = github_headers(PRETTY)["X-Hub-Signature-256"].removeprefix("sha256=")
    assert isinstance(
        github.judge({"X-Hub-Signature-256": f"sha256={digest.upper()}"}, PRETTY), Verified
    )
    assert isinstance(github.judge({"X-Hub-Signature-256": f"SHA256={digest}"}, PRETTY), Refused)


def test_base64_in_another_case_is_refused() -> None:
    """WH-014."""
    headers = shopify_headers(PRETTY)
    headers["X-Shopify-Hmac-SHA256"] = headers["X-Shopify-Hmac-SHA256"].swapcase()
    assert isinstance(PROVIDERS_UNDER_TEST["shopify"].judge(headers, PRETTY), Refused)


@pytest.mark.npm
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm, for GitHub's own library")
def test_what_githubs_own_library_signs_is_accepted(tmp_path: Path) -> None:
    package = "@octokit/webhooks-methods@6.0.0"
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    subprocess.run([*install, package], cwd=tmp_path, check=True, timeout=120)
    script = (
        'import { sign } from "@octokit/webhooks-methods";'
        "console.log(await sign(process.argv[2], process.argv[3]));"
    )
    (tmp_path / "sign.mjs").write_text(script, encoding="utf-8")
    github = PROVIDERS_UNDER_TEST["github"]
    for body in (PRETTY, EMOJI):
        command = ["node", "sign.mjs", TEXT_SECRET, body.decode()]
        finished = subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60
        )
        header = finished.stdout.strip()
        assert isinstance(github.judge({"X-Hub-Signature-256": header}, body), Verified)
        assert isinstance(github.judge({"X-Hub-Signature-256": header}, body + b" "), Refused)
