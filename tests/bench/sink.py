"""A receiver that costs next to nothing, in a process of its own: answers 200 and counts."""

import asyncio
import multiprocessing
from multiprocessing.sharedctypes import Synchronized
from types import TracebackType
from typing import Self

_RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Sink:
    """Serves from `with` on; `count()` is how many requests it has answered."""

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._port: Synchronized[int] = context.Value("i", 0)
        self._count: Synchronized[int] = context.Value("i", 0)
        self._ready = context.Event()
        self._process = context.Process(
            target=_serve, args=(self._port, self._count, self._ready), daemon=True
        )
        self._process.start()
        if not self._ready.wait(10):
            raise TimeoutError("the sink did not start")
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.join()

    def url(self, path: str) -> str:
        """The address of a path."""
        return f"http://127.0.0.1:{self._port.value}{path}"

    def count(self) -> int:
        """How many requests have been answered."""
        return self._count.value


class _Connection(asyncio.Protocol):
    def __init__(self, count: "Synchronized[int]") -> None:
        self._count = count
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            start = head.index(b"content-length:") + 15
            whole = end + 4 + int(head[start:].split(b"\r\n", 1)[0])
            if len(self._buffer) < whole:
                return
            self._buffer = self._buffer[whole:]
            self._count.value += 1
            self._transport.write(_RESPONSE)


def _serve(
    port: "Synchronized[int]",
    count: "Synchronized[int]",
    ready: "multiprocessing.synchronize.Event",
) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(count), "127.0.0.1", 0, backlog=2000)
        port.value = server.sockets[0].getsockname()[1]
        ready.set()
        await server.serve_forever()

    asyncio.run(serve())
