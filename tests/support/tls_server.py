"""TLS in front of Postgres, as RDS has it, and a server that only wants to know the password."""

import asyncio
import contextlib
import ssl
import struct
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict

_SSL_REQUEST = 80877103
_CHUNK_BYTES = 65536
_CLEARTEXT_PASSWORD = b"R" + struct.pack("!II", 8, 3)
_NO_ENTRY = b"SFATAL\0VFATAL\0C28P01\0Mno\0\0"


class TlsServer:
    """Listens on a loopback port with a certificate, and relays to a database's server what comes out of TLS.

    Without a database it asks for a password in the clear, as RDS does for IAM tokens, keeps it in `passwords`, and
    refuses it. `handshakes` counts the connections that got through TLS.
    """

    def __init__(self, context: ssl.SSLContext, database_url: str | None = None) -> None:
        self._context = context
        self._target = None if database_url is None else conninfo_to_dict(database_url)
        self.passwords: list[str] = []
        self.handshakes = 0

    def __enter__(self) -> Self:
        started: Future[int] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)))
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

    async def _serve(self, started: "Future[int]") -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        started.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while struct.unpack("!II", await reader.readexactly(8))[1] != _SSL_REQUEST:
                writer.write(b"N")
            writer.write(b"S")
            await writer.drain()
            await writer.start_tls(self._context)
            self.handshakes += 1
            if self._target is None:
                await self._ask(reader, writer)
            else:
                await self._relay(reader, writer)
        writer.transport.abort()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(struct.unpack("!I", await reader.readexactly(4))[0] - 4)
        writer.write(_CLEARTEXT_PASSWORD)
        _, length = struct.unpack("!cI", await reader.readexactly(5))
        self.passwords.append((await reader.readexactly(length - 4)).rstrip(b"\0").decode())
        writer.write(b"E" + struct.pack("!I", 4 + len(_NO_ENTRY)) + _NO_ENTRY)
        await writer.drain()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._target is not None
        host, port = str(self._target["host"]), int(self._target.get("port") or 5432)
        if host.startswith("/"):
            there = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            there = await asyncio.open_connection(host, port)
        pumps = [
            asyncio.ensure_future(_pump(reader, there[1])),
            asyncio.ensure_future(_pump(there[0], writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            there[1].transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.CancelledError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
