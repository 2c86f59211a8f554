"""A webhook receiver under a test's control: a real HTTP server in a thread of its own."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from standardwebhooks.webhooks import Webhook


@dataclass(frozen=True)
class Received:
    """One request, as it came over the wire. `raw_headers` keeps order, case and repeats."""

    method: str
    path: str
    raw_headers: list[tuple[str, str]]
    body: bytes
    arrived_at: float

    @property
    def headers(self) -> dict[str, str]:
        """By name in lower case."""
        return {name.lower(): value for name, value in self.raw_headers}

    @property
    def webhook_id(self) -> str:
        """The id to dedupe on."""
        return self.headers["webhook-id"]

    def verify(self, secret: str) -> None:
        """Check the signature with the reference library; raises when it is wrong."""
        Webhook(secret).verify(self.body, self.headers)


Answer = bytes | Callable[[Received], bytes | Awaitable[bytes]]


def answer(status: int = 200, body: bytes = b"", *headers: tuple[str, str]) -> bytes:
    """A whole response."""
    lines = [
        f"HTTP/1.1 {status} X",
        f"content-length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Receiver:
    """Answers every request with `answers[path]`, or `default`; remembers all requests in `received`.

    An answer is the bytes of a response, or a function of the request that returns them (or awaits: it may hold a
    request until the test lets go). Empty bytes close the connection without an answer.
    """

    default: Answer = field(default_factory=answer)
    answers: dict[str, Answer] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    def __enter__(self) -> Self:
        started: Future[int] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), daemon=True
        )
        self._thread.start()
        self.port = started.result(5)
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5)

    def url(self, path: str = "/") -> str:
        """The address of a path here."""
        return f"http://127.0.0.1:{self.port}{path}"

    def at(self, path: str) -> list[Received]:
        """What came to a path, in the order of arrival."""
        return [request for request in self.received if request.path == path]

    def wait_for(self, count: int, timeout_seconds: float = 10.0) -> list[Received]:
        """Wait until `count` requests have arrived."""
        deadline = time.monotonic() + timeout_seconds
        while len(self.received) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self.received)} of {count} requests arrived")
            time.sleep(0.005)
        return self.received

    def gate(self) -> "Gate":
        """A point at which requests wait until the test opens it."""
        return Gate(self._loop)

    async def _serve(self, started: "Future[int]") -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await asyncio.start_server(
            self._connection, "127.0.0.1", 0, limit=2**22, backlog=1000
        )
        started.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request_line, *lines = head.split("\r\n")[:-2]
        method, path, _ = request_line.split(" ")
        raw_headers = [
            (name, value.strip()) for name, _, value in (line.partition(":") for line in lines)
        ]
        length = next(
            (int(value) for name, value in raw_headers if name.lower() == "content-length"), 0
        )
        body = await reader.readexactly(length)
        request = Received(method, path, raw_headers, body, time.time())
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.received.append(request)
        try:
            chosen = self.answers.get(path, self.default)
            result = chosen if isinstance(chosen, bytes) else chosen(request)
            response = result if isinstance(result, bytes) else await result
        finally:
            self.in_flight -= 1
        writer.write(response)
        await writer.drain()
        return bool(response)


class Gate:
    """Holds requests. `answers["/slow"] = gate.then(answer())` keeps them waiting until `open()`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def open(self) -> None:
        """Let everybody through, from now on."""
        self._loop.call_soon_threadsafe(self._event.set)

    def then(self, response: bytes) -> Answer:
        """An answer that is given once the gate is open."""

        async def wait(_request: Received) -> bytes:
            await self._event.wait()
            return response

        return wait
