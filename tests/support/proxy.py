"""A TCP proxy in front of Postgres that stops, cuts or swallows a connection around a chosen statement."""

import asyncio
import contextlib
import ctypes
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shared.store.queries import query

_CHUNK_BYTES = 65536
# The end of every answer. Postgres sends it after the statement's transaction has been committed or rolled back.
_READY_FOR_QUERY = re.compile(rb"Z\x00\x00\x00\x05[ITE]\Z")
_SO_ATTACH_FILTER = 26
_BPF_RETURN_NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)


class Moment(Enum):
    """Where on its way a statement is caught."""

    BEFORE = "before the server has seen the statement"
    AFTER = "after the server has run and committed it, before the client knows"


@dataclass(slots=True)
class Trap:
    """Waits for a statement. `caught` counts how often it came."""

    marker: bytes
    moment: Moment
    times: int
    cuts: bool
    caught: int = 0
    _links: "list[_Link]" = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, count: int = 1, timeout_seconds: float = 15.0) -> None:
        """Wait until `count` statements are caught."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.caught >= count, timeout_seconds):
                raise TimeoutError(
                    f"{self.caught} of {count} came {self.moment.value}: {self.marker!r}"
                )

    def _takes(self, chunk: bytes) -> bool:
        return len(self._links) < self.times and self.marker in chunk

    def _spring(self, link: "_Link") -> None:
        if self.cuts:
            link.abort()
        with self._changed:
            self.caught += 1
            self._changed.notify_all()


class _Link:
    """One client's connection and ours to the server on its behalf."""

    def __init__(
        self, traps: list[Trap], client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        self._traps = traps
        self._client = client
        self._server = server
        self._trap: Trap | None = None
        self._held = b""
        self._expired = False

    def from_client(self, chunk: bytes) -> None:
        if self._expired:
            self.reset()
            return
        if self._trap is None:
            self._trap = next((trap for trap in self._traps if trap._takes(chunk)), None)
            if self._trap is not None:
                self._trap._links.append(self)
                if self._trap.moment is Moment.BEFORE:
                    self._held = chunk
                    self._trap._spring(self)
                    return
        if self._trap is not None and self._trap.moment is Moment.BEFORE:
            self._held += chunk
        else:
            self._server.write(chunk)

    def from_server(self, chunk: bytes) -> None:
        if self._trap is None or self._trap.moment is Moment.BEFORE:
            self._client.write(chunk)
            return
        self._held += chunk
        if _READY_FOR_QUERY.search(self._held):
            self._trap._spring(self)

    def abort(self) -> None:
        self._client.transport.abort()
        self._server.transport.abort()

    async def closed(self) -> None:
        """Return when both sides have been told the end."""
        await asyncio.gather(
            self._client.wait_closed(), self._server.wait_closed(), return_exceptions=True
        )

    def finish(self) -> None:
        """Say to both sides that there is no more to come (FIN)."""
        self._client.close()
        self._server.close()

    def reset(self) -> None:
        """Break with the client (RST), and leave the server."""
        linger_not_at_all = struct.pack("ii", 1, 0)
        self._client.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger_not_at_all
        )
        self.abort()

    def expire(self) -> None:
        """Say nothing, and answer the next that the client sends with RST; only then leave the server."""
        self._expired = True

    def black_hole(self) -> None:
        """Make the kernel drop whatever arrives from the client, unacknowledged, as a dead route does."""
        _drop_all_that_arrives(self._client)

    def vanish(self) -> None:
        """Drop whatever arrives from either side: neither learns that there is no way to the other any more."""
        _drop_all_that_arrives(self._client)
        _drop_all_that_arrives(self._server)


class Proxy:
    """Relays connections from a loopback port to the server of a database URL, until told otherwise.

    When either side goes away, the other one is closed at once: a killed client looks to Postgres as it does without
    a proxy in between.
    """

    def __init__(self, database_url: str) -> None:
        self._target = conninfo_to_dict(database_url)
        self._traps: list[Trap] = []
        self._links: set[_Link] = set()
        self._refuses = False

    def __enter__(self) -> Self:
        started: Future[int] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), daemon=True
        )
        self._thread.start()
        self._port = started.result(5)
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(5)

    @property
    def url(self) -> str:
        """The database URL that leads through here; connecting and writing give up after a second."""
        return self.url_with(connect_timeout="1", tcp_user_timeout="500")

    def url_with(self, **parameters: str) -> str:
        """The database URL that leads through here, with more libpq parameters."""
        return make_conninfo(
            **{
                **self._target,
                "host": "127.0.0.1",
                "port": str(self._port),
                "sslmode": "disable",
                "gssencmode": "disable",
                **parameters,
            }
        )

    @contextmanager
    def hold(self, statement: str, moment: Moment, times: int = 1) -> Iterator[Trap]:
        """Keep connections waiting at a statement until the block ends; then they are cut.

        `statement` is the name of a query, or a text that occurs in no other statement.
        """
        with self._trap(Trap(_marker(statement), moment, times, cuts=False)) as trap:
            yield trap
            for link in trap._links:
                self._loop.call_soon_threadsafe(link.abort)

    @contextmanager
    def cut(self, statement: str, moment: Moment, times: int = 1) -> Iterator[Trap]:
        """Cut connections when they come to a statement, `times` of them."""
        with self._trap(Trap(_marker(statement), moment, times, cuts=True)) as trap:
            yield trap

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Close all connections, and new ones as soon as they are made."""
        self._refuses = True
        for link in list(self._links):
            self._loop.call_soon_threadsafe(link.abort)
        yield
        self._refuses = False

    def black_hole(self) -> None:
        """Swallow everything that the present connections send from now on (Linux only); new ones work."""
        for link in list(self._links):
            link.black_hole()

    def lead_to(self, database_url: str) -> None:
        """Take new connections to another server, as a name does that has moved; the present ones stay where they are.

        Database, user and password are still the client's business.
        """
        self._target = conninfo_to_dict(database_url)

    def finish(self) -> None:
        """Close the present connections in good order (FIN); returns when their clients have been told."""
        self._to(self._links, _Link.finish)
        self.wait_until_empty()

    def reset(self) -> None:
        """Break the present connections (RST); returns when their clients have been told."""
        self._to(self._links, _Link.reset)
        self.wait_until_empty()

    def wait_until_empty(self, timeout_seconds: float = 15.0) -> None:
        """Wait until nobody is connected any more: whoever was has been told so."""
        self._wait_until(lambda: not self._links, timeout_seconds)

    @contextmanager
    def expiring(self) -> Iterator[None]:
        """Forget the present connections as a NAT gateway does: unseen, and RST is the answer to their next word."""
        expired = set(self._links)
        self._to(expired, _Link.expire)
        yield
        self._wait_until(lambda: not expired & self._links)

    @contextmanager
    def vanishing(self) -> Iterator[None]:
        """Swallow everything that either side of the present connections sends until the block ends (Linux only).

        Nothing is left of them then: their ports belong to whoever gets them next.
        """
        vanished = set(self._links)
        self._to(vanished, _Link.vanish)
        yield
        self._to(vanished, _Link.reset)
        self._wait_until(lambda: not vanished & self._links)

    def _to(self, links: Iterable[_Link], act: Callable[[_Link], None]) -> None:
        async def do() -> None:
            for link in list(links):
                act(link)

        asyncio.run_coroutine_threadsafe(do(), self._loop).result(15)

    def _wait_until(self, holds: Callable[[], bool], timeout_seconds: float = 15.0) -> None:
        deadline = time.monotonic() + timeout_seconds
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self._links)} are still connected")
            time.sleep(0.005)

    @contextmanager
    def _trap(self, trap: Trap) -> Iterator[Trap]:
        self._traps.append(trap)
        try:
            yield trap
        finally:
            self._traps.remove(trap)

    async def _serve(self, started: "Future[int]") -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=1000)
        started.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _connection(
        self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter
    ) -> None:
        if self._refuses:
            client.transport.abort()
            return
        with contextlib.suppress(OSError, asyncio.CancelledError):
            server_reader, server = await self._connect()
            link = _Link(self._traps, client, server)
            self._links.add(link)
            pumps = [
                asyncio.ensure_future(_pump(client_reader, link.from_client)),
                asyncio.ensure_future(_pump(server_reader, link.from_server)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                link.abort()
                try:
                    await link.closed()
                finally:
                    self._links.discard(link)
        client.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = str(self._target.get("host", "127.0.0.1"))
        port = int(self._target.get("port") or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)


def _drop_all_that_arrives(writer: asyncio.StreamWriter) -> None:
    program = ctypes.create_string_buffer(_BPF_RETURN_NOTHING)
    options = struct.pack("@HL", 1, ctypes.addressof(program))
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, options)


async def _pump(reader: asyncio.StreamReader, forward: Callable[[bytes], None]) -> None:
    with contextlib.suppress(ConnectionError, asyncio.CancelledError):
        while chunk := await reader.read(_CHUNK_BYTES):
            forward(chunk)


def _marker(statement: str) -> bytes:
    """The first line of a named query: it travels as it is, and only with that query."""
    try:
        return query(statement).partition(b"\n")[0]
    except LookupError:
        return statement.encode()
