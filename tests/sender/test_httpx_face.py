"""The transport behind an `httpx.AsyncClient`."""

import gzip
import subprocess
import sys
from collections.abc import Sequence

import httpx
import pytest

from shared.domain.targets import TargetPolicy
from shared.sender.httpx_face import HttpxTransport
from shared.sender.transport import Transport
from tests.sender.servers import GOOD, LOOPBACK, Session, answering, answering_then_closing, serving

pytestmark = pytest.mark.anyio


def _client(policy: TargetPolicy = LOOPBACK, timeout: float | None = 5) -> httpx.AsyncClient:
    face = HttpxTransport(Transport(policy), timeout_seconds=0.2, body_cap_bytes=1000)
    return httpx.AsyncClient(transport=face, timeout=timeout)


async def test_a_client_sends_and_receives_through_it() -> None:
    packed = gzip.compress(b"unpacked by httpx")
    answer = (
        b"HTTP/1.1 201 Created\r\nX-Two: a\r\nX-Two: b\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: %d\r\n\r\n" % len(packed)
    ) + packed
    async with serving(answering(answer)) as receiver, _client() as client:
        response = await client.put(receiver.target().url, json={"a": 1}, headers={"X-Key": "v"})
    assert response.status_code == 201
    assert response.text == "unpacked by httpx"
    assert response.headers.get_list("x-two") == ["a", "b"]
    (request,) = receiver.requests
    assert request.head.startswith(b"PUT /hook HTTP/1.1\r\n")
    assert request.body == b'{"a":1}'
    assert request.values(b"x-key") == [b"v"]
    assert len(request.values(b"host")) == len(request.values(b"content-length")) == 1


async def test_a_response_to_head_has_a_length_and_no_body() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"
    async with serving(answering(answer)) as receiver, _client() as client:
        response = await client.head(receiver.target().url)
    assert response.headers["content-length"] == "1234"
    assert response.content == b""


async def _silent(session: Session) -> None:
    await session.until_closed()


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (_silent, httpx.ReadTimeout),
        (answering_then_closing(b""), httpx.ReadError),
        (answering(b"garbage"), httpx.RemoteProtocolError),
        (
            answering(b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + bytes(1001)),
            httpx.ReadError,
        ),
        (answering_then_closing(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), httpx.ReadError),
    ],
)
async def test_what_goes_wrong_is_raised_as_httpx_would(
    handler: Sequence[object], expected: type[httpx.RequestError]
) -> None:
    async with serving(handler) as receiver, _client(timeout=None) as client:  # type: ignore[arg-type]
        with pytest.raises(expected) as raised:
            await client.post(receiver.target().url)
        assert raised.value.request.method == "POST"


async def test_addresses_are_judged_and_urls_parsed_by_the_same_rules() -> None:
    async with serving(answering(GOOD)) as receiver, _client(TargetPolicy()) as client:
        with pytest.raises(httpx.ConnectError, match="loopback"):
            await client.get(receiver.target().url)
        with pytest.raises(httpx.UnsupportedProtocol, match="IPv4"):
            await client.get("http://127.1/")
        with pytest.raises(httpx.LocalProtocolError, match="X-Key"):
            await client.get("http://127.0.0.1/", headers={"X-Key": "a\r\nb: c"})
        assert receiver.connections == 0


def test_only_the_face_imports_httpx() -> None:
    program = (
        "import sys, shared.sender.transport; "
        "print([m for m in ('httpx', 'anyio', 'psycopg') if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert printed.stdout.strip() == b"[]"
