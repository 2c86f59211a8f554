"""The way in from AWS: API Gateway (HTTP and REST), ALB and function URLs, through Mangum."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from fastapi import FastAPI
from mangum import Mangum
from mangum.adapter import DEFAULT_TEXT_MIME_TYPES

from shared.function_log import FunctionLog
from shared.telemetry import emit_metrics

LambdaEvent = dict[str, Any]
LambdaResponse = dict[str, Any]
LambdaHandler = Callable[[Any, Any], LambdaResponse]

_PROBLEM = {"content-type": "application/problem+json"}
_MAX_CORRELATION_ID = 256
# Everything else goes back as base64, which a REST API without binary media types does not decode.
_TEXT = [*DEFAULT_TEXT_MIME_TYPES, "application/problem+json"]


def lambda_handler(make_app: Callable[[], FastAPI]) -> LambdaHandler:
    """A Lambda handler that serves an application, which is made at the first invocation.

    Events that are no HTTP requests (a warm-up ping, a schedule pointed at the wrong function) are answered instead
    of raised, so that they set off no error alarm.
    """
    cached: list[Mangum] = []

    def handler(event: Any, context: Any) -> LambdaResponse:  # noqa: ANN401  # whatever Lambda is invoked with
        if not _is_http(event):
            return {"ignored": "not an HTTP request"}
        if not cached:
            cached.append(Mangum(make_app(), lifespan="off", text_mime_types=_TEXT))
        if not _body_is_decodable(event):
            return _refusal(400, "The body cannot be read", "It is marked as base64 and is not.")
        return cached[0](_without_stage(event), context)

    return handler


def observed(service: str, handler: LambdaHandler) -> LambdaHandler:
    """A handler whose lines carry the request's correlation id, and whose 5xx answers are counted as `ServerErrors`.

    Lambda counts neither those answers nor what else the application answers as errors of the function.
    """
    log = FunctionLog(service)

    def observed_handler(event: Any, context: Any) -> LambdaResponse:  # noqa: ANN401  # whatever Lambda is invoked with
        with log.invocation(context, correlation_id(event)):
            try:
                answer = handler(event, context)
            except Exception:
                emit_metrics(None, service, {"server_errors": 1})
                raise
            if answer.get("statusCode", 0) >= 500:
                emit_metrics(None, service, {"server_errors": 1})
            return answer

    return observed_handler


def correlation_id(event: object) -> str | None:
    """The id under which a request is known to what carried it; None for whatever is no request.

    API Gateway (HTTP and REST) and function URLs give each request one, which is in the gateway's access log, too. A load
    balancer only has the trace's, part of which its client may choose. The places are those of
    `aws_lambda_powertools.logging.correlation_paths`.
    """
    if not _is_http(event):
        return None
    found = event["requestContext"].get("requestId")
    if found is None and "elb" in event["requestContext"]:
        single, multiple = event.get("headers"), event.get("multiValueHeaders")
        if isinstance(single, Mapping):
            found = single.get("x-amzn-trace-id")
        elif isinstance(multiple, Mapping):
            found = next(iter(multiple.get("x-amzn-trace-id") or ()), None)
    return found[:_MAX_CORRELATION_ID] if isinstance(found, str) and found else None


def _is_http(event: object) -> TypeGuard[LambdaEvent]:
    """The shapes that Mangum tells apart: load balancer, REST API, HTTP API and function URL."""
    if not isinstance(event, Mapping):
        return False
    request_context = event.get("requestContext")
    if not isinstance(request_context, Mapping):
        return False
    if "httpMethod" in event:
        return "elb" in request_context or "resource" in event
    return event.get("version") == "2.0" and isinstance(request_context.get("http"), Mapping)


def _body_is_decodable(event: LambdaEvent) -> bool:
    if not event.get("isBase64Encoded") or not event.get("body"):
        return True
    try:
        base64.b64decode(event["body"], validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _without_stage(event: LambdaEvent) -> LambdaEvent:
    """An HTTP API with a named stage puts it in front of the path; routes do not know it.

    Only a whole first segment is the stage: `/prod` of `/prod/v1/events`, never of `/production`.
    """
    if event.get("version") != "2.0":
        return event
    stage = event["requestContext"].get("stage")
    path = event.get("rawPath", "")
    if (
        not stage
        or stage == "$default"
        or not (path == f"/{stage}" or path.startswith(f"/{stage}/"))
    ):
        return event
    shortened = path.removeprefix(f"/{stage}") or "/"
    context = {
        **event["requestContext"],
        "http": {**event["requestContext"]["http"], "path": shortened},
    }
    return {**event, "rawPath": shortened, "requestContext": context}


def _refusal(status: int, title: str, detail: str) -> LambdaResponse:
    document = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return {
        "statusCode": status,
        "headers": _PROBLEM,
        "body": json.dumps(document),
        "isBase64Encoded": False,
    }
