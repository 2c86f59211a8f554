"""JSON Schemas of what is read from raw bytes and therefore has no model, for OpenAPI."""

from typing import Any

from shared.domain.matching import MAX_EVENT_TYPE_LENGTH
from shared.intake import MAX_BATCH, MAX_CHANNELS, MAX_PRIORITY

EVENT: dict[str, Any] = {
    "type": "object",
    "title": "Event",
    "required": ["type", "payload"],
    "additionalProperties": False,
    "properties": {
        "type": {
            "type": "string",
            "maxLength": MAX_EVENT_TYPE_LENGTH,
            "pattern": r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$",
            "examples": ["order.paid"],
        },
        "payload": {
            "description": "Any JSON value; if its type is registered with a schema, one that fits it. Its text is "
            "stored, signed and delivered to the byte.",
            "examples": [{"order_id": 17}],
        },
        "consumer": {
            "type": ["string", "null"],
            "pattern": "^[A-Za-z0-9_.:-]{1,128}$",
            "description": "Which of your customers it is for: it reaches that consumer's endpoints only. Without it, "
            "endpoints without a consumer.",
        },
        "idempotency_key": {
            "type": ["string", "null"],
            "pattern": r"^[\x21-\x7e]{1,255}$",
            "description": "The same key with the same event answers the first result again; with another event: 409.",
        },
        "deliver_at": {
            "type": ["string", "null"],
            "format": "date-time",
            "description": "Not before this instant; at most a year ahead.",
        },
        "priority": {
            "type": "integer",
            "minimum": -MAX_PRIORITY,
            "maximum": MAX_PRIORITY,
            "default": 0,
            "description": "Of the deliveries that are due at an endpoint, those with a higher priority go first.",
        },
        "channels": {
            "type": ["array", "null"],
            "minItems": 1,
            "maxItems": MAX_CHANNELS,
            "items": {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,128}$"},
            "description": "Endpoints with channels get it only if they share one.",
        },
    },
}

BATCH: dict[str, Any] = {
    "type": "object",
    "title": "Batch of events",
    "required": ["events"],
    "additionalProperties": False,
    "properties": {
        "events": {"type": "array", "minItems": 1, "maxItems": MAX_BATCH, "items": EVENT}
    },
}

PUBLISHED: dict[str, Any] = {
    "type": "object",
    "title": "Published event",
    "required": ["id", "deliveries"],
    "properties": {
        "id": {
            "type": "string",
            "format": "uuid",
            "description": "Also the webhook-id of every request for it.",
        },
        "deliveries": {"type": "integer", "description": "How many endpoints it is on its way to."},
    },
}

PUBLISHED_BATCH: dict[str, Any] = {
    "type": "object",
    "title": "Published events",
    "required": ["events"],
    "properties": {
        "events": {"type": "array", "items": PUBLISHED, "description": "In the request's order."}
    },
}

PROBLEM: dict[str, Any] = {
    "type": "object",
    "title": "Problem (RFC 9457)",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "examples": ["urn:leasehook:problem:invalid"]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "rule"],
                "properties": {"field": {"type": "string"}, "rule": {"type": "string"}},
            },
        },
    },
}

_PROBLEMS = {
    400: "The request could not be read.",
    401: "No API key, or none that is known.",
    403: "The API key lacks the scope.",
    404: "No such thing, or not yours.",
    409: "The request contradicts what is stored, such as an idempotency key that was used for another event.",
    413: "The request or the payload is too large.",
    422: "A field breaks a rule; `errors` names field and rule. Nothing was stored.",
    429: "The API key has used up its requests for now: try again after Retry-After seconds.",
    503: "Not known to be stored: send it again, after Retry-After seconds.",
}

_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds until it is worth trying again.",
        "schema": {"type": "integer"},
    }
}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {
        "WWW-Authenticate": {
            "description": "How to show who you are.",
            "schema": {"type": "string"},
        }
    },
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}


def json_body(schema: dict[str, Any]) -> dict[str, Any]:
    """`openapi_extra` for a route that reads its JSON body itself."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def responses(
    success: int, schema: dict[str, Any], description: str, *problems: int
) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route: its success and the problems it may answer with."""
    answers: dict[int | str, dict[str, Any]] = {
        success: {"description": description, "content": {"application/json": {"schema": schema}}}
    }
    return answers | problem_responses(*problems)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route: the problems it may answer with. The document must have PROBLEM as its schema `Problem`."""
    return {
        status: {
            "description": _PROBLEMS[status],
            "content": {
                "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
            },
            **({"headers": _HEADERS[status]} if status in _HEADERS else {}),
        }
        for status in statuses
    }
