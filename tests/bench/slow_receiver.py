"""A receiver of known latency, in a process of its own: answers 200 that long after a request, over HTTP or TLS."""

import asyncio
import ipaddress
import multiprocessing
import random
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

_START_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Manner:
    """How it answers. `certificate` is a file with key and certificate; without one it speaks plain HTTP."""

    latency_seconds: tuple[float, ...] = (0.0,)
    """Each as likely as the others."""
    closes: bool = False
    certificate: Path | None = None


class SlowReceiver:
    """Serves from `with` on."""

    def __init__(self, manner: Manner) -> None:
        self._manner = manner

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._port: Synchronized[int] = context.Value("i", 0)
        ready = context.Event()
        self._process = context.Process(
            target=_serve, args=(self._manner, self._port, ready), daemon=True
        )
        self._process.start()
        if not ready.wait(_START_SECONDS):
            raise TimeoutError("the receiver did not start")
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
        scheme = "https" if self._manner.certificate else "http"
        return f"{scheme}://127.0.0.1:{self._port.value}{path}"


def make_certificate(folder: Path) -> Path:
    """A file with a new key and a certificate for 127.0.0.1 that is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "receiver.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return file


class _Connection(asyncio.Protocol):
    def __init__(self, manner: Manner) -> None:
        self._manner = manner
        self._buffer = b""
        connection = b"connection: close\r\n" if manner.closes else b""
        self._answer = b"HTTP/1.1 200 OK\r\n" + connection + b"content-length: 2\r\n\r\nok"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # what create_server gives
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
            seconds = random.choice(self._manner.latency_seconds)  # no secret
            if seconds:
                asyncio.get_running_loop().call_later(seconds, self._send)
            else:
                self._send()

    def _send(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._answer)
            if self._manner.closes:
                self._transport.close()


def _serve(
    manner: Manner, port: "Synchronized[int]", ready: "multiprocessing.synchronize.Event"
) -> None:
    tls = None
    if manner.certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(manner.certificate)

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(manner), "127.0.0.1", 0, backlog=2000, ssl=tls
        )
        port.value = server.sockets[0].getsockname()[1]
        ready.set()
        await server.serve_forever()

    asyncio.run(serve())
