"""Receivers on loopback that behave as badly as a test asks."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from shared.domain.targets import Target, TargetPolicy, parse_networks, parse_target

LOOPBACK = TargetPolicy(parse_networks("127.0.0.0/8, ::1"))
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it was on the wire."""

    head: bytes
    body: bytes

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        pairs = (line.partition(b": ") for line in self.head.split(b"\r\n")[1:] if line)
        return [(name, value) for name, _, value in pairs]

    def values(self, name: bytes) -> list[bytes]:
        return [value for given, value in self.headers if given.lower() == name.lower()]


@dataclass(slots=True)
class Session:
    """One accepted connection, as its handler sees it."""

    receiver: "Receiver"
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> Received:
        """Read one whole request."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        received = Received(head, b"")
        (length,) = received.values(b"content-length")
        received = Received(head, await self.reader.readexactly(int(length)))
        self.receiver.requests.append(received)
        self.receiver.asked.set()
        return received

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_closed(self) -> None:
        """Stay silent, reading on, until the sender closes."""
        while await self.reader.read(65_536):
            pass

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Handler = Callable[[Session], Awaitable[None]]


@dataclass(slots=True)
class Receiver:
    """A listening server and what reached it."""

    port: int = 0
    connections: int = 0
    requests: list[Received] = field(default_factory=list)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no handler is running."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a whole request was read."""
    closed_by_sender: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a handler has seen the sender close a connection."""

    async def has_closed(self) -> None:
        """Wait until every handler has ended and its socket is closed, which is one round of the loop later."""
        await self.idle.wait()
        await asyncio.sleep(0)

    def target(self, scheme: str = "http", host: str = "127.0.0.1", path: str = "/hook") -> Target:
        return parse_target(f"{scheme}://{host}:{self.port}{path}")


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """Run a handler for each connection. Whatever handlers still do at the end is cancelled."""
    receiver = Receiver()
    running: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        receiver.idle.clear()
        receiver.connections += 1
        try:
            await handler(Session(receiver, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            receiver.closed_by_sender.set()
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()
            running.discard(task)
            if not running:
                receiver.idle.set()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls, limit=2**21)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        await _rounds_of_the_loop()  # connections accepted just now reach their handlers
        server.close()
        for task in list(running):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*running)
        await _rounds_of_the_loop()  # aborted transports let go of their sockets


async def _rounds_of_the_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def answering(answer: bytes) -> Handler:
    """Answer every request on a connection with the same bytes, keeping the connection open."""

    async def handle(session: Session) -> None:
        while True:
            await session.request()
            await session.send(answer)

    return handle


def answering_then_closing(answer: bytes) -> Handler:
    """Answer one request and close in good order."""

    async def handle(session: Session) -> None:
        await session.request()
        await session.send(answer)

    return handle


def answering_then_resetting(answer: bytes) -> Handler:
    """Answer one request and reset, once the answer has left."""

    async def handle(session: Session) -> None:
        await session.request()
        await session.send(answer)
        await asyncio.sleep(0.02)
        session.reset()

    return handle
