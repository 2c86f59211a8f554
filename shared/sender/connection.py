"""One connection to one checked address, and one request at a time on it."""

import asyncio
import select
import socket
import ssl
from collections.abc import Sequence
from enum import Enum, auto
from typing import cast

from shared.sender.response import ResponseReader

# More than this many addresses of one name are not worth an attempt's time.
_ADDRESSES_TRIED = 4


class End(Enum):
    """How an exchange ended."""

    SETTLED = auto()
    """The reader has its verdict."""
    CLOSED = auto()
    """The receiver ended the stream in good order."""
    LOST = auto()
    """The connection broke; `Connection.error` says how."""
    DEADLINE = auto()
    """Time was up."""


class Connection(asyncio.Protocol):
    """The protocol of one socket.

    Attributes:
        address: the address it is connected to, as it was checked.
        opened_at: when it was made, on the loop's clock.
        error: what broke it, if anything did.
        is_open: whether both sides may still write.
    """

    __slots__ = (
        "_ended",
        "_loop",
        "_poll",
        "_reader",
        "_transport",
        "address",
        "error",
        "is_open",
        "opened_at",
    )

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self.opened_at = loop.time()
        self.error: Exception | None = None
        self.is_open = False
        self._loop = loop
        self._reader: ResponseReader | None = None
        self._ended: asyncio.Future[End] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """Called by the event loop. Bytes that nobody asked for end the connection."""
        if self._reader is None:
            self.abort()
        elif self._reader.feed(data):
            self._end(End.SETTLED)

    def eof_received(self) -> None:
        """Called by the event loop, which closes the transport next."""
        self.is_open = False
        self._end(End.CLOSED)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self.is_open = False
        self.error = exc
        self._end(End.CLOSED if exc is None else End.LOST)

    def _end(self, end: End) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(end)

    async def exchange(self, request: bytes, reader: ResponseReader, deadline_at: float) -> End:
        """Write a request once and feed the reader until it is settled, the stream ends, or time is up.

        Afterwards the connection is fit for another request only if the reader calls it reusable and
        `has_sent_everything` agrees. A cancelled exchange closes the connection.
        """
        self._reader = reader
        ended: asyncio.Future[End] = self._loop.create_future()
        self._ended = ended
        timer = self._loop.call_at(deadline_at, self._end, End.DEADLINE)
        try:
            self._transport.write(request)
            return await ended
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            timer.cancel()
            self._reader = self._ended = None

    def has_sent_everything(self) -> bool:
        """Whether the connection is open and no byte of a request still waits to be written."""
        return (
            self.is_open
            and not self._transport.is_closing()
            and self._transport.get_write_buffer_size() == 0
        )

    def is_quiet(self) -> bool:
        """Whether the connection can take a request: nothing left to write, and nothing to read.

        Asks the kernel, since the event loop may not have looked for a while: an environment that was frozen
        thaws with connections that the receiver has long closed.
        """
        return self.has_sent_everything() and not self._poll.poll(0)

    def abort(self) -> None:
        """Close at once, without flushing; harmless when already closed."""
        self.is_open = False
        self._transport.abort()

    def abandon(self) -> None:
        """Close from outside the event loop that owns the connection.

        If that loop is closed, nothing can be done with it any more: garbage collection closes the socket.
        """
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.abort)


async def open_socket(
    addresses: Sequence[str], port: int, deadline_at: float
) -> tuple[socket.socket, str]:
    """Connect to the first address that accepts, dividing the time that is left among those not yet tried.

    Raises:
        TimeoutError: the deadline passed.
        OSError: no address accepted; the last one's error.
    """
    loop = asyncio.get_running_loop()
    tried = addresses[:_ADDRESSES_TRIED]
    last_error: OSError = OSError("no address to connect to")
    for position, address in enumerate(tried):
        share_seconds = (deadline_at - loop.time()) / (len(tried) - position)
        if share_seconds <= 0:
            raise TimeoutError
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            return await _connect_one(family, address, port, share_seconds), address
        except OSError as error:
            last_error = error
    raise last_error


async def _connect_one(
    family: socket.AddressFamily, address: str, port: int, timeout_seconds: float
) -> socket.socket:
    loop = asyncio.get_running_loop()
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        async with asyncio.timeout(timeout_seconds):
            await loop.sock_connect(connecting, (address, port))
    except BaseException:
        connecting.close()
        raise
    return connecting


async def start_connection(
    connected: socket.socket,
    address: str,
    *,
    tls: ssl.SSLContext | None,
    server_name: str,
    deadline_at: float,
) -> Connection:
    """Make a connected socket a connection, shaking hands first if `tls` is given. Owns the socket from here on.

    Raises:
        TimeoutError: the handshake was not finished in time.
        ssl.SSLError: the certificate or the handshake was not acceptable.
        OSError: the connection broke meanwhile.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout_at(deadline_at):
        if tls is None:
            _, connection = await loop.create_connection(
                lambda: Connection(address, loop), sock=connected
            )
        else:
            _, connection = await loop.create_connection(
                lambda: Connection(address, loop),
                sock=connected,
                ssl=tls,
                server_hostname=server_name,
                # The deadline above is the only clock; asyncio's own must not strike first.
                ssl_handshake_timeout=max(deadline_at - loop.time(), 0) + 60,
            )
    return connection
