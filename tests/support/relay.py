"""Lets containers reach a server that listens on this machine's loopback."""

import contextlib
import socket
import socketserver
import threading
from types import TracebackType
from typing import Self


class Relay:
    """Passes connections to `address`, at a port that it chooses, on to a port of 127.0.0.1."""

    def __init__(self, address: str, port: int) -> None:
        self._address = address
        self._target = ("127.0.0.1", port)

    def __enter__(self) -> Self:
        target = self._target

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(target) as server:
                    back = threading.Thread(target=_pump, args=(server, self.request))
                    back.start()
                    _pump(self.request, server)
                    back.join()

        self._server = socketserver.ThreadingTCPServer((self._address, 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(65536):
            sink.sendall(chunk)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
