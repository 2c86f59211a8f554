"""The request limit of the management API, told in every answer that it counts for."""

from typing import Any

from fastapi import FastAPI, Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.errors import TooManyRequests
from shared.http.schemas import problem_responses
from shared.runtime import Runtime
from shared.store.connection import Row
from shared.store.publishing import authorize
from shared.store.request_limits import Allowance, admit

_HEADERS: dict[str, Any] = {
    "RateLimit-Limit": {
        "description": "Requests per minute of this API key; all of them may be used at once. Absent if there is no "
        "limit.",
        "schema": {"type": "integer"},
    },
    "RateLimit-Remaining": {
        "description": "Requests that would be answered right now.",
        "schema": {"type": "integer"},
    },
    "RateLimit-Reset": {
        "description": "Seconds until the whole limit is free again.",
        "schema": {"type": "integer"},
    },
}
_STATE = "allowance"
UNLIMITED = "publish"
"""The tag of operations that the limit is not for."""


def admitted_key(request: Request, runtime: Runtime, key_hash: bytes) -> Row:
    """The API key (id, tenant_id, name, scopes) of a request that is within the key's limit, in one round trip.

    Raises:
        Unauthorized: the key is not known or was revoked.
        TooManyRequests: it has used up its limit.
        DatabaseUnavailable: see `Database.connection`.
    """
    limit = runtime.settings.api_requests_per_minute
    if not limit:
        return authorize(runtime.database, key_hash, None)
    key, allowance = admit(runtime.database, key_hash, limit)
    request.scope["state"][_STATE] = allowance
    if allowance.retry_after_seconds is not None:
        raise TooManyRequests(allowance.retry_after_seconds)
    return key


def install(app: FastAPI) -> None:
    """Tell the limit in every answer, problems included, and in the OpenAPI document."""
    app.add_middleware(_TellingLimits)
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        for path in document["paths"].values():
            for operation in path.values():
                _describe(operation)
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # the framework's documented way to extend it


def _describe(operation: dict[str, Any]) -> None:
    """Who needs a key has a limit, except for publishing."""
    responses = operation["responses"]
    if "security" not in operation or UNLIMITED in operation.get("tags", ()):
        return
    responses.setdefault("429", problem_responses(429)[429])
    for status, response in responses.items():
        if status != "401":
            response["headers"] = response.get("headers", {}) | _HEADERS


class _TellingLimits:
    """Adds the headers below everything that makes answers, so that no kind of answer goes without."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})

        async def telling(message: Message) -> None:
            allowance: Allowance | None = state.get(_STATE)
            if message["type"] == "http.response.start" and allowance is not None:
                headers = MutableHeaders(scope=message)
                headers["RateLimit-Limit"] = str(allowance.limit)
                headers["RateLimit-Remaining"] = str(allowance.remaining)
                headers["RateLimit-Reset"] = str(allowance.reset_seconds)
            await send(message)

        await self._app(scope, receive, telling)
