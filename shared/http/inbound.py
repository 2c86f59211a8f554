"""`POST /in/{slug}`: the address that a provider sends its webhooks to."""

import logging
import time
from collections import defaultdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse

from shared.errors import TooLarge
from shared.http.access import RuntimeOf
from shared.http.problems import problem
from shared.http.requests import raw_body
from shared.http.schemas import problem_responses
from shared.inbound import Accepted, Challenge, Gateway, Headers, NotAccepted, RefusalCounts

_HEADERS: dict[str, Any] = {
    "Leasehook-Event-Id": {
        "description": "The event it became; absent in the answer to a challenge.",
        "schema": {"type": "string", "format": "uuid"},
    },
    "Leasehook-Verdict": {
        "description": "`duplicate`: it came before, and nothing was done.",
        "schema": {"type": "string", "enum": ["accepted", "duplicate"]},
    },
}


router = APIRouter(tags=["inbound"])

_log = logging.getLogger(__name__)


def _gateway(request: Request, runtime: RuntimeOf) -> Gateway:
    refusals: RefusalCounts = request.app.state.refusals
    return Gateway(runtime.database, runtime.sealer, refusals, time.time)


@router.post(
    "/in/{slug}",
    summary="Receive a provider's webhook",
    response_class=Response,
    responses={
        200: {
            "description": "Committed, with its deliveries; without a body. A challenge is answered as text.",
            "headers": _HEADERS,
        },
        **problem_responses(413, 503),
        401: {
            **problem_responses(401)[401],
            "description": "No such source, a disabled one, or a signature that does not match: not told apart.",
        },
    },
    openapi_extra={"requestBody": {"content": {"*/*": {"schema": {}}}}},
)
def receive_webhook(
    request: Request,
    runtime: RuntimeOf,
    gateway: Annotated[Gateway, Depends(_gateway)],
    slug: str,
    body: Annotated[bytes, Depends(raw_body)],
) -> Response:
    """Any body that the source's provider has signed; it is passed on as it came, to the byte."""
    most = runtime.settings.max_payload_bytes
    if len(body) > most:
        raise TooLarge(f"a webhook may have {most} bytes")
    match gateway.receive(slug, _headers(request), body):
        case Accepted() as accepted:
            _log.info(
                "received",
                extra={
                    "event_id": accepted.event_id,
                    "tenant_id": accepted.tenant_id,
                    "deliveries": accepted.delivery_count,
                    "duplicate": accepted.duplicate,
                },
            )
            # Without a body: some providers show it to their users.
            verdict = "duplicate" if accepted.duplicate else "accepted"
            event_id = str(accepted.event_id)
            return Response(headers={"leasehook-event-id": event_id, "leasehook-verdict": verdict})
        case Challenge(text=text):
            return PlainTextResponse(text, headers={"x-content-type-options": "nosniff"})
        case NotAccepted():
            return problem(
                401,
                "The webhook is not accepted",
                "There is no source at this address, or the signature does not match.",
                kind="urn:leasehook:problem:not-accepted",
                headers={"www-authenticate": "Signature"},
            )


def _headers(request: Request) -> Headers:
    headers: dict[str, list[bytes]] = defaultdict(list)
    for name, value in request.headers.raw:
        headers[name.decode("latin-1").lower()].append(value)
    return dict(headers)
