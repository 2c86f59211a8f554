"""Random and mutated responses in random pieces: always an outcome, never a spoiled connection."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st

from shared.domain.outcome import Answered, Unanswered
from shared.sender.response import Response, ResponseReader
from shared.sender.transport import Transport
from tests.sender.servers import GOOD, LOOPBACK, Receiver, Session, serving

CAP_BYTES = 64
TIMEOUT_SECONDS = 0.1

TEMPLATES = [
    GOOD,
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=y\r\nyou\r\n0\r\nT: r\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.0 302 Found\r\nLocation: /x\r\n\r\nuntil the end",
    b"HTTP/1.1 503 X\r\nRetry-After: 5\r\nKeep-Alive: timeout=5, max=9\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 100\r\n\r\n" + b"x" * 100,
]
FRAGMENTS = [
    b"\r\n",
    b"\n",
    b"\r\n\r\n",
    b"\x00",
    b"Content-Length: 3\r\n",
    b"HTTP/1.1 ",
    b"101",
    b"-1",
    b"\xff",
]


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    """A response, mutated a few times; or noise."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=80))
    data = b"".join(draw(st.lists(st.sampled_from(TEMPLATES), min_size=1, max_size=2)))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 8)))
        inserted = draw(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=3)))
        data = data[:start] + inserted + data[end:]
    # Half of them stop short: only those meet the deadline, a reset or a close in the middle.
    return data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data


@st.composite
def pieces(draw: st.DrawFn) -> list[bytes]:
    data = draw(responses())
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    bounds = [0, *cuts, len(data)]
    return [data[start:end] for start, end in pairwise(bounds) if start < end]


def _read(parts: list[bytes], *, in_good_order: bool) -> Response | Unanswered | None:
    reader = ResponseReader(CAP_BYTES)
    for part in parts:
        if reader.feed(part):
            break
    return reader.finish(in_good_order=in_good_order)


@seed(20_261_101)
@settings(max_examples=600, deadline=None, database=None)
@given(pieces(), st.booleans())
def test_what_a_response_means_does_not_depend_on_how_it_was_cut(
    parts: list[bytes], in_good_order: bool
) -> None:
    whole = _read([b"".join(parts)], in_good_order=in_good_order)
    bytewise = _read([bytes([byte]) for byte in b"".join(parts)], in_good_order=in_good_order)
    assert _read(parts, in_good_order=in_good_order) == bytewise
    assert whole == bytewise
    if isinstance(whole, Response):
        assert 200 <= whole.status <= 999
        assert len(whole.body) <= CAP_BYTES


@dataclass(slots=True)
class Stage:
    """A receiver in a loop of its own, whose next answer is set by the test."""

    runner: asyncio.Runner
    receiver: Receiver
    transport: Transport
    script: "Script"

    async def post(self, parts: list[bytes], ending: str) -> Answered | Unanswered:
        self.script.parts, self.script.ending = parts, ending
        outcome = await self.transport.post(
            self.receiver.target(), [], b"{}", timeout_seconds=TIMEOUT_SECONDS
        )
        if ending != "stay":
            await self.receiver.has_closed()
        return outcome


@dataclass(slots=True)
class Script:
    parts: list[bytes]
    ending: str

    async def play(self, session: Session) -> None:
        while True:
            await session.request()
            parts, ending = self.parts, self.ending
            for part in parts:
                await session.send(part)
                await asyncio.sleep(0)
            if ending == "reset":
                session.reset()
            if ending != "stay":
                return


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with asyncio.Runner() as runner:
        script = Script([], "stay")
        server = serving(script.play)
        receiver = runner.run(server.__aenter__())
        transport = Transport(LOOPBACK, body_cap_bytes=CAP_BYTES)
        yield Stage(runner, receiver, transport, script)
        runner.run(transport.aclose())
        runner.run(server.__aexit__(None, None, None))


@seed(20_261_101)
@settings(
    max_examples=150,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(parts=pieces(), ending=st.sampled_from(["close", "close", "reset", "stay"]))
@example(parts=[], ending="stay")
@example(parts=[GOOD[:-1]], ending="stay")
@example(parts=[GOOD + GOOD], ending="stay")
@example(parts=[GOOD, b"H"], ending="stay")
@example(parts=[GOOD], ending="reset")
def test_every_response_gets_an_outcome_in_time_and_spoils_no_connection(
    stage: Stage, parts: list[bytes], ending: str
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcome = await stage.post(parts, ending)
        assert isinstance(outcome, Answered | Unanswered)
        assert loop.time() - began < TIMEOUT_SECONDS + 1
        following = await stage.post([GOOD], "stay")
        assert following == Answered(200, b"good")

    stage.runner.run(scenario())
