import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest
import standardwebhooks
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from shared import courier as courier_module
from shared.courier import Courier, describe, printable, response_text
from shared.crypto import Sealer
from shared.domain.headers import RESERVED
from shared.domain.outcome import Answered, ErrorKind, Outcome, Unanswered
from shared.domain.signing import Ed25519Secret, HmacSecret, format_secret
from shared.domain.targets import Target, parse_target
from shared.sender.request import encode_request
from shared.store.queue import Claimed

ENDPOINT = UUID(int=1)
OTHER_ENDPOINT = UUID(int=2)
KEY, OLD_KEY = b"k" * 32, b"o" * 32
SECRET = format_secret(HmacSecret(KEY))
SENT_AT = datetime(2026, 6, 1, 12, 0, 0, 900_000, tzinfo=UTC)
CANARY = "canary"
sealer = Sealer([b"s" * 32])


@dataclass(frozen=True, slots=True)
class Request:
    """What the courier asked the transport to send."""

    target: Target
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    timeout_seconds: float

    def header(self, name: str) -> str:
        [value] = [value for given, value in self.headers if given.lower() == name.encode()]
        return value.decode()

    def names(self) -> list[str]:
        return [name.decode().lower() for name, _ in self.headers]


@dataclass(slots=True)
class Recorder:
    """A transport that sends nowhere, remembers, and answers what it is told."""

    outcome: Outcome = field(default_factory=lambda: Answered(200))
    requests: list[Request] = field(default_factory=list)

    async def post(
        self,
        target: Target,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        timeout_seconds: float,
    ) -> Outcome:
        self.requests.append(Request(target, headers, body, timeout_seconds))
        return self.outcome


class Office:
    """A courier with its transport and a clock that is set by hand."""

    def __init__(self, opener: Sealer = sealer) -> None:
        self.transport = Recorder()
        self.now = SENT_AT
        self.courier = Courier(self.transport, opener, lambda: self.now)

    def attempt(self, claimed: Claimed) -> Outcome:
        return asyncio.run(self.courier.attempt(claimed, timeout_seconds=7.5))

    def sent(self, claimed: Claimed) -> Request:
        self.attempt(claimed)
        return self.transport.requests[-1]

    def unsent(self, claimed: Claimed) -> Unanswered:
        outcome = self.attempt(claimed)
        assert isinstance(outcome, Unanswered)
        assert self.transport.requests == []
        return outcome


def sealed(text: str | bytes, endpoint_id: UUID = ENDPOINT, by: Sealer = sealer) -> bytes:
    return by.seal(text.encode() if isinstance(text, str) else text, endpoint_id.bytes)


def sealed_headers(headers: Mapping[str, str]) -> bytes:
    return sealed(msgspec.json.encode(headers))


def verify(request: Request, key: bytes) -> None:
    """With the reference library, as of when it was sent."""
    webhook = standardwebhooks.Webhook(key)
    sent_at = datetime.fromtimestamp(int(request.header("webhook-timestamp")), UTC)
    expected = webhook.sign(request.header("webhook-id"), sent_at, request.body.decode())
    assert expected in request.header("webhook-signature").split(" ")


CLAIMED = Claimed(
    delivery_id=UUID(int=10),
    tenant_id=UUID(int=11),
    event_id=UUID(int=12),
    endpoint_id=ENDPOINT,
    attempt_count=1,
    attempt_base=0,
    suspect=False,
    content_type="application/json",
    payload='{"a":  "✅"}'.encode(),
    url="https://example.com/hook?a=1",
    headers_sealed=None,
    timeout_seconds=15,
    retry_delays_seconds=None,
    secrets_sealed=[sealed(SECRET)],
)


def test_a_delivery_travels_as_a_signed_post_of_its_bytes() -> None:
    """WH-001."""
    request = Office().sent(CLAIMED)
    assert request.target == parse_target(CLAIMED.url)
    assert request.body == CLAIMED.payload
    assert request.timeout_seconds == 7.5
    assert request.names() == [
        "content-type",
        "user-agent",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "idempotency-key",
    ]
    assert request.header("content-type") == CLAIMED.content_type
    assert request.header("user-agent").startswith("Leasehook/1 ")
    assert request.header("webhook-id") == str(CLAIMED.event_id)
    assert request.header("idempotency-key") == str(CLAIMED.delivery_id)
    assert request.header("webhook-timestamp") == str(int(SENT_AT.timestamp()))
    verify(request, KEY)


def test_a_retry_has_the_same_id_and_a_fresh_timestamp_and_signature() -> None:
    """WH-015."""
    office = Office()
    first = office.sent(CLAIMED)
    office.now += timedelta(minutes=10)
    second = office.sent(replace(CLAIMED, attempt_count=2))
    assert second.header("webhook-id") == first.header("webhook-id")
    assert int(second.header("webhook-timestamp")) - int(first.header("webhook-timestamp")) == 600
    assert second.body == first.body
    verify(second, KEY)


def test_every_live_secret_signs() -> None:
    """WH-010."""
    seed = b"e" * 32
    texts = [SECRET, format_secret(HmacSecret(OLD_KEY)), format_secret(Ed25519Secret(seed))]
    request = Office().sent(replace(CLAIMED, secrets_sealed=[sealed(text) for text in texts]))
    verify(request, KEY)
    verify(request, OLD_KEY)
    versions, signatures = zip(
        *[entry.split(",") for entry in request.header("webhook-signature").split(" ")], strict=True
    )
    assert versions == ("v1", "v1", "v1a")
    timestamp = request.header("webhook-timestamp")
    signed = f"{CLAIMED.event_id}.{timestamp}.".encode() + CLAIMED.payload
    public_key = Ed25519PrivateKey.from_private_bytes(seed).public_key()
    public_key.verify(base64.b64decode(signatures[2]), signed)


@pytest.mark.parametrize("outcome", [Answered(500, b"no"), Unanswered(ErrorKind.RESET, "reset")])
def test_what_the_transport_reports_is_the_outcome(outcome: Outcome) -> None:
    office = Office()
    office.transport.outcome = outcome
    assert office.attempt(CLAIMED) is outcome


def test_an_endpoints_own_headers_travel_behind_ours() -> None:
    custom = {"Authorization": "Bearer abc", "X-Tenant": "t"}
    request = Office().sent(replace(CLAIMED, headers_sealed=sealed_headers(custom)))
    assert request.headers[-2:] == [(b"Authorization", b"Bearer abc"), (b"X-Tenant", b"t")]
    assert len(request.headers) == 6 + 2


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_header_that_we_set_cannot_be_overridden_by_what_was_stored_around_the_api(
    name: str,
) -> None:
    """WH-081."""
    dresses = [name, name.upper(), name.title(), f" {name}", f"{name}\t"]
    custom = dict.fromkeys(dresses, CANARY) | {"X-Kept": "v"}
    request = Office().sent(replace(CLAIMED, headers_sealed=sealed_headers(custom)))
    assert request.headers[6:] == [(b"X-Kept", b"v")]
    verify(request, KEY)


def test_every_header_of_ours_is_reserved_and_the_request_can_be_laid_out() -> None:
    """WH-081."""
    request = Office().sent(replace(CLAIMED, headers_sealed=sealed_headers({"X-Own": "v"})))
    assert set(request.names()) - {"x-own"} <= RESERVED
    wire = encode_request("POST", request.target, request.headers, request.body)
    assert isinstance(wire, bytes)
    assert wire.endswith(b"\r\n\r\n" + CLAIMED.payload)


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": CANARY, "x-a": CANARY},
        {"X-A": f"{CANARY}\r\nX-Evil: 1"},
        {"X-A": f"{CANARY}é"},
        {"X A": CANARY},
        {"": CANARY},
    ],
)
def test_other_broken_headers_stored_around_the_api_are_left_to_the_transport_to_refuse(
    headers: dict[str, str],
) -> None:
    """WH-081, WH-082."""
    request = Office().sent(replace(CLAIMED, headers_sealed=sealed_headers(headers)))
    refused = encode_request("POST", request.target, request.headers, request.body)
    assert isinstance(refused, Unanswered)
    assert refused.kind is ErrorKind.UNSENDABLE
    assert CANARY not in refused.detail


OTHER_SEALER = Sealer([b"x" * 32])


@pytest.mark.parametrize(
    "claimed",
    [
        replace(CLAIMED, secrets_sealed=[sealed(SECRET, by=OTHER_SEALER)]),
        replace(CLAIMED, secrets_sealed=[sealed(SECRET), sealed(SECRET, by=OTHER_SEALER)]),
        replace(CLAIMED, headers_sealed=sealed("{}", by=OTHER_SEALER)),
    ],
    ids=["the secret", "one of two secrets", "the headers"],
)
def test_a_delivery_waits_for_a_key_that_is_not_configured(claimed: Claimed) -> None:
    outcome = Office().unsent(claimed)
    assert outcome.kind is ErrorKind.KEY_MISSING
    assert "LEASEHOOK_SECRET_KEY" in outcome.detail


@pytest.mark.parametrize(
    "claimed",
    [
        replace(CLAIMED, url=f"ftp://{CANARY}.example/"),
        replace(CLAIMED, url=f"https://u:{CANARY}@example.com/"),
        replace(CLAIMED, secrets_sealed=[]),
        replace(CLAIMED, secrets_sealed=[sealed(SECRET)[:-1]]),
        replace(CLAIMED, secrets_sealed=[b""]),
        replace(CLAIMED, secrets_sealed=[sealed(SECRET, OTHER_ENDPOINT)]),
        replace(CLAIMED, secrets_sealed=[sealed(SECRET), sealed(f"whsec_{CANARY}")]),
        replace(CLAIMED, secrets_sealed=[sealed("")]),
        replace(CLAIMED, secrets_sealed=[sealed(CANARY.encode() + b"\xff")]),
        replace(CLAIMED, headers_sealed=sealed('{"a":"b"}', OTHER_ENDPOINT)),
        replace(CLAIMED, headers_sealed=sealed(f'["{CANARY}"]')),
        replace(CLAIMED, headers_sealed=sealed(f'{{"{CANARY}":1}}')),
        replace(CLAIMED, headers_sealed=sealed(f'{{"{CANARY}"')),
        replace(CLAIMED, headers_sealed=sealed(CANARY.encode() + b"\xff")),
        replace(CLAIMED, headers_sealed=sealed(b'{"a":"canary\xff"}')),
    ],
)
def test_a_delivery_that_can_never_be_built_is_unsendable_and_says_why_without_secrets(
    claimed: Claimed,
) -> None:
    """WH-006, WH-080, WH-122."""
    outcome = Office().unsent(claimed)
    assert outcome.kind is ErrorKind.UNSENDABLE
    assert outcome.detail
    assert CANARY not in outcome.detail


def test_the_next_attempt_goes_by_what_the_endpoint_is_now() -> None:
    """WH-016: never the old URL with the new secret, or the other way round."""
    office = Office()
    office.sent(CLAIMED)
    moved = replace(CLAIMED, url="https://example.org/")
    assert office.sent(moved).target.host == "example.org"
    verify(office.transport.requests[-1], KEY)
    rotated = replace(moved, secrets_sealed=[sealed(format_secret(HmacSecret(OLD_KEY)))])
    verify(office.sent(rotated), OLD_KEY)
    assert len(office.transport.requests[-1].header("webhook-signature").split(" ")) == 1
    custom = replace(rotated, headers_sealed=sealed_headers({"X-New": "v"}))
    assert office.sent(custom).header("x-new") == "v"
    assert office.sent(CLAIMED).target.host == "example.com"
    verify(office.transport.requests[-1], KEY)


def test_the_route_of_an_endpoint_that_did_not_change_is_kept() -> None:
    office = Office()
    first = office.sent(CLAIMED)
    second = office.sent(replace(CLAIMED, delivery_id=UUID(int=99), event_id=UUID(int=98)))
    assert second.target is first.target
    assert second.header("webhook-id") == str(UUID(int=98))
    verify(second, KEY)


def test_a_kept_route_is_not_lent_to_another_endpoint() -> None:
    office = Office()
    office.sent(CLAIMED)
    copied = office.attempt(replace(CLAIMED, endpoint_id=OTHER_ENDPOINT))
    assert isinstance(copied, Unanswered)
    assert copied.kind is ErrorKind.UNSENDABLE


def test_only_so_many_routes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier_module, "_MAX_ROUTES", 3)
    office = Office()
    for number in range(10):
        office.sent(replace(CLAIMED, url=f"https://example.com/{number}"))
        assert 1 <= len(office.courier._routes) <= 3


def test_a_redirect_is_described_by_where_it_leads() -> None:
    redirect = Answered(302, location="https://example.com/\x1b[2J")
    assert (
        describe(redirect) == "redirects are not followed; location: https://example.com/\ufffd[2J"
    )
    for status in (300, 399):
        described = describe(Answered(status, location="/b"))
        assert described == "redirects are not followed; location: /b"
    assert describe(Answered(308, location="")) == "redirects are not followed; location: "
    long = describe(Answered(302, location="l" * 10_000))
    assert long == "redirects are not followed; location: " + "l" * 500


@pytest.mark.parametrize(
    "outcome",
    [
        Answered(201, location="/1"),
        Answered(299, location="/"),
        Answered(400, location="/"),
        Answered(302),
    ],
)
def test_an_answer_that_is_no_redirect_needs_no_description(outcome: Answered) -> None:
    assert describe(outcome) is None


def test_what_went_wrong_is_described_briefly_and_without_control_characters() -> None:
    """WH-123."""
    assert describe(Unanswered(ErrorKind.DNS, "no such\0 name\x1b")) == "no such\ufffd name\ufffd"
    assert describe(Unanswered(ErrorKind.DNS, "d" * 5000)) == "d" * 1000


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", ""),
        (b"ok", "ok"),
        (b"line\n\tnext", "line\n\tnext"),
        ("é✅ <script>".encode(), "é✅ <script>"),
        (b"a\0b", "a\ufffdb"),
        (b"\x1b[31mred\x1b[0m", "\ufffd[31mred\ufffd[0m"),
        (b"a\r\nb\x0b\x0c", "a\ufffd\nb\ufffd\ufffd"),
        (b"\x08\x1f\x7f", "\ufffd\ufffd\ufffd"),
        ("\u0080\u009b\u009f\u00a0".encode(), "\ufffd\ufffd\ufffd\u00a0"),
        (b"cut \xe2\x9c", "cut \ufffd"),
        (b"\xff\xed\xa0\x80", "\ufffd" * 4),
    ],
)
def test_a_response_is_kept_as_text_that_can_be_stored_and_shown(body: bytes, text: str) -> None:
    """WH-123."""
    assert response_text(body) == text


@given(st.binary() | st.text(st.characters(codec="utf-8")).map(str.encode))
def test_no_response_holds_a_control_character_after_it_was_read(body: bytes) -> None:
    """WH-123."""
    text = response_text(body)
    assert not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in text if each not in "\t\n")
    assert printable(text) == text
    assert text.encode().decode() == text
