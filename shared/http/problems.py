"""RFC 9457 problem documents: every error is one, and none repeats what the client sent."""

import logging
from collections.abc import Mapping, Sequence

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import Match

from shared.errors import (
    Conflict,
    DatabaseUnavailable,
    Forbidden,
    Invalid,
    LeasehookError,
    NotFound,
    SchemaOutdated,
    TooLarge,
    TooManyRequests,
    Unauthorized,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 5

_log = logging.getLogger(__name__)
_IN_THE_LOG = "The operator finds the cause in the log."

_STATUS: Mapping[type[LeasehookError], tuple[int, str]] = {
    Invalid: (422, "The request breaks a rule"),
    TooLarge: (413, "The request is too large"),
    Conflict: (409, "The request contradicts what is stored"),
    NotFound: (404, "There is no such thing"),
    Unauthorized: (401, "An API key is required"),
    Forbidden: (403, "The API key lacks a scope"),
    TooManyRequests: (429, "Too many requests"),
    DatabaseUnavailable: (503, "The database did not answer"),
    SchemaOutdated: (503, "The database is not migrated yet"),
}


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    kind: str = "about:blank",
    headers: Mapping[str, str] | None = None,
    **members: object,
) -> Response:
    """A problem document as a response; `members` are added to the document as they are."""
    document = {"type": kind, "title": title, "status": status, "detail": detail, **members}
    return Response(msgspec.json.encode(document), status, dict(headers or {}), MEDIA_TYPE)


def install(app: FastAPI, routes: Sequence[APIRoute]) -> None:
    """Answer every error of the application with a problem document. `routes` are all that it has."""

    @app.exception_handler(LeasehookError)
    async def _known(_request: Request, error: LeasehookError) -> Response:
        status, title = _STATUS.get(type(error), (500, "Something is misconfigured"))
        members: dict[str, object] = {}
        headers: dict[str, str] = {}
        detail = str(error)
        match error:
            case Invalid():
                members["errors"] = [{"field": error.field, "rule": error.rule}]
            case Unauthorized():
                headers["www-authenticate"] = "Bearer"
            case TooManyRequests():
                headers["retry-after"] = str(error.retry_after_seconds)
            case DatabaseUnavailable():
                headers["retry-after"] = str(RETRY_AFTER_SECONDS)
                _log.error(detail)
                detail = "Nothing is known to be stored: send the same request again, with its idempotency key."
            case _ if status == 500:
                _log.error(detail)
                detail = _IN_THE_LOG
        return problem(status, title, detail, kind=_kind(type(error)), headers=headers, **members)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        return _refusal_of_the_framework(error, _methods_here(routes, request))

    @app.exception_handler(Exception)
    async def _unexpected(_request: Request, _error: Exception) -> Response:
        # The framework raises the error again once this is sent, and Mangum logs it.
        return problem(500, "Something went wrong", _IN_THE_LOG)

    @app.exception_handler(RequestValidationError)
    async def _validation(_request: Request, error: RequestValidationError) -> Response:
        # The framework's own answer repeats the input, which may hold a secret, and may not even be JSON.
        errors = [
            {"field": ".".join(str(part) for part in fault["loc"][1:]), "rule": fault["msg"]}
            for fault in error.errors()
        ]
        return problem(
            422, "The request breaks a rule", "See errors.", kind=_kind(Invalid), errors=errors
        )


def _methods_here(routes: Sequence[APIRoute], request: Request) -> list[str]:
    """What the path may be asked. The framework names the methods of its first route alone."""
    here = (each for each in routes if each.matches(request.scope)[0] is not Match.NONE)
    return sorted(method for route in here for method in route.methods or ())


def _refusal_of_the_framework(error: HTTPException, methods: Sequence[str]) -> Response:
    if error.status_code == 405:
        names = ", ".join(methods)
        title, detail = "The route has other methods", f"It has {names}."
        return problem(405, title, detail, headers={"Allow": names})
    title = {404: "There is no such route"}.get(error.status_code, "Refused")
    return problem(error.status_code, title, str(error.detail), headers=error.headers)


def _kind(error: type[LeasehookError]) -> str:
    """A stable identifier of the kind of problem."""
    words = "".join(
        f"-{letter.lower()}" if letter.isupper() else letter for letter in error.__name__
    )
    return f"urn:leasehook:problem:{words.removeprefix('-')}"
