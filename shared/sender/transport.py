"""One request, one outcome: the transport that deliveries go through.

What a receiver, a network or a stored row can do to a request ends as a value, never as an exception. Nothing is
sent twice: whether to try again is a decision, and decisions are made elsewhere.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Sequence

from shared.domain.outcome import ErrorKind, Outcome, Unanswered
from shared.domain.targets import Target, TargetPolicy
from shared.sender.connection import Connection, End, open_socket, start_connection
from shared.sender.pool import IdlePool, Origin
from shared.sender.request import encode_request
from shared.sender.resolver import Resolver, SystemResolver
from shared.sender.response import Response, ResponseReader
from shared.sender.tls import client_context, describe_tls_error


class Transport:
    """Sends requests over kept-alive HTTP/1.1 connections to addresses that the policy allows.

    Belongs to one event loop at a time: used from another one, it drops the connections of the former. Redirects
    are answers, cookies do not exist, and no proxy is read from the environment.

    Args:
        policy: judges every address at every attempt, those of kept connections included.
        resolver: finds the addresses of names; by default the system's, closed together with the transport.
        ssl_context: verifies receivers; by default made on first need from the system's authorities.
        body_cap_bytes: how much of a response body `post` keeps; a longer one costs the connection.
        max_idle_connections: how many connections are kept over all origins.
        idle_expiry_seconds: how long one is kept unused; a shorter `Keep-Alive: timeout` of the receiver wins.
        max_age_seconds: how long one is kept at all, so that changes in DNS are followed.
    """

    def __init__(
        self,
        policy: TargetPolicy,
        *,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
        body_cap_bytes: int = 4096,
        max_idle_connections: int = 500,
        idle_expiry_seconds: float = 4.0,
        max_age_seconds: float = 300.0,
    ) -> None:
        self._policy = policy
        self._resolver = resolver if resolver is not None else SystemResolver()
        self._owns_resolver = resolver is None
        self._ssl_context = ssl_context
        self._body_cap_bytes = body_cap_bytes
        self._idle_expiry_seconds = idle_expiry_seconds
        self._max_age_seconds = max_age_seconds
        self._idle = IdlePool(max_idle_connections)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    async def post(
        self,
        target: Target,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        timeout_seconds: float,
    ) -> Outcome:
        """POST a body once and report what came of it.

        Args:
            target: where to.
            headers: in order, as they go on the wire; Host and Content-Length are added.
            body: sent as it is.
            timeout_seconds: one limit for resolving, connecting, TLS, writing, and reading head and body.

        Returns:
            `Answered` as soon as a complete status line and headers were read, whatever happens to the body after
            them; otherwise `Unanswered`.

        Raises:
            RuntimeError: the transport was closed.
        """
        result = await self.exchange("POST", target, headers, body, timeout_seconds=timeout_seconds)
        return result.answered() if isinstance(result, Response) else result

    async def exchange(
        self,
        method: str,
        target: Target,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        timeout_seconds: float,
        body_cap_bytes: int | None = None,
    ) -> Response | Unanswered:
        """Send any request once; like `post`, but with all of the response's headers."""
        loop = self._adopt_running_loop()
        deadline_at = loop.time() + timeout_seconds
        request = encode_request(method, target, headers, body)
        if isinstance(request, Unanswered):
            return request
        origin = (target.scheme, target.host, target.port)
        connection = self._take_idle(origin, loop.time())
        reused = connection is not None
        if connection is None:
            opened = await self._open(target, deadline_at)
            if isinstance(opened, Unanswered):
                return opened
            connection = opened
        cap = self._body_cap_bytes if body_cap_bytes is None else body_cap_bytes
        reader = ResponseReader(cap, expects_body=method != "HEAD")
        end = await connection.exchange(request, reader, deadline_at)
        result = _result(end, reader, connection, reused=reused)
        if reader.reusable and connection.has_sent_everything():
            self._keep(origin, connection, reader.keep_alive_seconds)
        else:
            connection.abort()
        if reused and not reader.started:
            # What closed or swallowed this one has most likely done the same to its siblings.
            self._idle.purge(origin)
        return result

    async def aclose(self) -> None:
        """Close idle connections and refuse new requests. Those under way end by themselves, within their deadline."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in self._idle.drain():
            if self._loop is asyncio.get_running_loop():
                connection.abort()
            else:
                connection.abandon()
        if self._owns_resolver:
            self._resolver.close()
        # An aborted transport lets go of its socket in the next round of the loop.
        await asyncio.sleep(0)

    def _adopt_running_loop(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise RuntimeError("the transport was closed; make a new one")
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            for connection in self._idle.drain():
                connection.abandon()
            self._loop = loop
            self._sweeper = None
        return loop

    def _take_idle(self, origin: Origin, now: float) -> Connection | None:
        while (connection := self._idle.take(origin, now)) is not None:
            if self._policy.refusal(connection.address, origin[2]) is None:
                return connection
            connection.abort()
        return None

    def _keep(self, origin: Origin, connection: Connection, keep_alive_seconds: int | None) -> None:
        loop = asyncio.get_running_loop()
        if self._closed or loop is not self._loop:
            connection.abort()
            return
        now = loop.time()
        expiry_seconds = self._idle_expiry_seconds
        if keep_alive_seconds is not None:
            expiry_seconds = min(expiry_seconds, keep_alive_seconds)
        idle_until = min(now + expiry_seconds, connection.opened_at + self._max_age_seconds)
        self._idle.put(origin, connection, idle_until=idle_until)
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._idle_expiry_seconds, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        self._idle.sweep(loop.time())
        self._sweeper = (
            loop.call_later(self._idle_expiry_seconds, self._sweep, loop) if self._idle else None
        )

    async def _open(self, target: Target, deadline_at: float) -> Connection | Unanswered:
        addresses = await self._checked_addresses(target, deadline_at)
        if isinstance(addresses, Unanswered):
            return addresses
        loop = asyncio.get_running_loop()
        try:
            connected, address = await open_socket(addresses, target.port, deadline_at)
        except OSError as error:
            if loop.time() >= deadline_at:
                return Unanswered(ErrorKind.TIMEOUT, "no connection before the deadline")
            return Unanswered(ErrorKind.CONNECT, f"no connection: {_words(error)}")
        try:
            return await start_connection(
                connected,
                address,
                tls=self._tls() if target.scheme == "https" else None,
                server_name=target.host,
                deadline_at=deadline_at,
            )
        except ssl.SSLError as error:
            return Unanswered(ErrorKind.TLS, describe_tls_error(error))
        except TimeoutError:
            return Unanswered(
                ErrorKind.TIMEOUT, "the TLS handshake was not finished before the deadline"
            )
        except OSError as error:
            return Unanswered(
                ErrorKind.CONNECT, f"the connection broke while it was made: {_words(error)}"
            )

    async def _checked_addresses(
        self, target: Target, deadline_at: float
    ) -> Sequence[str] | Unanswered:
        """The addresses to try, every one of them allowed: one bad address among good ones refuses the target."""
        if target.is_address:
            addresses: Sequence[str] = (target.host,)
        else:
            try:
                async with asyncio.timeout_at(deadline_at):
                    addresses = await self._resolver.resolve(target.host)
            except TimeoutError:
                return Unanswered(
                    ErrorKind.DNS, "the host name was not resolved before the deadline"
                )
            except (OSError, UnicodeError) as error:
                return Unanswered(ErrorKind.DNS, f"the host name does not resolve: {_words(error)}")
        if not addresses:
            return Unanswered(ErrorKind.DNS, "the host name has no address")
        for address in addresses:
            reason = self._policy.refusal(address, target.port)
            if reason is not None:
                return Unanswered(
                    ErrorKind.TARGET_REFUSED, f"the target leads to {reason} ({address})"
                )
        return addresses

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = client_context()
        return self._ssl_context


def _result(
    end: End, reader: ResponseReader, connection: Connection, *, reused: bool
) -> Response | Unanswered:
    verdict = reader.finish(in_good_order=end is End.CLOSED)
    if verdict is not None:
        return verdict
    if end is End.DEADLINE:
        return Unanswered(
            ErrorKind.TIMEOUT, "no complete status line and headers before the deadline"
        )
    return _broken(reader, connection, reused=reused)


def _broken(reader: ResponseReader, connection: Connection, *, reused: bool) -> Unanswered:
    if reused and not reader.started:
        return Unanswered(
            ErrorKind.STALE_CONNECTION, "a kept connection turned out to be closed by the receiver"
        )
    error = connection.error
    if isinstance(error, ssl.SSLError):
        return Unanswered(ErrorKind.TLS, describe_tls_error(error))
    how = "closed" if error is None else f"broken ({_words(error)})"
    return Unanswered(ErrorKind.RESET, f"the connection was {how} before the answer was complete")


def _words(error: Exception) -> str:
    """The system's words for an error: asyncio's own repeat the address in Python's notation."""
    match error:
        case socket.gaierror():
            words = error.strerror or str(error)
        case OSError(errno=int(number)):
            words = os.strerror(number)
        case _:
            words = str(error) or type(error).__name__
    return words.lower()
