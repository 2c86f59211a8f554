"""The transport as httpx sees it, for tests and tools. The only module here that imports httpx."""

import httpx

from shared.domain.outcome import ErrorKind, Unanswered
from shared.domain.targets import InvalidTarget, parse_target
from shared.sender.transport import Transport

# Set by the transport itself, and by httpx as well.
_SET_BY_TRANSPORT = frozenset({b"host", b"content-length", b"connection", b"transfer-encoding"})

_EXCEPTIONS: dict[ErrorKind, type[httpx.RequestError]] = {
    ErrorKind.DNS: httpx.ConnectError,
    ErrorKind.CONNECT: httpx.ConnectError,
    ErrorKind.TLS: httpx.ConnectError,
    ErrorKind.TARGET_REFUSED: httpx.ConnectError,
    ErrorKind.TIMEOUT: httpx.ReadTimeout,
    ErrorKind.RESET: httpx.ReadError,
    ErrorKind.STALE_CONNECTION: httpx.ReadError,
    ErrorKind.PROTOCOL: httpx.RemoteProtocolError,
    ErrorKind.UNSENDABLE: httpx.LocalProtocolError,
}


class HttpxTransport(httpx.AsyncBaseTransport):
    """Lets an `httpx.AsyncClient` send through a `Transport`, with its address checks, limits and single deadline.

    The deadline is the longest of the request's httpx timeouts, or `timeout_seconds` where it has none. A response
    body that is longer than `body_cap_bytes`, or cut off, raises instead of passing for complete. Closing the
    client closes the transport.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        timeout_seconds: float = 30.0,
        body_cap_bytes: int = 1024 * 1024,
    ) -> None:
        self._transport = transport
        self._timeout_seconds = timeout_seconds
        self._body_cap_bytes = body_cap_bytes

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; errors are httpx exceptions that carry it."""
        try:
            target = parse_target(str(request.url))
        except InvalidTarget as error:
            raise httpx.UnsupportedProtocol(str(error), request=request) from None
        limits = [
            seconds
            for seconds in request.extensions.get("timeout", {}).values()
            if seconds is not None
        ]
        result = await self._transport.exchange(
            request.method,
            target,
            [pair for pair in request.headers.raw if pair[0].lower() not in _SET_BY_TRANSPORT],
            await request.aread(),
            timeout_seconds=max(limits, default=self._timeout_seconds),
            body_cap_bytes=self._body_cap_bytes,
        )
        if isinstance(result, Unanswered):
            raise _EXCEPTIONS[result.kind](result.detail, request=request)
        if result.truncated:
            raise httpx.ReadError(
                f"the response body was cut off, or is longer than {self._body_cap_bytes:,} bytes",
                request=request,
            )
        return httpx.Response(
            result.status,
            headers=list(result.headers),
            stream=httpx.ByteStream(result.body),
            request=request,
        )

    async def aclose(self) -> None:
        """Close the transport behind it."""
        await self._transport.aclose()
