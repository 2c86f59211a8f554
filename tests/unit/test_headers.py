import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.headers import RESERVED, is_name, is_reserved, is_value
from shared.sender import request


@pytest.mark.parametrize("name", ["X", "X-Api-Key", "x_y", "!#$%&'*+.^_`|~-09azAZ", "a" * 100])
def test_a_header_name_is_a_token(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        " x",
        "x ",
        "x y",
        "x:",
        "x\n",
        "x\r\ny",
        "x\0",
        "é",
        "\u212a",
        "(x)",
        "x/y",
        "a" * 101,
    ],
)
def test_a_name_that_is_no_token_cannot_travel(name: str) -> None:
    """WH-082."""
    assert not is_name(name)


@pytest.mark.parametrize("value", ["v", "Bearer abc", "a\tb", "!", "~", "a  b", "v" * 4096])
def test_a_header_value_is_printable_ascii(value: str) -> None:
    assert is_value(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        " v",
        "v ",
        "\tv",
        "v\t",
        "v\r\nX-Evil: 1",
        "v\nX-Evil: 1",
        "v\n",
        "v\0w",
        "v\x1fw",
        "v\x7fw",
        "café",
        "a\u2014b",
        "v" * 4097,
        "v" * 100_000,
    ],
)
def test_a_value_that_could_be_read_in_two_ways_cannot_travel(value: str) -> None:
    """WH-082."""
    assert not is_value(value)


@given(st.text(st.characters(max_codepoint=0x100), max_size=50))
def test_names_and_values_that_can_travel_are_those_that_the_sender_accepts(text: str) -> None:
    encoded = text.encode()
    assert is_name(text) == (request._TOKEN.fullmatch(encoded) is not None)
    assert is_value(text) == (bool(encoded) and request._VALUE.fullmatch(encoded) is not None)


@pytest.mark.parametrize(
    "name",
    [
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "idempotency-key",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    ],
)
def test_what_the_sender_sets_is_reserved_in_any_dress(name: str) -> None:
    """WH-081."""
    for dressed in (name, name.upper(), name.title(), f" {name}", f"{name}\t", f"\r\n{name} "):
        assert is_reserved(dressed)


def test_every_header_that_frames_a_message_is_reserved() -> None:
    assert {name.decode() for name in request._OWN} <= RESERVED


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "webhook", "x-host", "cookie", ""])
def test_other_names_are_an_endpoints_to_choose(name: str) -> None:
    assert not is_reserved(name)
