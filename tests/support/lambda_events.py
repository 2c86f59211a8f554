"""Events as AWS hands them to a Lambda function, and the context that comes with them."""

import base64
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

Event = dict[str, Any]

SCHEDULE: Event = {
    "version": "0",
    "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa",
    "detail-type": "Scheduled Event",
    "source": "aws.events",
    "account": "123456789012",
    "time": "2026-01-01T00:00:00Z",
    "region": "eu-central-1",
    "resources": ["arn:aws:events:eu-central-1:123456789012:rule/drain"],
    "detail": {},
}


def http_api(
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    *,
    encoded: bool = False,
    stage: str = "$default",
) -> Event:
    """API Gateway's HTTP API, payload format 2.0. A named stage stands in front of the path.

    `encoded` sends the body as base64, which the gateway decides by the content type.
    """
    path, _, query = path.partition("?")
    full_path = path if stage == "$default" else f"/{stage}{path}"
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": full_path,
        "rawQueryString": query,
        "headers": {"host": "a1b2c3.execute-api.example", **(headers or {})},
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "a1b2c3",
            "stage": stage,
            "http": {
                "method": method,
                "path": full_path,
                "protocol": "HTTP/1.1",
                "sourceIp": "198.51.100.7",
                "userAgent": "test",
            },
        },
        **_body(body, encoded=encoded),
    }


def function_url(
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    *,
    encoded: bool = False,
) -> Event:
    """A function URL: the HTTP API's form without a gateway."""
    event = http_api(method, path, body, headers, encoded=encoded)
    event["requestContext"]["domainName"] = "a1b2c3.lambda-url.eu-central-1.on.aws"
    event["requestContext"]["domainPrefix"] = "a1b2c3"
    return event


def rest_api(
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    *,
    encoded: bool = False,
    stage: str = "prod",
) -> Event:
    """API Gateway's REST API, payload format 1.0: the stage stands in the request context's path only."""
    path, _, query = path.partition("?")
    pairs = parse_qsl(query)
    headers = {"Host": "a1b2c3.execute-api.example", **(headers or {})}
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": method,
        "headers": headers,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": dict(pairs) or None,
        "multiValueQueryStringParameters": {name: [value] for name, value in pairs} or None,
        "pathParameters": {"proxy": path.removeprefix("/")},
        "stageVariables": None,
        "requestContext": {
            "resourcePath": "/{proxy+}",
            "httpMethod": method,
            "path": f"/{stage}{path}",
            "stage": stage,
            "identity": {"sourceIp": "198.51.100.7"},
        },
        **_body(body, encoded=encoded),
    }


def load_balancer(
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    *,
    encoded: bool = False,
    multi_value: bool = False,
) -> Event:
    """An Application Load Balancer, which passes the query as it came: not decoded."""
    path, _, query = path.partition("?")
    pairs = [
        (name, value)
        for name, _, value in (pair.partition("=") for pair in query.split("&") if pair)
    ]
    sent = {
        "host": "lb.example",
        "x-forwarded-for": "198.51.100.7",
        "x-forwarded-proto": "https",
        **(headers or {}),
    }
    event: Event = {
        "requestContext": {
            "elb": {"targetGroupArn": "arn:aws:elasticloadbalancing:eu-central-1:1:targetgroup/a/b"}
        },
        "httpMethod": method,
        "path": path,
        **_body(body, encoded=encoded),
        # A load balancer never leaves the body out.
        "body": _body(body or b"", encoded=encoded)["body"],
    }
    if multi_value:
        event["multiValueHeaders"] = {name: [value] for name, value in sent.items()}
        event["multiValueQueryStringParameters"] = {name: [value] for name, value in pairs}
    else:
        event["headers"] = sent
        event["queryStringParameters"] = dict(pairs)
    return event


def multi_value_load_balancer(
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    *,
    encoded: bool = False,
) -> Event:
    """A load balancer whose target group has multi-value headers switched on."""
    return load_balancer(method, path, body, headers, encoded=encoded, multi_value=True)


def _body(body: bytes | None, *, encoded: bool) -> Event:
    if body is None:
        return {"isBase64Encoded": False}
    text = base64.b64encode(body).decode() if encoded else body.decode()
    return {"body": text, "isBase64Encoded": encoded}


@dataclass(frozen=True)
class FakeContext:
    """The only thing the functions ask Lambda for: how long the invocation may still take."""

    ends_at: float

    @classmethod
    def lasting(cls, seconds: float) -> "FakeContext":
        """The context of an invocation that begins now."""
        return cls(time.monotonic() + seconds)

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda would kill the environment."""
        return round((self.ends_at - time.monotonic()) * 1000)
