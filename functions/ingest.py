"""Ingest: events in over HTTP, answered 202 after their commit."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import msgspec
from fastapi import Depends, FastAPI, Response

from shared.errors import Invalid, TooLarge
from shared.http import problems, schemas
from shared.http.gateway import lambda_handler
from shared.http.requests import api_key_hash, raw_body
from shared.intake import JSON, read_batch, read_event
from shared.runtime import Runtime, process_runtime
from shared.store.publishing import Published, authorize, publish, publish_batch

_T = TypeVar("_T")
_Body = Annotated[bytes, Depends(raw_body)]
_KeyHash = Annotated[bytes, Depends(api_key_hash)]
_REFUSALS = (400, 401, 403, 409, 413, 422, 503)


def create_app(runtime: Runtime) -> FastAPI:
    """The ingest application."""
    app = FastAPI(
        title="Leasehook ingest",
        version="1",
        docs_url=None,
        redoc_url=None,
        # It would redirect to the Host header's word, and without the stage.
        redirect_slashes=False,
    )
    problems.install(app)

    def read(parse: Callable[[bytes, int, datetime], _T], body: bytes, key_hash: bytes) -> _T:
        try:
            return parse(body, runtime.settings.max_payload_bytes, datetime.now(UTC))
        except (Invalid, TooLarge):
            # Someone without a key learns that first, and nothing about the body.
            authorize(runtime.database, key_hash, "publish")
            raise

    @app.post(
        "/v1/events",
        status_code=202,
        summary="Publish an event",
        response_class=Response,
        responses=schemas.responses(
            202, schemas.PUBLISHED, "Committed, with its deliveries.", *_REFUSALS
        ),
        openapi_extra=schemas.json_body(schemas.EVENT),
    )
    def publish_event(body: _Body, key_hash: _KeyHash) -> Response:
        event = read(read_event, body, key_hash)
        published = publish(runtime.database, key_hash, event)
        return _accepted(_result(published), repeated=published.repeated)

    @app.post(
        "/v1/events/batch",
        status_code=202,
        summary="Publish many events in one transaction",
        response_class=Response,
        responses=schemas.responses(
            202,
            schemas.PUBLISHED_BATCH,
            "All of them are committed, with their deliveries.",
            *_REFUSALS,
        ),
        openapi_extra=schemas.json_body(schemas.BATCH),
    )
    def publish_events(body: _Body, key_hash: _KeyHash) -> Response:
        events = read(read_batch, body, key_hash)
        published = publish_batch(runtime.database, key_hash, events)
        return _accepted({"events": [_result(each) for each in published]})

    @app.get("/healthz", summary="Is the process up?", include_in_schema=False)
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", summary="Does the database answer?", include_in_schema=False)
    def readyz() -> dict[str, str]:
        runtime.database.fetch("ping", {})
        return {"status": "ok"}

    return app


def _result(published: Published) -> dict[str, object]:
    return {"id": str(published.event_id), "deliveries": published.delivery_count}


def _accepted(document: dict[str, object], *, repeated: bool = False) -> Response:
    headers = {"idempotent-replayed": "true"} if repeated else None
    return Response(msgspec.json.encode(document), 202, headers, JSON)


handler = lambda_handler(lambda: create_app(process_runtime()))
