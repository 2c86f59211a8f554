"""What goes on the wire, and what is refused before anything does."""

import pytest

from shared.domain.outcome import Answered, ErrorKind, Unanswered
from shared.domain.targets import parse_target
from shared.sender.request import encode_request
from shared.sender.transport import Transport
from tests.sender.servers import GOOD, LOOPBACK, answering, serving

pytestmark = pytest.mark.anyio

SECRET = b"sk_live_do_not_show"


async def test_the_request_arrives_byte_for_byte() -> None:
    body = '{"naïve": "☃"}\u0000'.encode()
    headers = [(b"Webhook-Id", b"evt_1"), (b"content-type", b"application/json; charset=utf-8")]
    transport = Transport(LOOPBACK)
    async with serving(answering(GOOD)) as receiver:
        target = receiver.target(path="/a%20b?x=1&y=%C3%BC")
        assert await transport.post(target, headers, body, timeout_seconds=5) == Answered(
            200, b"good"
        )
    await transport.aclose()
    (request,) = receiver.requests
    assert request.head == (
        b"POST /a%%20b?x=1&y=%%C3%%BC HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nWebhook-Id: evt_1\r\n"
        b"content-type: application/json; charset=utf-8\r\nContent-Length: %d\r\n\r\n"
    ) % (receiver.port, len(body))
    assert request.body == body


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://bücher.example/", b"Host: xn--bcher-kva.example\r\n"),
        ("http://EXAMPLE.com:80", b"Host: example.com\r\n"),
        ("http://[2001:db8::1]:8080/", b"Host: [2001:db8::1]:8080\r\n"),
    ],
)
def test_the_host_header_is_the_targets_authority(url: str, host: bytes) -> None:
    request = encode_request("POST", parse_target(url), [], b"")
    assert isinstance(request, bytes)
    assert host in request


def test_an_empty_body_still_has_a_length() -> None:
    request = encode_request("POST", parse_target("http://example.com/"), [], b"")
    assert isinstance(request, bytes)
    assert request.endswith(b"\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"X-Key", SECRET + b"\r\nX-Injected: 1"),
        (b"X-Key", SECRET + b"\n"),
        (b"X-Key", SECRET + b"\r"),
        (b"X-Key", SECRET + b"\x00"),
        (b"X-Key", SECRET + b"\x7f"),
        (b"X-Key", SECRET + "café".encode()),
        (b"X-Key", SECRET + "café".encode("latin-1")),
        (b"X-Key", SECRET + "—".encode()),
        (b"X-Key", b" " + SECRET),
        (b"X-Key", SECRET + b"\t"),
        (b"X-Key", SECRET * 6_000),
        (b"X Key", SECRET),
        (b"X-Key:", SECRET),
        (b"X-Key: a\r\nX-Injected", SECRET),
        ("X-Clé".encode(), SECRET),
        (b"", SECRET),
        (b"x" * 300, SECRET),
        (b"Host", SECRET),
        (b"CONTENT-LENGTH", SECRET),
        (b"Transfer-Encoding", SECRET),
        (b"Connection", SECRET),
        (b"Expect", SECRET),
        (b"TE", SECRET),
        (b"webhook-ID", SECRET),
    ],
)
async def test_a_header_that_cannot_travel_is_named_and_never_shown(
    name: bytes, value: bytes
) -> None:
    """WH-080, WH-081, WH-082."""
    transport = Transport(LOOPBACK)
    async with serving(answering(GOOD)) as receiver:
        headers = [(b"Webhook-Id", b"evt_1"), (name, value)]
        outcome = await transport.post(receiver.target(), headers, b"{}", timeout_seconds=5)
        assert receiver.connections == 0
    await transport.aclose()
    assert isinstance(outcome, Unanswered)
    assert outcome.kind is ErrorKind.UNSENDABLE
    assert ascii(name[:64].decode("latin-1")) in outcome.detail
    assert SECRET.decode() not in outcome.detail


@pytest.mark.parametrize("value", [b"", b"x", b"a b\tc", b"~!"])
def test_an_ordinary_header_value_travels(value: bytes) -> None:
    request = encode_request("POST", parse_target("http://example.com/"), [(b"X-Key", value)], b"")
    assert isinstance(request, bytes)
    assert b"\r\nX-Key: " + value + b"\r\n" in request


def test_headers_that_are_too_long_together_are_unsendable() -> None:
    headers = [(b"X-%d" % number, b"x" * 8_000) for number in range(5)]
    outcome = encode_request("POST", parse_target("http://example.com/"), headers, b"")
    assert isinstance(outcome, Unanswered)
    assert outcome.kind is ErrorKind.UNSENDABLE
