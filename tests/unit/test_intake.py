import json
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import Invalid, TooLarge
from shared.intake import MAX_BATCH, MAX_REQUEST_BYTES, read_batch, read_event
from shared.store.publishing import NewEvent

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOT_JSON = "must be one JSON document (RFC 8259): "


def read(body: bytes, max_payload_bytes: int = 1_000_000) -> NewEvent:
    return read_event(body, max_payload_bytes, NOW)


def read_payload(text: bytes) -> bytes:
    return read(b'{"type":"a","payload":' + text + b"}").payload


def request_with(**members: Any) -> bytes:
    return json.dumps({"type": "order.paid", "payload": {}} | members).encode()


def batch_of(*events: bytes) -> bytes:
    return b'{"events":[' + b",".join(events) + b"]}"


def refusal(parse: Callable[[], object]) -> tuple[str, str]:
    """The field and the rule of a refused request."""
    with pytest.raises(Invalid) as refused:
        parse()
    assert str(refused.value) == f"{refused.value.field}: {refused.value.rule}"
    return refused.value.field, refused.value.rule


def test_an_event_says_what_the_request_says() -> None:
    event = read(
        b'{"type":"order.paid","payload":{"a": 1},"consumer":"c:1","idempotency_key":"k/1",'
        b'"deliver_at":"2026-06-02T09:30:00+02:00","priority":-7}'
    )
    assert event == NewEvent(
        type="order.paid",
        payload=b'{"a": 1}',
        content_type="application/json",
        consumer="c:1",
        idempotency_key="k/1",
        deliver_at=datetime(2026, 6, 2, 7, 30, tzinfo=UTC),
        priority=-7,
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"type":"a","payload":1}',
        b'{"payload":1,"type":"a"}',
        b'{"type":"a","payload":1,"consumer":null,"idempotency_key":null,"deliver_at":null}',
        b' \r\n\t{ "type" : "a" , "payload" :  1  } \n',
    ],
)
def test_what_is_left_out_or_null_is_absent(body: bytes) -> None:
    assert read(body) == NewEvent(type="a", payload=b"1", content_type="application/json")


@pytest.mark.parametrize(
    "text",
    [
        b'{"zz":  1,  "a":  2}',
        b'{"a":1,"a":2}',
        b'{"n":1.10}',
        b"1E400",
        b"-0",
        b"12345678901234567890123",
        rb'"\u00e9\/"',
        "é✅🚀".join('""').encode(),
        rb'{"a":"x\u0000y"}',
        rb'{"x\u0000y":1}',
        rb'{"a":"x\\u0000y"}',
        rb'"\ud83d\ude80"',
        b'"\x7f"',
        b"1e999",
        b"1e200000",
        b"9" * 5000,
        b"[" * 197 + b"]" * 197,
        b'{"a":' * 197 + b"1" + b"}" * 197,
        b'["' + b"[" * 1000 + b'"]',
        rb'["\"' + b"{" * 1000 + rb'\\",[[]]]',
        b"[" + b",".join([b"[{}]"] * 1000) + b"]",
        b"{" + b",".join(b'"%d":0' % number for number in range(20_000)) + b"}",
        b"null",
        b"true",
        b'""',
    ],
    ids=lambda text: text[:24].decode(),
)
def test_a_payload_is_kept_to_the_byte(text: bytes) -> None:
    """WH-001, WH-040, WH-044."""
    assert read_payload(text) == text
    [event] = read_batch(batch_of(b'{"type":"a","payload": ' + text + b" }"), 1_000_000, NOW)
    assert event.payload == text


def test_of_a_repeated_member_of_the_request_itself_the_last_one_counts() -> None:
    event = read(b'{"type":"a","payload":1,"payload":2,"type":"b"}')
    assert (event.type, event.payload) == ("b", b"2")


white_space = st.text(" \t\r\n", max_size=3)
scalars = (
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
    | st.sampled_from(["true", "false", "null", r'"\/\b\u0000"', r'"\ud83d\ude80\\"'])
    | st.builds(json.dumps, st.text(st.characters(codec="utf-8")), ensure_ascii=st.booleans())
)


def _spaced(opening: str, closing: str) -> Callable[[list[str], str], str]:
    return lambda parts, space: opening + space + f"{space},{space}".join(parts) + space + closing


json_texts = st.recursive(
    scalars,
    lambda inner: (
        st.builds(_spaced("[", "]"), st.lists(inner, max_size=4), white_space)
        | st.builds(
            _spaced("{", "}"),
            st.lists(
                st.tuples(st.sampled_from(['"a"', '"b"']), white_space, inner), max_size=4
            ).map(
                lambda members: [f"{key}{space}:{space}{value}" for key, space, value in members]
            ),
            white_space,
        )
    ),
    max_leaves=20,
)


@given(json_texts, white_space)
def test_any_json_text_is_kept_to_the_byte_without_the_white_space_around_it(
    text: str, space: str
) -> None:
    """WH-001."""
    assert read_payload(f"{space}{text}{space}".encode()) == text.encode()


@pytest.mark.parametrize(
    "text",
    [
        b"NaN",
        b"[-Infinity]",
        b"[1, [Infinity]]",
        b"nan",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"-",
        b"1e",
        b"0x1",
        b"",
        b"[1,]",
        b'{"a":1,}',
        b"{'a':1}",
        b"{a:1}",
        b"[1 2]",
        b"/**/1",
        b"tru",
        b'"\x01"',
        b'"\t"',
        rb'"\x"',
        rb'"\u12"',
        rb'{"a":"\ud83d"}',
        rb'{"\ud83d":1}',
        rb'"\ude80"',
        rb'"\ud83d\ud83d"',
        b"\xef\xbb\xbf1",
        b"1} x",
        b"1}}",
    ],
)
def test_a_payload_that_is_no_json_is_refused(text: bytes) -> None:
    """WH-042, WH-043."""
    field, rule = refusal(lambda: read_payload(text))
    assert field == "body"
    assert rule.startswith(NOT_JSON)


@pytest.mark.parametrize("body", [b"", b" ", b"{", b'{"type":"a"', b"\xef\xbb\xbf{}", b"\x00"])
def test_a_body_that_is_no_json_is_refused(body: bytes) -> None:
    """WH-024."""
    field, rule = refusal(lambda: read(body))
    assert field == "body"
    assert rule.startswith(NOT_JSON)


@pytest.mark.parametrize("text", [b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xe9"'])
def test_bytes_that_are_no_utf_8_are_refused_with_their_place(text: bytes) -> None:
    field, rule = refusal(lambda: read_payload(text))
    assert (field, rule) == ("body", "must be JSON in UTF-8; byte 23 is not UTF-8")


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 200 + b"]" * 200,
        b'{"a":' * 200 + b"1" + b"}" * 200,
        b"[" * 6000 + b"]" * 6000,
        b"[" * 20_000 + b"]" * 20_000,
        b"[" * 20_000,
        b'["\\\\",' + b"[" * 199 + b"]" * 199 + b"]",
        b"[" + b"[]," * 300 + b"[" * 200,
    ],
    ids=[
        "201 arrays",
        "201 objects",
        "6,000",
        "20,000",
        "unclosed",
        "after an escape",
        "after others",
    ],
)
def test_nesting_deeper_than_200_levels_is_refused(text: bytes) -> None:
    """WH-044."""
    expected = ("body", "must not nest deeper than 200 levels")
    assert refusal(lambda: read_payload(text)) == expected


def test_the_request_around_the_payload_counts_as_nesting_too() -> None:
    """WH-044."""
    assert read_payload(b"[" * 199 + b"]" * 199)
    assert read_payload(b"[[]," + b"[" * 198 + b"]" * 198 + b"]")
    in_a_batch = request_with(payload=0).replace(b"0", b"[" * 198 + b"]" * 198)
    expected = ("body", "must not nest deeper than 200 levels")
    assert refusal(lambda: read_batch(batch_of(in_a_batch), 1000, NOW)) == expected


def test_the_look_at_the_nesting_costs_little_more_memory_than_the_request() -> None:
    """WH-044: a Lambda function has a fixed amount of it."""
    text = b"[" + b"{}," * 300 + b'"' + b"x" * 1_000_000 + b'"]'
    tracemalloc.start()
    try:
        event = read(b'{"type":"a","payload":' + text + b"}", 2_000_000)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert event.payload == text
    assert peak_bytes < 6 * len(text)


def test_the_look_at_the_nesting_takes_one_pass_over_a_string_that_never_ends() -> None:
    """WH-044: with a pass for each of its quotes this would take minutes."""
    text = b"[" + b"{}," * 300 + b'"' + rb"\"" * 200_000
    before_seconds = time.process_time()
    assert refusal(lambda: read_payload(text))[1].startswith(NOT_JSON)
    assert time.process_time() - before_seconds < 2


@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        (b"[]", "body", "expected `object`, got `array`"),
        (b"null", "body", "expected `object`, got `null`"),
        (b'"x"', "body", "expected `object`, got `str`"),
        (b"{}", "type", "is required"),
        (b'{"type":"a"}', "payload", "is required"),
        (b'{"payload":1}', "type", "is required"),
        (b'{"type":1,"payload":1}', "type", "expected `str`, got `int`"),
        (b'{"type":null,"payload":1}', "type", "expected `str`, got `null`"),
        (request_with(consumer=1), "consumer", "expected `str | null`, got `int`"),
        (request_with(idempotency_key=[]), "idempotency_key", "expected `str | null`, got `array`"),
        (request_with(deliver_at=1767225600), "deliver_at", "expected `str | null`, got `int`"),
        (request_with(priority="1"), "priority", "expected `int`, got `str`"),
        (request_with(priority=1.5), "priority", "expected `int`, got `float`"),
        (request_with(priority=True), "priority", "expected `int`, got `bool`"),
        (request_with(priority=None), "priority", "expected `int`, got `null`"),
    ],
)
def test_a_missing_or_wrongly_typed_member_is_named_with_the_rule(
    body: bytes, field: str, rule: str
) -> None:
    assert refusal(lambda: read(body)) == (field, rule)


KNOWN = "type, payload, consumer, idempotency_key, deliver_at, priority, channels"


def test_an_unknown_member_is_refused_with_the_known_ones() -> None:
    expected = f"has an unknown member; known are {KNOWN} (and events, of a batch)"
    assert refusal(lambda: read(request_with(Type="a"))) == ("body", expected)
    beside = b'{"events":[],"consumer":"a"}'
    assert refusal(lambda: read_batch(beside, 100, NOW)) == ("body", expected)
    wrong = batch_of(request_with(), request_with(consumers="a"))
    assert refusal(lambda: read_batch(wrong, 100, NOW)) == ("events[1]", expected)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("type", ""),
        ("type", "order paid"),
        ("type", "order..paid"),
        ("type", "order.*"),
        ("type", "a\0"),
        ("type", "é"),
        ("type", "a" * 129),
        ("consumer", ""),
        ("consumer", "a b"),
        ("consumer", "a/b"),
        ("consumer", "é"),
        ("consumer", "a\0"),
        ("consumer", "a\n"),
        ("consumer", "c" * 129),
        ("idempotency_key", ""),
        ("idempotency_key", "a b"),
        ("idempotency_key", "a\0"),
        ("idempotency_key", "a\n"),
        ("idempotency_key", "\x7f"),
        ("idempotency_key", "é"),
        ("idempotency_key", "k" * 256),
        ("priority", -101),
        ("priority", 101),
        ("priority", 10**400),
    ],
)
def test_a_member_that_breaks_a_rule_is_named(member: str, value: object) -> None:
    """WH-017, WH-041."""
    field, rule = refusal(lambda: read(request_with(**{member: value})))
    assert field == member
    assert rule.startswith("must be ")


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("type", "a" * 128),
        ("consumer", "AZaz09_.:-"),
        ("consumer", "c" * 128),
        ("idempotency_key", "!~"),
        ("idempotency_key", "k" * 255),
        ("priority", -100),
        ("priority", 100),
    ],
)
def test_a_member_may_go_up_to_its_bounds(member: str, value: object) -> None:
    assert getattr(read(request_with(**{member: value})), member) == value


def test_half_a_surrogate_pair_in_a_member_is_no_json() -> None:
    """WH-042."""
    field, rule = refusal(lambda: read(rb'{"type":"\ud83d","payload":1}'))
    assert field == "body"
    assert rule.startswith(NOT_JSON)


@pytest.mark.parametrize(
    ("text", "deliver_at"),
    [
        ("2026-06-01T12:00:00Z", NOW),
        ("2026-06-01t12:00:00z", NOW),
        ("2026-06-01 12:00:00Z", NOW),
        ("2026-06-01T14:00:00+02:00", NOW),
        ("2026-06-01T02:30:00-09:30", NOW),
        ("2026-06-01T12:00:00-00:00", NOW),
        ("2026-06-01T12:00:00.5Z", NOW + timedelta(milliseconds=500)),
        ("2026-06-01T12:00:00.000001Z", NOW + timedelta(microseconds=1)),
        ("2000-01-01T00:00:00Z", datetime(2000, 1, 1, tzinfo=UTC)),
        ("2027-06-01T12:00:00Z", NOW + timedelta(days=365)),
    ],
)
def test_deliver_at_is_an_instant_with_an_offset(text: str, deliver_at: datetime) -> None:
    event = read(request_with(deliver_at=text))
    assert event.deliver_at == deliver_at
    assert event.deliver_at.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "1767225600",
        "2026-06-01",
        "2026-06-01T12:00Z",
        "2026-06-01T12:00:00",
        "2026-06-01T12:00:00 Z",
        "2026-06-01T12:00:00+0200",
        "2026-06-01T12:00:00+24:00",
        "2026-06-01T12:00:00.Z",
        "2026-06-01T12:00:00.1234567890Z",
        "2026-06-01T12:00:60Z",
        "2026-06-01T25:00:00Z",
        "2026-02-30T12:00:00Z",
        "2026-13-01T12:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "20260601T120000Z",
        "2026-W23-1T12:00:00Z",
        "\u0662026-06-01T12:00:00Z",
        "2026-06-01T12:00:00Z\n",
        "2027-06-01T12:00:00.000001Z",
    ],
)
def test_another_deliver_at_is_refused_with_the_form(text: str) -> None:
    field, rule = refusal(lambda: read(request_with(deliver_at=text)))
    assert field == "deliver_at"
    assert rule.startswith("must be an RFC 3339 instant with an offset, at most 365 days ahead")


def test_a_payload_may_have_just_as_many_bytes_as_allowed() -> None:
    """WH-030."""
    body = '{"type":"a","payload":  "éé"  }'.encode()
    assert read(body, max_payload_bytes=6).payload == '"éé"'.encode()
    with pytest.raises(TooLarge, match="a payload may have 5 bytes; this one has 6"):
        read(body, max_payload_bytes=5)
    with pytest.raises(TooLarge):
        read_batch(batch_of(body), 5, NOW)


def test_a_request_may_have_just_as_many_bytes_as_allowed() -> None:
    """WH-030."""
    body = b'{"type":"a","payload":1}'.ljust(MAX_REQUEST_BYTES)
    assert read(body).payload == b"1"
    with pytest.raises(TooLarge, match="a request may have 4000000 bytes"):
        read(body + b" ")
    with pytest.raises(TooLarge, match="a request may have 4000000 bytes"):
        read_batch(body + b" ", 100, NOW)


def test_a_batch_keeps_the_order_of_its_events() -> None:
    types = ["c", "a", "b", "a"]
    events = read_batch(batch_of(*[request_with(type=each) for each in types]), 100, NOW)
    assert [event.type for event in events] == types


def test_a_batch_holds_one_to_a_thousand_events() -> None:
    event = b'{"type":"a","payload":1}'
    assert MAX_BATCH == 1000
    assert len(read_batch(batch_of(*[event] * 1000), 100, NOW)) == 1000
    for body in (batch_of(*[event] * 1001), batch_of()):
        field, rule = refusal(lambda body=body: read_batch(body, 100, NOW))  # type: ignore[misc]
        assert (field, rule) == ("events", "must hold 1 to 1000 events")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"[]", "body"),
        (b"{}", "events"),
        (b'{"events":{}}', "events"),
        (batch_of(request_with(), b"3"), "events[1]"),
        (batch_of(request_with(), b"{}"), "events[1].type"),
        (batch_of(request_with(), b'{"type":"a"}'), "events[1].payload"),
        (batch_of(request_with(), request_with(priority="x")), "events[1].priority"),
        (batch_of(request_with(), request_with(priority=101)), "events[1].priority"),
        (batch_of(request_with(type=""), request_with(type="")), "events[0].type"),
        (batch_of(*[request_with()] * 10, request_with(consumer="")), "events[10].consumer"),
    ],
)
def test_a_fault_in_a_batch_names_the_event(body: bytes, field: str) -> None:
    assert refusal(lambda: read_batch(body, 100, NOW))[0] == field


def test_a_key_may_not_come_twice_in_a_batch() -> None:
    bodies = [request_with(idempotency_key=key) for key in ("a", None, "b", None, "a", "b")]
    expected = ("events[4].idempotency_key", "is the same as that of events[0]")
    assert refusal(lambda: read_batch(batch_of(*bodies), 100, NOW)) == expected
    assert len(read_batch(batch_of(*bodies[:4]), 100, NOW)) == 4


CANARY = "canary"


@pytest.mark.parametrize(
    "body",
    [
        request_with(type=f"{CANARY} "),
        request_with(type=CANARY * 30),
        request_with(consumer=f"{CANARY} "),
        request_with(idempotency_key=f"{CANARY} "),
        request_with(deliver_at=CANARY),
        request_with(priority=CANARY),
        request_with(**{CANARY: 1}),
        request_with(**{f"` - at `$.{CANARY}`": 1}),
        request_with(**{f"` - at `$.events[0].{CANARY}": 1}),
        request_with(**{f"` - at `$.events[0].type`{CANARY}": 1}),
        request_with(**{f"{CANARY}`\n": 1}),
        b'{"type":"a","payload":canary}',
        b'{"type":"a","payload":"canary\x01"}',
        b'{"type":"a","payload":"canary\xff"}',
        b'{"canary":1}',
        b'"canary"',
    ],
)
def test_a_refusal_never_repeats_what_was_sent(body: bytes) -> None:
    """WH-122."""
    assert CANARY not in str(refusal(lambda: read(body)))
    assert CANARY not in str(refusal(lambda: read_batch(batch_of(body), 1000, NOW)))


@given(st.binary(max_size=60) | json_texts.map(str.encode))
def test_any_body_is_an_event_or_a_refusal(body: bytes) -> None:
    for parse in (read, lambda body: read_batch(body, 100, NOW), read_payload):
        try:
            parse(body)
        except (Invalid, TooLarge):
            continue
