"""Verification beyond what providers' libraries try: odd headers, odd secrets, odd bodies, and schemes of one's own."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.domain.inbound import (
    FALLBACK_TYPE,
    PROVIDERS,
    InvalidScheme,
    InvalidSecret,
    Reason,
    Refused,
    Scheme,
    Verified,
    check_tolerance,
    generic,
    kept_headers,
    parse_inbound_secret,
    safe_event_type,
    verify,
)
from shared.domain.matching import is_event_type

NOW = 1_760_000_000
KEY = bytes(range(32))
BODY = b'{"id":"evt_1","type":"order.paid"}'

Headers = dict[str, list[bytes]]


def mac(signed: bytes, key: bytes = KEY, algorithm: str = "sha256") -> bytes:
    return hmac.digest(key, signed, algorithm)


def standard(
    signatures: bytes, *, timestamp: bytes = b"%d" % NOW, message_id: bytes = b"msg_1"
) -> Headers:
    return {
        "webhook-id": [message_id],
        "webhook-timestamp": [timestamp],
        "webhook-signature": [signatures],
    }


def good(
    body: bytes = BODY, *, timestamp: bytes = b"%d" % NOW, message_id: bytes = b"msg_1"
) -> bytes:
    """The entry of a right Standard Webhooks signature."""
    return b"v1," + base64.b64encode(mac(b"%b.%b.%b" % (message_id, timestamp, body)))


def github(body: bytes, **headers: str) -> Headers:
    signature = b"sha256=" + mac(body).hex().encode()
    given = {name.replace("_", "-"): [value.encode("latin-1")] for name, value in headers.items()}
    return {"x-hub-signature-256": [signature], **given}


def slack(body: bytes, content_type: bytes = b"application/json") -> Headers:
    signature = b"v0=" + mac(b"v0:%d:%b" % (NOW, body)).hex().encode()
    return {
        "content-type": [content_type],
        "x-slack-request-timestamp": [b"%d" % NOW],
        "x-slack-signature": [signature],
    }


def stripe(body: bytes, timestamp: bytes = b"%d" % NOW) -> Headers:
    signature = mac(timestamp + b"." + body).hex().encode()
    return {"stripe-signature": [b"t=" + timestamp + b",v1=" + signature]}


def judge(provider: str, headers: Headers, body: bytes = BODY) -> Verified | Refused:
    return verify(PROVIDERS[provider], [KEY], headers, body, NOW)


def accepted(judged: Verified | Refused) -> Verified:
    assert isinstance(judged, Verified), judged
    return judged


def refused(judged: Verified | Refused) -> Reason:
    assert isinstance(judged, Refused), judged
    return judged.reason


WRONG = b"v1," + base64.b64encode(bytes(32))


class TestSignatures:
    @pytest.mark.parametrize(
        "header",
        [
            b"v1,AAAA " + good(),
            good() + b" v2,zzzz",
            b"v1a,abc " + good(),
            b"nonsense " + good(),
            b"v1,not-base64! " + good(),
            b"  v1,AAAA   " + good(),
            good() + b" ",
            b"v1 v1, , " + good(),
            b"v1,\xe9\xff " + good(),
            b" ".join([b"v1,AAAA"] * 500 + [good()]),
            b" ".join([WRONG] * 500 + [good()]),
        ],
    )
    def test_one_right_entry_among_unusable_ones_is_enough(self, header: bytes) -> None:
        """WH-008."""
        accepted(judge("standard_webhooks", standard(header)))

    @pytest.mark.parametrize(
        ("header", "reason"),
        [
            (b"v1,AAAA v2,zzzz", Reason.BAD_SIGNATURE),
            (b" ".join([WRONG] * 500), Reason.BAD_SIGNATURE),
            (b"v2," + good().removeprefix(b"v1,"), Reason.MALFORMED),
            (good().removeprefix(b"v1,"), Reason.MALFORMED),
            (good().replace(b"v1,", b"V1,"), Reason.MALFORMED),
            (good().rstrip(b"="), Reason.BAD_SIGNATURE),
            (good() + b"=", Reason.BAD_SIGNATURE),
            (good() + b",", Reason.BAD_SIGNATURE),
            (b"", Reason.MISSING_SIGNATURE),
            (b" \t ", Reason.MISSING_SIGNATURE),
            (b"x" * 40_000 + b" " + good(), Reason.MALFORMED),
        ],
    )
    def test_without_a_right_entry_of_the_right_kind_nothing_is_accepted(
        self, header: bytes, reason: Reason
    ) -> None:
        """WH-008."""
        assert refused(judge("standard_webhooks", standard(header))) == reason

    def test_another_text_of_the_same_base64_is_refused(self) -> None:
        last = good()[-2:-1]
        alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        twin = alphabet[alphabet.index(last) + 1 :][:1]
        text = good()[:-2] + twin + b"="
        assert base64.b64decode(text[3:]) == base64.b64decode(good()[3:])
        assert refused(judge("standard_webhooks", standard(text))) == Reason.BAD_SIGNATURE

    @pytest.mark.parametrize(
        ("provider", "headers"),
        [
            ("github", {"x-hub-signature-256": ["sha256=é".encode()]}),
            ("github", {"x-hub-signature-256": [b"sha256=" + b"\xff" * 64]}),
            ("stripe", {"stripe-signature": [f"t={NOW},v1=é".encode()]}),
            ("shopify", {"x-shopify-hmac-sha256": [b"\xe9" * 44]}),
            ("slack", {**slack(BODY), "x-slack-signature": [b"v0=\xc3\xa9"]}),
            ("standard_webhooks", standard("v1,é".encode())),
        ],
    )
    def test_a_signature_that_is_not_ascii_is_a_wrong_signature(
        self, provider: str, headers: Headers
    ) -> None:
        """WH-013."""
        assert refused(judge(provider, headers)) == Reason.BAD_SIGNATURE

    @pytest.mark.parametrize("provider", PROVIDERS)
    def test_no_signature_is_no_signature(self, provider: str) -> None:
        empty: Headers = {PROVIDERS[provider].signature_header: []}
        assert refused(judge(provider, {})) == Reason.MISSING_SIGNATURE
        assert refused(judge(provider, empty)) == Reason.MISSING_SIGNATURE

    @pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
    def test_a_signed_header_that_was_sent_twice_is_refused(self, name: str) -> None:
        headers = standard(good())
        headers[name] *= 2
        assert refused(judge("standard_webhooks", headers)) == Reason.MALFORMED

    @pytest.mark.parametrize("message_id", [b"", b"  ", b"x" * 513, b"a.b"])
    def test_an_id_that_cannot_be_signed_unmistakably_is_refused(self, message_id: bytes) -> None:
        headers = standard(good(message_id=message_id.strip()), message_id=message_id)
        assert refused(judge("standard_webhooks", headers)) == Reason.MALFORMED

    def test_no_part_of_a_signed_body_can_be_passed_off_as_another_signed_body(self) -> None:
        """With `a.T` for an id, the same signature would fit a body that lacks its beginning."""
        body = b"%d.{}" % NOW
        accepted(judge("standard_webhooks", standard(good(body)), body))
        moved = standard(good(body), message_id=b"msg_1.%d" % NOW)
        assert refused(judge("standard_webhooks", moved, b"{}")) == Reason.MALFORMED

    def test_a_refusal_repeats_nothing_of_the_request(self) -> None:
        """WH-122."""
        headers = standard(b"v1,canary", message_id=b"canary.canary")
        for each in (headers, standard(b"canary"), standard(b"v1,canary", timestamp=b"canary")):
            judged = judge("standard_webhooks", each, b"canary")
            assert isinstance(judged, Refused)
            assert "canary" not in judged.detail


class TestTimestamps:
    @pytest.mark.parametrize(
        "timestamp",
        [
            b"9" * 400,
            b"9" * 4999,
            b"nan",
            b"inf",
            b"1e9",
            b"-1",
            b"",
            b"1_760_000_0",
            b"1_760_000_000",
            "١٧٦٠٠٠٠٠٠٠".encode(),
            b"+1760000000",
            b"01760000000",
            b"1760000000.0",
            b"1760000000000",
            b"0x68e77800",
            b"1760000000\n",
            b"\x001760000000",
        ],
    )
    def test_only_whole_seconds_in_ascii_digits_are_a_timestamp(self, timestamp: bytes) -> None:
        """WH-012: although signed."""
        signed = standard(good(timestamp=timestamp), timestamp=timestamp)
        assert refused(judge("standard_webhooks", signed)) == Reason.MALFORMED
        assert refused(judge("stripe", stripe(BODY, timestamp))) == Reason.MALFORMED

    @pytest.mark.parametrize("tolerance", [1, 30, 300, 86_400])
    def test_the_tolerance_of_the_source_holds_both_ways_and_includes_its_edge(
        self, tolerance: int
    ) -> None:
        """WH-012."""
        scheme = PROVIDERS["stripe"]
        for offset, reason in {
            -tolerance - 1: Reason.STALE_TIMESTAMP,
            -tolerance: None,
            tolerance: None,
            tolerance + 1: Reason.STALE_TIMESTAMP,
        }.items():
            headers = stripe(BODY, b"%d" % (NOW + offset))
            judged = verify(scheme, [KEY], headers, BODY, NOW, tolerance_seconds=tolerance)
            if reason is None:
                assert accepted(judged).timestamp == NOW + offset
            else:
                assert refused(judged) == reason

    def test_no_tolerance_switches_the_check_off(self) -> None:
        """WH-012."""
        headers = stripe(BODY, b"%d" % (NOW - 1))
        for tolerance in (0, -1):
            judged = verify(
                PROVIDERS["stripe"], [KEY], headers, BODY, NOW, tolerance_seconds=tolerance
            )
            assert refused(judged) == Reason.STALE_TIMESTAMP

    @pytest.mark.parametrize("seconds", [0, -1, 86_401, True, 1.5, "300"])
    def test_a_tolerance_that_is_none_is_refused_when_configured(self, seconds: int) -> None:
        """WH-012."""
        with pytest.raises(InvalidScheme, match="tolerance_seconds: must be a whole number"):
            check_tolerance(PROVIDERS["stripe"], seconds)
        with pytest.raises(InvalidScheme, match="tolerance_seconds: must be a whole number"):
            generic(
                signature_header="X-S",
                encoding="hex",
                signed="{timestamp}.{body}",
                timestamp_header="X-T",
                tolerance_seconds=seconds,
            )

    def test_a_tolerance_needs_a_signed_timestamp(self) -> None:
        check_tolerance(PROVIDERS["stripe"], 300)
        with pytest.raises(InvalidScheme, match="no timestamp is signed"):
            check_tolerance(PROVIDERS["github"], 300)

    def test_a_wrong_signature_is_told_before_an_old_timestamp(self) -> None:
        headers = stripe(b"another body", b"%d" % (NOW - 5000))
        assert refused(judge("stripe", headers)) == Reason.BAD_SIGNATURE


class TestSecrets:
    @pytest.mark.parametrize("provider", PROVIDERS)
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "   ",
            "whsec_",
            "whsec_!!!!",
            "whsec_QQ==",
            "v1,whsec_" + base64.b64encode(KEY).decode(),
            "v0=" + "0123456789abcdef" * 2,
            "sha256=" + "0123456789abcdef" * 4,
            "a" * 15,
            "a" * 32,
            "0123456789abcdef0123456789abcdef\n",
            " 0123456789abcdef0123456789abcdef",
            "0123456789abcdef\x000123456789abcdef",
            "0123456789abcdef\ud83d0123456789abcdef",
            "0123456789" * 100,
        ],
    )
    def test_an_empty_weak_or_wrongly_pasted_secret_is_refused_with_the_accepted_form(
        self, provider: str, text: str
    ) -> None:
        """WH-005, WH-006, WH-007."""
        with pytest.raises(InvalidSecret, match="expected") as caught:
            parse_inbound_secret(PROVIDERS[provider], text)
        assert len(text) < 8 or text not in str(caught.value)

    @pytest.mark.parametrize(
        ("provider", "text", "key"),
        [
            ("stripe", "whsec_" + "5WbX5kEWLlfzsGNjH64I8lOOqUB6e8FH", None),
            ("github", "It's a Secret to Everybody", None),
            ("github", "déploiement ✅ secret", None),
            ("shopify", "shpss_0123456789abcdef0123456789abcdef", None),
            ("slack", "8f742231b10e8888abcd99yyyzzz85a5", None),
            ("standard_webhooks", "whsec_" + base64.b64encode(KEY).decode(), KEY),
            ("standard_webhooks", base64.b64encode(KEY).decode().rstrip("="), KEY),
        ],
    )
    def test_a_secret_as_its_provider_shows_it_makes_its_key(
        self, provider: str, text: str, key: bytes | None
    ) -> None:
        """WH-005: a text stays the text, prefix and all, and base64 is decoded strictly."""
        assert parse_inbound_secret(PROVIDERS[provider], text) == (key or text.encode())

    @pytest.mark.parametrize("provider", ["stripe", "standard_webhooks"])
    def test_base64_with_a_space_in_it_is_refused(self, provider: str) -> None:
        """WH-005."""
        with pytest.raises(InvalidSecret, match="expected"):
            parse_inbound_secret(PROVIDERS[provider], "whsec_abcdefgh ijklmnop" + "abcdefgh" * 3)

    def test_a_private_key_is_no_secret_of_a_source(self) -> None:
        with pytest.raises(InvalidSecret, match="expected an HMAC secret"):
            parse_inbound_secret(
                PROVIDERS["standard_webhooks"], "whsk_" + base64.b64encode(KEY).decode()
            )

    def test_zero_bytes_are_easily_guessed(self) -> None:
        """WH-006."""
        with pytest.raises(InvalidSecret, match="easily guessed"):
            parse_inbound_secret(
                PROVIDERS["standard_webhooks"], "whsec_" + base64.b64encode(bytes(32)).decode()
            )

    @given(st.sampled_from(sorted(PROVIDERS)), st.text(max_size=80))
    def test_any_text_is_refused_or_makes_a_key_of_some_length(
        self, provider: str, text: str
    ) -> None:
        try:
            key = parse_inbound_secret(PROVIDERS[provider], text)
        except InvalidSecret:
            return
        assert len(key) >= 16


class TestContents:
    @pytest.mark.parametrize(
        ("provider", "headers", "body", "dedupe_id", "event_type"),
        [
            ("stripe", stripe(BODY), BODY, "evt_1", "order.paid"),
            (
                "github",
                github(
                    b'{"action":"opened"}', x_github_event="pull_request", x_github_delivery="g-1"
                ),
                b'{"action":"opened"}',
                "g-1",
                "pull_request.opened",
            ),
            (
                "github",
                github(b'{"zen":"."}', x_github_event="ping", x_github_delivery="g-2"),
                b'{"zen":"."}',
                "g-2",
                "ping",
            ),
            ("github", github(b'{"action":"opened"}'), b'{"action":"opened"}', None, FALLBACK_TYPE),
            ("standard_webhooks", standard(good()), BODY, "msg_1", "order.paid"),
        ],
    )
    def test_the_provider_says_what_happened_and_to_what(
        self,
        provider: str,
        headers: Headers,
        body: bytes,
        dedupe_id: str | None,
        event_type: str,
    ) -> None:
        """WH-110."""
        judged = accepted(judge(provider, headers, body))
        assert (judged.dedupe_id, judged.event_type) == (dedupe_id, event_type)
        assert judged.challenge is None

    def test_githubs_forms_are_verified_as_forms_and_read_as_json(self) -> None:
        """WH-003: the signature is over the form's own bytes."""
        body = urlencode({"payload": '{"action":"closed","msg":"✅"}'}).encode()
        form = "application/x-www-form-urlencoded; charset=utf-8"
        headers = github(body, x_github_event="issues", content_type=form)
        assert accepted(judge("github", headers, body)).event_type == "issues.closed"

    def test_a_topic_of_shopify_becomes_a_type_and_only_the_webhooks_id_its_id(self) -> None:
        """WH-110: webhooks about several things that one action caused share the event's id."""
        headers: Headers = {
            "x-shopify-hmac-sha256": [base64.b64encode(mac(BODY))],
            "x-shopify-topic": [b"orders/create"],
            "x-shopify-event-id": [b"shared"],
        }
        judged = accepted(judge("shopify", headers))
        assert (judged.dedupe_id, judged.event_type) == (None, "orders.create")
        headers["x-shopify-webhook-id"] = [b"its-own"]
        assert accepted(judge("shopify", headers)).dedupe_id == "its-own"

    @pytest.mark.parametrize(
        ("fields", "dedupe_id", "event_type"),
        [
            (
                {"type": "event_callback", "event_id": "Ev1", "event": {"type": "app_mention"}},
                "Ev1",
                "app_mention",
            ),
            ({"type": "block_actions"}, None, "block_actions"),
        ],
    )
    def test_slack_sends_events_and_interactions(
        self, fields: dict[str, object], dedupe_id: str | None, event_type: str
    ) -> None:
        body = json.dumps(fields).encode()
        judged = accepted(judge("slack", slack(body), body))
        assert (judged.dedupe_id, judged.event_type) == (dedupe_id, event_type)
        form = urlencode({"payload": body.decode()}).encode()
        in_form = slack(form, b"application/x-www-form-urlencoded")
        assert accepted(judge("slack", in_form, form)) == judged

    def test_slacks_challenge_is_answered_when_it_is_signed_and_not_otherwise(self) -> None:
        body = json.dumps({"type": "url_verification", "challenge": "3eZbrw1aB"}).encode()
        assert accepted(judge("slack", slack(body), body)).challenge == "3eZbrw1aB"
        forged = slack(body + b" ")
        assert refused(judge("slack", forged, body)) == Reason.BAD_SIGNATURE
        assert accepted(judge("standard_webhooks", standard(good(body)), body)).challenge is None

    @pytest.mark.parametrize(
        "challenge", ["", "a\r\nX-Evil: 1", "\ud83d", "é", "x" * 1025, 7.5, None, ["a"], {"a": 1}]
    )
    def test_a_challenge_that_is_no_plain_text_is_not_echoed(self, challenge: object) -> None:
        body = json.dumps({"type": "url_verification", "challenge": challenge}).encode()
        judged = accepted(judge("slack", slack(body), body))
        assert judged.challenge in (None, "7.5")

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"null",
            b"[]",
            b'"text"',
            b"\xff\xfe\x00",
            b"{",
            b"[" * 100_000,
            b'{"type":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            b'{"id":NaN,"type":Infinity}',
            b'{"id":null,"type":null}',
            b'{"id":true,"type":{"a":1}}',
            b'{"id":" ","type":"  "}',
            b'{"ID":"x"}',
            '{"id":"x","type":"y"}'.encode("utf-16"),
            b" " * 6_291_457,
        ],
        ids=lambda body: repr(body[:12]),
    )
    def test_a_body_that_says_nothing_is_accepted_all_the_same(self, body: bytes) -> None:
        """WH-044, WH-110: and has no id, so it is nobody's duplicate."""
        judged = accepted(judge("stripe", stripe(body), body))
        assert (judged.dedupe_id, judged.event_type) == (None, FALLBACK_TYPE)

    @pytest.mark.parametrize("content_type", [b"application/x-www-form-urlencoded", b"\xff", b""])
    @pytest.mark.parametrize(
        "body", [b"\xff=\xff", b"payload=", b"payload=%ff%fe", b"&" * 5000, b"a=b&a=c", b"%"]
    )
    def test_an_odd_form_is_accepted_all_the_same(self, content_type: bytes, body: bytes) -> None:
        headers = slack(body, content_type)
        assert accepted(judge("slack", headers, body)).event_type == FALLBACK_TYPE

    @pytest.mark.parametrize(
        ("written", "dedupe_id"),
        [
            ("12345678901234567890123", "12345678901234567890123"),
            ("1.10", "1.10"),
            ('" evt "', "evt"),
            ('"' + "x" * 255 + '"', "x" * 255),
        ],
    )
    def test_an_id_keeps_every_digit(self, written: str, dedupe_id: str) -> None:
        body = b'{"id":' + written.encode() + b"}"
        assert accepted(judge("stripe", stripe(body), body)).dedupe_id == dedupe_id

    @pytest.mark.parametrize("text", ["\\u0000", "\\ud83d", "é", "a\\nb", "x" * 256, "9" * 5000])
    def test_an_id_that_cannot_be_stored_is_told_from_others_by_its_digest(self, text: str) -> None:
        """WH-040, WH-042."""
        body = f'{{"id":"{text}"}}'.encode()
        first = accepted(judge("stripe", stripe(body), body)).dedupe_id
        spaced = f'{{ "id":"{text}"}}'.encode()
        assert first == accepted(judge("stripe", stripe(spaced), spaced)).dedupe_id
        other = f'{{"id":"{text}!"}}'.encode()
        assert first != accepted(judge("stripe", stripe(other), other)).dedupe_id
        assert first is not None
        assert first.startswith("sha256:")
        assert len(first) == 71

    @given(st.lists(st.text(max_size=200), max_size=3))
    @example(["a/b", "..", "é"])
    @example(["a" * 127 + ".b"])
    def test_any_texts_make_an_event_type(self, parts: list[str]) -> None:
        assert is_event_type(safe_event_type(*parts))

    @given(st.from_regex(r"[a-z_]{1,20}(\.[a-z_]{1,20}){0,3}", fullmatch=True))
    def test_what_is_an_event_type_already_stays_as_it_is(self, text: str) -> None:
        assert safe_event_type(text) == text


MINIMAL: dict[str, object] = {"signature_header": "X-Signature", "encoding": "hex"}
TIMED: dict[str, object] = {
    **MINIMAL,
    "signed": "{timestamp}.{body}",
    "timestamp_header": "X-Timestamp",
}


class TestGeneric:
    def test_the_least_configuration_signs_the_body_in_hexadecimal(self) -> None:
        scheme = generic(**MINIMAL)
        headers = {"x-signature": [mac(BODY).hex().encode()]}
        assert accepted(verify(scheme, [KEY], headers, BODY, NOW)) == Verified(
            None, FALLBACK_TYPE, None
        )

    def test_a_setting_that_is_none_is_left_out(self) -> None:
        assert generic(**MINIMAL, prefix=None, id_header=None, tolerance_seconds=None) == generic(
            **MINIMAL
        )

    @pytest.mark.parametrize("encoding", ["hex", "base64"])
    @pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
    def test_every_setting_has_its_part(self, encoding: str, algorithm: str) -> None:
        scheme = generic(
            signature_header="Authorization",
            encoding=encoding,
            prefix="HMAC ",
            separator=";",
            signed="v2:{id}|{timestamp}|{body}|end",
            algorithm=algorithm,
            timestamp_header="X-Timestamp",
            tolerance_seconds=10,
            id_header="X-Id",
            type_pointer="/data/0/a~1b~0c",
        )
        body = b'{"data":[{"a/b~c":"thing happened"}]}'
        digest = mac(b"v2:one|%d|%b|end" % (NOW, body), algorithm=algorithm)
        text = digest.hex().encode() if encoding == "hex" else base64.b64encode(digest)
        headers = {
            "authorization": [b"Bearer x; HMAC " + text],
            "x-timestamp": [b"%d" % NOW],
            "x-id": [b"one"],
        }
        assert accepted(verify(scheme, [KEY], headers, body, NOW + 10)) == Verified(
            "one", "thing.happened", NOW
        )
        assert refused(verify(scheme, [KEY], headers, body, NOW + 11)) == Reason.STALE_TIMESTAMP
        assert kept_headers(scheme) == ("x-id", "x-timestamp")

    def test_a_scheme_like_stripes_can_be_described(self) -> None:
        described = generic(
            signature_header="Stripe-Signature",
            encoding="hex",
            prefix="v1=",
            separator=",",
            signed="{timestamp}.{body}",
            timestamp_prefix="t=",
            id_pointer="/id",
            type_pointer="/type",
        )
        headers = stripe(BODY)
        assert accepted(verify(described, [KEY], headers, BODY, NOW)) == accepted(
            judge("stripe", headers)
        )

    def test_a_digit_cannot_move_between_a_timestamp_and_the_body_beside_it(self) -> None:
        scheme = generic(**{**TIMED, "signed": "{timestamp}{body}"})
        signature = [mac(b"%d7" % NOW).hex().encode()]
        headers = {"x-signature": signature, "x-timestamp": [b"%d" % NOW]}
        accepted(verify(scheme, [KEY], headers, b"7", NOW))
        moved = {"x-signature": signature, "x-timestamp": [b"%d7" % NOW]}
        assert refused(verify(scheme, [KEY], moved, b"", NOW)) == Reason.MALFORMED
        back = {"x-signature": signature, "x-timestamp": [b"%d" % (NOW // 10)]}
        assert refused(verify(scheme, [KEY], back, b"07", NOW)) == Reason.MALFORMED

    def test_placeholders_in_what_the_sender_writes_are_not_filled_in(self) -> None:
        scheme = generic(**MINIMAL, signed="{id}.{body}", id_header="X-Id")
        headers = {
            "x-signature": [mac(b"{body}.{id}").hex().encode()],
            "x-id": [b"{body}"],
        }
        assert accepted(verify(scheme, [KEY], headers, b"{id}", NOW)).dedupe_id == "{body}"

    def test_a_retry_with_other_transport_headers_keeps_its_id(self) -> None:
        """WH-110."""
        scheme = generic(**TIMED, id_pointer="/id")
        ids = []
        for at, trace in ((NOW, b"a"), (NOW + 1, b"b")):
            headers = {
                "x-timestamp": [b"%d" % at],
                "x-signature": [mac(b"%d.%b" % (at, BODY)).hex().encode()],
                "x-request-id": [trace],
            }
            ids.append(accepted(verify(scheme, [KEY], headers, BODY, at)).dedupe_id)
        assert ids == ["evt_1", "evt_1"]

    @pytest.mark.parametrize(
        ("change", "field", "rule"),
        [
            ({"signature_header": None}, "signature_header", "is required"),
            ({"signature_header": "X Signature"}, "signature_header", "name of a header"),
            ({"signature_header": ""}, "signature_header", "name of a header"),
            ({"signature_header": 7}, "signature_header", "must be a text"),
            ({"encoding": None}, "encoding", "'hex' or 'base64'"),
            ({"encoding": "HEX"}, "encoding", "'hex' or 'base64'"),
            ({"algorithm": "sha1"}, "algorithm", "'sha256' or 'sha512'"),
            ({"secret": "hex"}, "secret", "'text' or 'base64'"),
            ({"colour": "red"}, "colour", "is not known"),
            ({"prefix": "é"}, "prefix", "printable ASCII"),
            ({"prefix": " v1"}, "prefix", "no space before"),
            ({"prefix": "x" * 51}, "prefix", "at most 50"),
            ({"prefix": "v1,", "separator": ","}, "prefix", "must not hold the separator"),
            ({"separator": "::"}, "separator", "must be ' ' or ',' or ';'"),
            ({"signed": ""}, "signed", "{body} once"),
            ({"signed": "{timestamp}"}, "signed", "{body} once"),
            ({"signed": "{body}{body}"}, "signed", "{body} once"),
            ({"signed": "{body}.{url}"}, "signed", "{body} once"),
            ({"signed": "{{body}}"}, "signed", "{body} once"),
            ({"signed": "{body}\n"}, "signed", "printable ASCII"),
            ({"signed": "{body}" + "x" * 200}, "signed", "at most 200"),
            ({"signed": "{id}.{body}"}, "id_header", "is required"),
            ({"signed": "{id}.{body}", "id_pointer": "/id"}, "id_header", "is required"),
            ({"signed": "{id}{body}", "id_header": "X-Id"}, "signed", "a separator"),
            ({"signed": "{body}{id}", "id_header": "X-Id"}, "signed", "a separator"),
            ({"id_header": "x-signature"}, "id_header", "the one with the signature"),
            ({"id_header": "Cookie"}, "id_header", "credentials"),
            ({"type_header": "Authorization"}, "type_header", "credentials"),
            ({"id_header": "X-Id", "id_pointer": "/id"}, "id_pointer", "left out"),
            ({"id_pointer": "id"}, "id_pointer", "JSON Pointer"),
            ({"id_pointer": ""}, "id_pointer", "JSON Pointer"),
            ({"id_pointer": "/a~2"}, "id_pointer", "JSON Pointer"),
            ({"id_pointer": "/\0"}, "id_pointer", "JSON Pointer"),
            ({"type_pointer": "/" + "a" * 200}, "type_pointer", "at most 200"),
            ({"timestamp_header": "X-T"}, "timestamp_header", "anyone can change"),
            ({"tolerance_seconds": 300}, "tolerance_seconds", "anyone can change"),
            ({"signed": "{timestamp}.{body}"}, "timestamp_header", "is required"),
        ],
    )
    def test_a_setting_that_breaks_a_rule_is_named_with_the_rule(
        self, change: dict[str, object], field: str, rule: str
    ) -> None:
        with pytest.raises(InvalidScheme) as caught:
            generic(**{**MINIMAL, **change})
        assert caught.value.field == field
        assert rule in caught.value.rule

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"timestamp_prefix": "t="}, "timestamp_header"),
            ({"timestamp_header": None, "timestamp_prefix": "t="}, "timestamp_prefix"),
            (
                {"timestamp_header": None, "timestamp_prefix": "t=", "separator": ","},
                "timestamp_prefix",
            ),
            (
                {
                    "timestamp_header": None,
                    "timestamp_prefix": "t=",
                    "separator": ",",
                    "prefix": "t=x",
                },
                "timestamp_prefix",
            ),
            ({"timestamp_header": "X-Signature"}, "timestamp_header"),
            ({"id_header": "x-timestamp"}, "timestamp_header"),
        ],
    )
    def test_a_timestamp_is_in_one_place_of_its_own(
        self, change: dict[str, object], field: str
    ) -> None:
        with pytest.raises(InvalidScheme) as caught:
            generic(**{**TIMED, **change})
        assert caught.value.field == field


HOSTILE = st.one_of(
    st.binary(max_size=100),
    st.sampled_from([good(), b"t=1760000000,v1=", b"sha256=", b"v0=", b"v1,", b"%d" % NOW, b"{}"]),
    st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")),
)
NAMES = sorted(
    {"content-type"}
    | {scheme.signature_header for scheme in PROVIDERS.values()}
    | {name for scheme in PROVIDERS.values() for name in kept_headers(scheme)}
)


@given(
    scheme=st.sampled_from([*PROVIDERS.values(), generic(**TIMED)]),
    headers=st.dictionaries(st.sampled_from(NAMES), st.lists(HOSTILE, max_size=2)),
    body=HOSTILE,
    keys=st.lists(st.binary(max_size=4), max_size=2),
)
def test_no_bytes_make_verification_raise(
    scheme: Scheme, headers: Headers, body: bytes, keys: list[bytes]
) -> None:
    """WH-013."""
    assert isinstance(verify(scheme, keys, headers, body, NOW), Refused)


@given(
    body=HOSTILE
    | st.recursive(st.none() | st.text() | st.floats(), st.lists).map(json.dumps).map(str.encode),
    others=st.dictionaries(
        st.sampled_from(
            [name for name in NAMES if "signature" not in name and "timestamp" not in name]
        ),
        st.lists(HOSTILE, max_size=2),
    ),
    provider=st.sampled_from(["github", "slack", "stripe"]),
)
def test_whatever_a_signed_request_holds_it_is_accepted_with_a_type_and_an_id_that_can_be_stored(
    body: bytes, others: Headers, provider: str
) -> None:
    sign: dict[str, Callable[[bytes], Headers]] = {
        "github": github,
        "slack": slack,
        "stripe": stripe,
    }
    judged = accepted(judge(provider, {**sign[provider](body), **others}, body))
    assert is_event_type(judged.event_type)
    assert judged.dedupe_id is None or (
        1 <= len(judged.dedupe_id) <= 255
        and judged.dedupe_id.isascii()
        and judged.dedupe_id.isprintable()
    )


def test_a_key_that_is_longer_than_a_block_is_hashed_as_hmac_says() -> None:
    key = b"0123456789abcdef" * 9
    headers = {
        "x-hub-signature-256": [
            b"sha256=" + hmac.new(key, BODY, hashlib.sha256).hexdigest().encode()
        ]
    }
    accepted(verify(PROVIDERS["github"], [key], headers, BODY, NOW))
