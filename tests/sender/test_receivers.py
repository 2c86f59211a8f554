"""What receivers do to a request, on real sockets."""

import asyncio
import gzip
import tracemalloc

import pytest

from shared.domain.outcome import Answered, ErrorKind, Unanswered
from shared.sender.transport import Transport
from tests.sender.servers import (
    GOOD,
    LOOPBACK,
    Handler,
    Received,
    Session,
    answering,
    answering_then_closing,
    answering_then_resetting,
    serving,
)

pytestmark = pytest.mark.anyio

TIMEOUT_SECONDS = 0.3
ENOUGH_SECONDS = 5.0


def _head(*lines: str) -> bytes:
    return "\r\n".join(("HTTP/1.1 200 OK", *lines, "", "")).encode()


async def _post(
    handler: Handler, *, body: bytes = b"{}", timeout_seconds: float = ENOUGH_SECONDS
) -> tuple[Answered | Unanswered, list[Received]]:
    """Post once, then check that the connection left behind does not spoil the next post."""
    transport = Transport(LOOPBACK)
    async with serving(handler) as receiver:
        outcome = await transport.post(receiver.target(), [], body, timeout_seconds=timeout_seconds)
    async with serving(answering(GOOD)) as healthy:
        following = await transport.post(
            healthy.target(), [], b"{}", timeout_seconds=ENOUGH_SECONDS
        )
    await transport.aclose()
    assert following == Answered(200, b"good")
    return outcome, receiver.requests


def _kind(outcome: Answered | Unanswered) -> ErrorKind:
    assert isinstance(outcome, Unanswered), outcome
    return outcome.kind


async def _elapsed_seconds(handler: Handler, **options: object) -> tuple[object, float]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    body = options.get("body", b"{}")
    assert isinstance(body, bytes)
    transport = Transport(LOOPBACK)
    async with serving(handler) as receiver:
        outcome = await transport.post(receiver.target(), [], body, timeout_seconds=TIMEOUT_SECONDS)
        elapsed = loop.time() - began
    await transport.aclose()
    return outcome, elapsed


@pytest.mark.parametrize(
    "status", [200, 204, 301, 302, 303, 304, 307, 308, 410, 429, 500, 600, 999]
)
async def test_any_status_is_an_answer(status: int) -> None:
    outcome, _ = await _post(
        answering(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())
    )
    assert outcome == Answered(status)


@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1:{port}/elsewhere", "http://169.254.169.254/", "::not a url::", None],
)
async def test_a_redirect_is_shown_and_not_followed(location: str | None) -> None:
    """WH-070."""
    async with serving(answering(GOOD)) as second:
        shown = None if location is None else location.format(port=second.port)
        line = f"Location: {shown}\r\n" if shown else ""
        answer = f"HTTP/1.1 307 Elsewhere\r\n{line}Content-Length: 0\r\n\r\n".encode()
        outcome, requests = await _post(answering(answer))
        assert outcome == Answered(307, location=shown)
        assert len(requests) == 1
        assert second.connections == 0


async def test_every_retry_after_line_is_kept_and_trailers_are_not() -> None:
    answer = (
        b"HTTP/1.1 503 X\r\nRetry-After: 5\r\nretry-after: junk\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nok\r\n0\r\nRetry-After: 99\r\n\r\n"
    )
    outcome, _ = await _post(answering(answer))
    assert outcome == Answered(503, b"ok", retry_after=("5", "junk"))


async def test_interim_responses_are_skipped() -> None:
    answer = (
        b"HTTP/1.1 100 Continue\r\n\r\n"
        b"HTTP/1.1 103 Early Hints\r\nLocation: /x\r\nRetry-After: 1\r\n\r\n"
    )
    outcome, _ = await _post(answering(answer * 20 + GOOD))
    assert outcome == Answered(200, b"good")


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    outcome, _ = await _post(answering_then_closing(_head() + b"until the end"))
    assert outcome == Answered(200, b"until the end")


async def test_an_http_1_0_answer_is_an_answer() -> None:
    outcome, _ = await _post(answering_then_closing(b"HTTP/1.0 200 OK\r\n\r\nold"))
    assert outcome == Answered(200, b"old")


@pytest.mark.parametrize(
    ("handler", "body"),
    [
        (answering_then_closing(_head("Content-Length: 10") + b"half"), b"half"),
        (answering_then_resetting(_head("Content-Length: 10") + b"half"), b"half"),
        (answering_then_resetting(_head() + b"half"), b"half"),
        (answering_then_closing(_head("Transfer-Encoding: chunked") + b"4\r\nhalf\r\n"), b"half"),
        (answering(_head("Transfer-Encoding: chunked") + b"4\r\nhalf\r\nzz\r\n"), b"half"),
        (answering(_head("Transfer-Encoding: chunked") + b"-4\r\nhalf\r\n"), b""),
        (answering(_head("Transfer-Encoding: chunked") + b"ffffffffffffffffff\r\nhalf"), b""),
        (answering(_head("Transfer-Encoding: chunked") + b"4\r\nhalfhalf"), b"half"),
    ],
)
async def test_a_body_that_breaks_off_leaves_the_status_standing(
    handler: Handler, body: bytes
) -> None:
    """WH-077."""
    outcome, _ = await _post(handler)
    assert outcome == Answered(200, body, truncated=True)


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x01\x02\x03 garbage",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"RTSP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"ICE/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 1000 High\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 20x OK\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        _head("Content-Length: -1"),
        _head("Content-Length: 1x"),
        _head("Content-Length: 99999999999999999999999"),
        _head("Content-Length: 2", "Content-Length: 3") + b"abc",
        _head("Content-Length: 2", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        _head("X: nul\x00byte", "Content-Length: 0"),
        _head("Na me: x", "Content-Length: 0"),
        _head("X: folded", " line", "Content-Length: 0"),
    ],
)
async def test_what_is_not_http_is_a_protocol_error(answer: bytes) -> None:
    outcome, _ = await _post(answering(answer))
    assert _kind(outcome) is ErrorKind.PROTOCOL


async def test_a_receiver_that_switches_protocols_is_told_apart_from_garbage() -> None:
    answer = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nbytes"
    outcome, _ = await _post(answering(answer))
    assert outcome == Unanswered(ErrorKind.PROTOCOL, "the receiver switched protocols")


@pytest.mark.parametrize(
    "answer",
    [
        _head(*(f"X-{number}: {number}" for number in range(20_000)), "Content-Length: 0"),
        _head(*["X: x"] * 300, "Content-Length: 0"),
        _head("X: " + "x" * 5_000_000, "Content-Length: 0"),
        _head(*["X: " + "x" * 5_000] * 20, "Content-Length: 0"),
        b"HTTP/1.1 200 " + b"O" * 5_000_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 200_000,
    ],
    ids=[
        "20,000 headers",
        "300 small headers",
        "one header of 5 MB",
        "100 KB of headers",
        "5 MB reason",
        "1xx flood",
    ],
)
async def test_a_flood_before_the_answer_is_cut_short(answer: bytes) -> None:
    """WH-077."""
    outcome, _ = await _post(answering(answer))
    assert _kind(outcome) is ErrorKind.PROTOCOL


async def test_a_long_body_is_cut_at_the_cap_and_costs_the_connection() -> None:
    """WH-077."""
    transport = Transport(LOOPBACK, body_cap_bytes=10)
    async with serving(answering(_head("Content-Length: 11") + b"0123456789x")) as receiver:
        for _ in range(2):
            outcome = await transport.post(
                receiver.target(), [], b"", timeout_seconds=ENOUGH_SECONDS
            )
            assert outcome == Answered(200, b"0123456789", truncated=True)
        assert receiver.connections == 2
    async with serving(answering(_head("Content-Length: 10") + b"0123456789")) as receiver:
        for _ in range(2):
            outcome = await transport.post(
                receiver.target(), [], b"", timeout_seconds=ENOUGH_SECONDS
            )
            assert outcome == Answered(200, b"0123456789")
        assert receiver.connections == 1
    await transport.aclose()


async def test_an_endless_body_takes_neither_memory_nor_time() -> None:
    """WH-077."""

    async def endless(session: Session) -> None:
        await session.request()
        await session.send(_head("Transfer-Encoding: chunked"))
        while True:
            await session.send(b"10000\r\n" + bytes(65_536) + b"\r\n")

    tracemalloc.start()
    outcome, _ = await _post(endless)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert outcome == Answered(200, bytes(4096), truncated=True)
    assert peak_bytes < 5_000_000


@pytest.mark.parametrize(
    "start",
    [b"1;" + b"x" * 1_000_000, b"0\r\nX: " + b"x" * 1_000_000, b"0\r\n" + b"X: x\r\n" * 100_000],
    ids=["chunk extension", "trailer", "trailers"],
)
async def test_endless_framing_around_a_body_is_cut_off_before_the_deadline(start: bytes) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    outcome, _ = await _post(answering(_head("Transfer-Encoding: chunked") + start))
    assert outcome == Answered(200, truncated=True)
    assert loop.time() - began < ENOUGH_SECONDS / 2


async def test_a_compressed_body_stays_compressed() -> None:
    """WH-077."""
    bomb = gzip.compress(bytes(20_000_000), 9)
    head = _head("Content-Encoding: gzip", f"Content-Length: {len(bomb)}")
    outcome, requests = await _post(answering(head + bomb))
    assert outcome == Answered(200, bomb[:4096], truncated=True)
    assert requests[0].values(b"accept-encoding") == []


async def test_a_body_that_lies_about_its_compression_is_no_failure() -> None:
    """WH-077."""
    outcome, _ = await _post(
        answering(_head("Content-Encoding: br", "Content-Length: 5") + b"plain")
    )
    assert outcome == Answered(200, b"plain")


async def _accept_and_say_nothing(session: Session) -> None:
    await session.until_closed()


async def _drip_the_head(session: Session) -> None:
    for byte in _head("Content-Length: 0", *["X: x"] * 50):
        await session.send(bytes([byte]))
        await asyncio.sleep(0.05)


async def _drip_the_body(session: Session) -> None:
    await session.request()
    await session.send(_head("Content-Length: 1000"))
    while True:
        await session.send(b"x")
        await asyncio.sleep(0.05)


async def _read_slowly(session: Session) -> None:
    session.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a selector transport is a read transport
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("handler", "body"),
    [(_accept_and_say_nothing, b"{}"), (_drip_the_head, b"{}"), (_read_slowly, bytes(8_000_000))],
    ids=["silence", "head drips", "request is not read"],
)
async def test_one_deadline_covers_everything_until_the_headers(
    handler: Handler, body: bytes
) -> None:
    """WH-076."""
    outcome, elapsed = await _elapsed_seconds(handler, body=body)
    assert isinstance(outcome, Unanswered)
    assert outcome.kind is ErrorKind.TIMEOUT
    assert TIMEOUT_SECONDS - 0.01 <= elapsed < TIMEOUT_SECONDS + 1


async def test_a_body_that_drips_past_the_deadline_leaves_the_status_standing() -> None:
    """WH-076."""
    outcome, elapsed = await _elapsed_seconds(_drip_the_body)
    assert isinstance(outcome, Answered)
    assert outcome.status == 200
    assert outcome.truncated
    assert set(outcome.body) == set(b"x")
    assert elapsed < TIMEOUT_SECONDS + 1


async def test_a_slow_receiver_does_not_delay_its_neighbours() -> None:
    """WH-076."""
    transport = Transport(LOOPBACK)
    loop = asyncio.get_running_loop()
    async with serving(_accept_and_say_nothing) as slow, serving(answering(GOOD)) as quick:
        waiting = [
            asyncio.create_task(
                transport.post(slow.target(), [], b"", timeout_seconds=ENOUGH_SECONDS)
            )
            for _ in range(50)
        ]
        began = loop.time()
        for _ in range(20):
            outcome = await transport.post(quick.target(), [], b"", timeout_seconds=ENOUGH_SECONDS)
            assert outcome == Answered(200, b"good")
        assert loop.time() - began < 1
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    await transport.aclose()


async def test_a_reset_after_the_request_is_reported_as_reset() -> None:
    """WH-078."""

    async def read_and_reset(session: Session) -> None:
        await session.request()
        session.reset()

    outcome, requests = await _post(read_and_reset)
    assert _kind(outcome) is ErrorKind.RESET
    assert len(requests) == 1


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\nContent-Le"])
async def test_a_close_before_the_headers_are_complete_is_reported_as_reset(start: bytes) -> None:
    outcome, _ = await _post(answering_then_closing(start))
    assert _kind(outcome) is ErrorKind.RESET


async def test_an_answer_before_the_request_was_read_counts_and_costs_the_connection() -> None:
    async def answer_first(session: Session) -> None:
        session.writer.transport.pause_reading()  # type: ignore[attr-defined]  # as above
        await session.send(GOOD)
        await asyncio.sleep(60)

    transport = Transport(LOOPBACK)
    async with serving(answer_first) as receiver:
        for _ in range(2):
            outcome = await transport.post(
                receiver.target(), [], bytes(8_000_000), timeout_seconds=ENOUGH_SECONDS
            )
            assert outcome == Answered(200, b"good")
        assert receiver.connections == 2
    await transport.aclose()


async def test_a_refused_connection_is_a_connect_error() -> None:
    async with serving(answering(GOOD)) as receiver:
        target = receiver.target()
    transport = Transport(LOOPBACK)
    outcome = await transport.post(target, [], b"", timeout_seconds=ENOUGH_SECONDS)
    await transport.aclose()
    assert outcome == Unanswered(ErrorKind.CONNECT, "no connection: connection refused")


async def test_a_deadline_that_has_passed_already_is_a_timeout() -> None:
    transport = Transport(LOOPBACK)
    async with serving(answering(GOOD)) as receiver:
        outcome = await transport.post(receiver.target(), [], b"", timeout_seconds=-1)
    await transport.aclose()
    assert receiver.connections == 0
    assert _kind(outcome) is ErrorKind.TIMEOUT
