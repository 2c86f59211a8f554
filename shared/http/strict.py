"""Routes whose JSON bodies are JSON: no NaN, no half surrogates, bounded size and depth."""

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

from shared.errors import Invalid
from shared.http.requests import raw_body
from shared.intake import check_text


class _StrictRequest(Request):
    """Reads its body with our limits and our parser instead of the standard library's, which takes more than JSON."""

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await raw_body(self)
        return self._body

    async def json(self) -> Any:  # noqa: ANN401  # any JSON value
        if not hasattr(self, "_json"):
            body = await self.body()
            check_text(body)
            try:
                self._json = msgspec.json.decode(body)
            except msgspec.DecodeError as error:
                raise Invalid("body", f"must be one JSON document (RFC 8259): {error}") from None
        return self._json


class StrictRoute(APIRoute):
    """A route that reads JSON strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See `APIRoute`."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            strict_request = _StrictRequest(request.scope, request.receive)
            if self.body_field is not None and await strict_request.body():
                # Here, and not first inside the framework, which answers for whatever its parser raises.
                await strict_request.json()
            return await handle(strict_request)

        return strict
