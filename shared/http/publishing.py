"""The routes that publish. They read their bodies as bytes, because the payload's bytes are kept."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from shared.enforcement import KnownSchemas, publish, publish_batch
from shared.errors import Invalid, TooLarge
from shared.http import schemas
from shared.http.access import RuntimeOf
from shared.http.requests import api_key_hash, raw_body
from shared.intake import JSON, read_batch, read_event
from shared.runtime import Runtime
from shared.store.publishing import Published, authorize

router = APIRouter(tags=["publish"])

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_Body = Annotated[bytes, Depends(raw_body)]
_KeyHash = Annotated[bytes, Depends(api_key_hash)]
_REFUSALS = (400, 401, 403, 409, 413, 422, 503)


def _known_schemas(request: Request) -> KnownSchemas:
    known: KnownSchemas = request.app.state.known_schemas
    return known


_Known = Annotated[KnownSchemas, Depends(_known_schemas)]


@router.post(
    "/v1/events",
    status_code=202,
    summary="Publish an event",
    response_class=Response,
    responses=schemas.responses(
        202, schemas.PUBLISHED, "Committed, with its deliveries.", *_REFUSALS
    ),
    openapi_extra=schemas.json_body(schemas.EVENT),
)
def publish_event(runtime: RuntimeOf, known: _Known, body: _Body, key_hash: _KeyHash) -> Response:
    """Answers after the commit."""
    event = _read(runtime, read_event, body, key_hash)
    published = publish(runtime.database, known, key_hash, event)
    _log.info("published", extra={"event_id": published.event_id, **_told([published])})
    return _accepted(_result(published), repeated=published.repeated)


@router.post(
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
def publish_events(runtime: RuntimeOf, known: _Known, body: _Body, key_hash: _KeyHash) -> Response:
    """All of them or none; the answer has their order."""
    events = _read(runtime, read_batch, body, key_hash)
    published = publish_batch(runtime.database, known, key_hash, events)
    # One line, whose cost would otherwise be that of a thousand.
    event_ids = [each.event_id for each in published]
    _log.info("published", extra={"event_ids": event_ids, **_told(published)})
    return _accepted({"events": [_result(each) for each in published]})


def _read(
    runtime: Runtime, parse: Callable[[bytes, int, datetime], _T], body: bytes, key_hash: bytes
) -> _T:
    try:
        return parse(body, runtime.settings.max_payload_bytes, datetime.now(UTC))
    except (Invalid, TooLarge):
        # Someone without a key learns that first, and nothing about the body.
        authorize(runtime.database, key_hash, "publish")
        raise


def _result(published: Published) -> dict[str, object]:
    return {"id": str(published.event_id), "deliveries": published.delivery_count}


def _told(published: Sequence[Published]) -> dict[str, object]:
    """What a log line says beside the events' ids, by which the attempts are found; nothing of what the events say."""
    return {
        "tenant_id": published[0].tenant_id,
        "deliveries": sum(each.delivery_count for each in published),
        "repeated": sum(each.repeated for each in published),
    }


def _accepted(document: dict[str, object], *, repeated: bool = False) -> Response:
    headers = {"idempotent-replayed": "true"} if repeated else None
    return Response(msgspec.json.encode(document), 202, headers, JSON)
