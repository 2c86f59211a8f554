"""Which connections are used again."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from shared.domain.outcome import Answered, ErrorKind, Outcome, Unanswered
from shared.domain.targets import Target, TargetPolicy
from shared.sender.response import ResponseReader
from shared.sender.transport import Transport
from tests.sender.servers import (
    GOOD,
    LOOPBACK,
    Receiver,
    Session,
    answering,
    answering_then_closing,
    answering_then_resetting,
    serving,
)

pytestmark = pytest.mark.anyio

ANSWERED = Answered(200, b"good")


async def _post(transport: Transport, target: Target) -> Outcome:
    return await transport.post(target, [], b"{}", timeout_seconds=5)


async def _fill(transport: Transport, receiver: Receiver, connections: int) -> None:
    """Leave that many idle connections behind; the receiver must hold answers back until all have asked."""
    posts = (_post(transport, receiver.target()) for _ in range(connections))
    assert await asyncio.gather(*posts) == [ANSWERED] * connections
    assert receiver.connections == connections


def _together(
    connections: int, then: Callable[[Session], Awaitable[None]]
) -> Callable[[Session], Awaitable[None]]:
    """Answer the first request of each connection once all have arrived, then do what `then` does."""
    barrier = asyncio.Barrier(connections)

    async def handle(session: Session) -> None:
        await session.request()
        await barrier.wait()
        await session.send(GOOD)
        await then(session)

    return handle


async def test_one_connection_serves_one_origin_again_and_again() -> None:
    transport = Transport(LOOPBACK)
    async with serving(answering(GOOD)) as receiver, serving(answering(GOOD)) as other:
        for _ in range(20):
            assert await _post(transport, receiver.target()) == ANSWERED
            assert await _post(transport, other.target()) == ANSWERED
        assert (receiver.connections, other.connections) == (1, 1)
    await transport.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ngood",
        b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\ngood",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nKeep-Alive: timeout=0\r\n\r\ngood",
        GOOD + GOOD,
        GOOD + b"H",
        GOOD + b"\x00",
    ],
    ids=["close", "1.0", "keep-alive 0", "two answers in one packet", "a byte more", "a NUL more"],
)
async def test_a_connection_that_did_not_end_cleanly_is_not_used_again(answer: bytes) -> None:
    transport = Transport(LOOPBACK)
    async with serving(answering(answer)) as receiver:
        for _ in range(3):
            assert await _post(transport, receiver.target()) == ANSWERED
        assert receiver.connections == 3
    await transport.aclose()


async def test_a_204_with_a_body_is_an_answer_and_costs_the_connection() -> None:
    transport = Transport(LOOPBACK)
    answer = b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nbody"
    async with serving(answering(answer)) as receiver:
        for _ in range(2):
            assert await _post(transport, receiver.target()) == Answered(204)
        assert receiver.connections == 2
    await transport.aclose()


def test_bytes_that_follow_a_complete_answer_spoil_the_connection() -> None:
    reader = ResponseReader(100)
    assert reader.feed(GOOD)
    assert reader.reusable
    assert reader.feed(b"x")
    assert not reader.reusable


async def test_bytes_that_nobody_asked_for_end_an_idle_connection() -> None:
    async def babble(session: Session) -> None:
        await session.request()
        await session.send(GOOD)
        await asyncio.sleep(0.01)
        await session.send(b"HTTP/1.1 500 Poisoned\r\nContent-Length: 0\r\n\r\n")
        await session.until_closed()
        session.receiver.closed_by_sender.set()

    transport = Transport(LOOPBACK, idle_expiry_seconds=60)
    async with serving(babble) as receiver:
        assert await _post(transport, receiver.target()) == ANSWERED
        await asyncio.wait_for(receiver.closed_by_sender.wait(), 5)
        assert await _post(transport, receiver.target()) == ANSWERED
        assert receiver.connections == 2
    await transport.aclose()


@pytest.mark.parametrize("parting", [answering_then_closing, answering_then_resetting])
async def test_a_connection_closed_while_idle_is_noticed_before_it_is_used(
    parting: Callable[[bytes], Callable[[Session], Awaitable[None]]],
) -> None:
    """WH-078."""
    transport = Transport(LOOPBACK)
    async with serving(parting(GOOD)) as receiver:
        for _ in range(30):
            assert await _post(transport, receiver.target()) == ANSWERED
            await receiver.has_closed()
        assert receiver.connections == 30
    await transport.aclose()


def test_a_connection_closed_while_the_process_was_frozen_is_noticed_before_it_is_used() -> None:
    """WH-078. The receiver closes while the event loop does not run, as in a frozen environment."""
    listener = socket.create_server(("127.0.0.1", 0))
    transport = Transport(LOOPBACK)
    receiver = Receiver(port=listener.getsockname()[1])

    def answer_one() -> None:
        connection, _ = listener.accept()
        connection.recv(65_536)
        connection.sendall(GOOD)
        accepted.append(connection)

    async def post() -> Outcome:
        outcome, _ = await asyncio.gather(
            _post(transport, receiver.target()), asyncio.to_thread(answer_one)
        )
        return outcome

    accepted: list[socket.socket] = []
    with asyncio.Runner() as runner:
        assert runner.run(post()) == ANSWERED
        accepted.pop().close()
        assert runner.run(post()) == ANSWERED
        runner.run(transport.aclose())
    accepted.pop().close()
    listener.close()


async def test_a_kept_connection_that_breaks_before_an_answer_is_stale_and_so_are_its_siblings() -> (
    None
):
    """WH-078."""

    async def read_and_reset(session: Session) -> None:
        await session.request()
        session.reset()

    transport = Transport(LOOPBACK)
    async with serving(_together(3, read_and_reset)) as receiver:
        await _fill(transport, receiver, 3)
        outcome = await _post(transport, receiver.target())
        assert isinstance(outcome, Unanswered)
        assert outcome.kind is ErrorKind.STALE_CONNECTION
        assert len(receiver.requests) == 4, "nothing is posted twice within an attempt"
        assert len(transport._idle) == 0
    await transport.aclose()


async def test_a_kept_connection_that_breaks_within_an_answer_is_a_reset() -> None:
    async def begin_and_close(session: Session) -> None:
        await session.request()
        await session.send(b"HTTP/1.1 20")

    transport = Transport(LOOPBACK)
    async with serving(_together(1, begin_and_close)) as receiver:
        await _fill(transport, receiver, 1)
        outcome = await _post(transport, receiver.target())
    await transport.aclose()
    assert isinstance(outcome, Unanswered)
    assert outcome.kind is ErrorKind.RESET


async def test_idle_connections_are_bounded_and_the_oldest_goes_first() -> None:
    transport = Transport(LOOPBACK, max_idle_connections=2)
    async with (
        serving(answering(GOOD)) as first,
        serving(answering(GOOD)) as second,
        serving(answering(GOOD)) as third,
    ):
        for receiver in (first, second, third):
            assert await _post(transport, receiver.target()) == ANSWERED
        await asyncio.wait_for(first.closed_by_sender.wait(), 5)
        for receiver in (second, third):
            assert await _post(transport, receiver.target()) == ANSWERED
        assert (first.connections, second.connections, third.connections) == (1, 1, 1)
    await transport.aclose()


async def test_the_connection_used_last_is_used_next_so_that_surplus_ones_age() -> None:
    served: list[Session] = []

    async def note_and_serve_on(session: Session) -> None:
        while True:
            await session.request()
            served.append(session)
            await session.send(GOOD)

    transport = Transport(LOOPBACK)
    async with serving(_together(3, note_and_serve_on)) as receiver:
        await _fill(transport, receiver, 3)
        for _ in range(5):
            assert await _post(transport, receiver.target()) == ANSWERED
    await transport.aclose()
    assert len(served) == 5
    assert len({id(session) for session in served}) == 1


async def test_an_expired_connection_is_closed_without_being_asked_for() -> None:
    transport = Transport(LOOPBACK, idle_expiry_seconds=0.02)
    async with serving(answering(GOOD)) as receiver:
        assert await _post(transport, receiver.target()) == ANSWERED
        await asyncio.wait_for(receiver.closed_by_sender.wait(), 5)
    await transport.aclose()


async def test_an_old_connection_is_retired_although_it_is_busy() -> None:
    transport = Transport(LOOPBACK, max_age_seconds=0)
    async with serving(answering(GOOD)) as receiver:
        for _ in range(2):
            assert await _post(transport, receiver.target()) == ANSWERED
        assert receiver.connections == 2
    await transport.aclose()


async def test_a_kept_connection_is_judged_again_at_every_attempt() -> None:
    """WH-073."""
    transport = Transport(LOOPBACK)
    async with serving(answering(GOOD)) as receiver:
        assert await _post(transport, receiver.target()) == ANSWERED
        transport._policy = TargetPolicy()
        outcome = await _post(transport, receiver.target())
        assert isinstance(outcome, Unanswered)
        assert outcome.kind is ErrorKind.TARGET_REFUSED
        assert len(receiver.requests) == 1
    await transport.aclose()


async def test_a_cancelled_post_leaves_no_connection_behind() -> None:
    async def wait_for_close(session: Session) -> None:
        await session.request()
        await session.until_closed()
        session.receiver.closed_by_sender.set()

    transport = Transport(LOOPBACK)
    async with serving(wait_for_close) as receiver:
        posting = asyncio.create_task(_post(transport, receiver.target()))
        await asyncio.wait_for(receiver.asked.wait(), 5)
        posting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await posting
        await asyncio.wait_for(receiver.closed_by_sender.wait(), 5)
    await transport.aclose()


def test_another_event_loop_gets_connections_of_its_own() -> None:
    """WH-028."""
    transport = Transport(LOOPBACK)
    connections: list[int] = []

    async def post_twice() -> None:
        async with serving(answering(GOOD)) as receiver:
            for _ in range(2):
                assert await _post(transport, receiver.target()) == ANSWERED
            connections.append(receiver.connections)

    with asyncio.Runner() as first, asyncio.Runner() as second:
        for runner in (first, second, first, second):
            runner.run(post_twice())
        second.run(transport.aclose())
        first.run(asyncio.sleep(0))
    assert connections == [1, 1, 1, 1]


def test_connections_of_a_closed_event_loop_are_let_go() -> None:
    """WH-028."""
    transport = Transport(LOOPBACK)

    async def post() -> Outcome:
        async with serving(answering(GOOD)) as receiver:
            return await _post(transport, receiver.target())

    async def post_and_close() -> Outcome:
        outcome = await post()
        await transport.aclose()
        return outcome

    assert asyncio.run(post()) == ANSWERED
    assert asyncio.run(post_and_close()) == ANSWERED


async def test_a_closed_transport_closes_its_connections_and_says_so() -> None:
    transport = Transport(LOOPBACK)
    async with serving(answering(GOOD)) as receiver:
        assert await _post(transport, receiver.target()) == ANSWERED
        await transport.aclose()
        await asyncio.wait_for(receiver.closed_by_sender.wait(), 5)
        with pytest.raises(RuntimeError, match="closed"):
            await _post(transport, receiver.target())
