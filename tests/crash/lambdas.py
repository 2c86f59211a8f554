"""The functions in this process: what comes after a crash, and what lives through one."""

import asyncio
import http.client
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from functions.ingest import create_app
from shared import dispatch
from shared.courier import Courier
from shared.dispatch import Summary, Tools
from shared.http.gateway import lambda_handler
from shared.runtime import Runtime
from shared.sender.transport import Transport


def drain(environment: Mapping[str, str], budget_seconds: float | None = None) -> Summary:
    """One drain in a fresh environment."""
    runtime = Runtime.read(environment)
    settings = runtime.settings

    async def run() -> Summary:
        transport = Transport(settings.targets)
        courier = Courier(transport, runtime.sealer, _now)
        tools = Tools(
            runtime.database, courier, settings, random.random, _now, lambda _attempts: None
        )
        try:
            return await dispatch.drain(tools, budget_seconds or settings.drain_budget_seconds)
        finally:
            await transport.aclose()
            runtime.database.close()

    return asyncio.run(run())


@dataclass(frozen=True)
class Answer:
    """An HTTP answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def document(self) -> dict[str, Any]:
        """The body as JSON."""
        document: dict[str, Any] = json.loads(self.text)
        return document

    @property
    def event_ids(self) -> list[str]:
        """The ids of the events that a publish or a batch has stored."""
        events = self.document.get("events", [self.document])
        return [event["id"] for event in events]


class Ingest:
    """A warm Lambda environment of the ingest function, invoked by API Gateway."""

    def __init__(self, environment: Mapping[str, str], key: str) -> None:
        self._runtime = Runtime.read(environment)
        self._handler = lambda_handler(lambda: create_app(self._runtime))
        self._key = key
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._runtime.database.close()
        self._loop.close()
        asyncio.set_event_loop(None)

    def publish(self, *events: Mapping[str, object]) -> Answer:
        """Publish one event, or several as a batch."""
        path, body = publication(events)
        event = {
            "version": "2.0",
            "rawPath": path,
            "rawQueryString": "",
            "headers": {"authorization": f"Bearer {self._key}", "content-type": "application/json"},
            "requestContext": {
                "stage": "$default",
                "http": {"method": "POST", "path": path, "sourceIp": "127.0.0.1"},
            },
            "body": body,
            "isBase64Encoded": False,
        }
        asyncio.set_event_loop(self._loop)
        answer = self._handler(event, None)
        return Answer(answer["statusCode"], answer["headers"], answer["body"])


def publish_over_http(port: int, key: str, *events: Mapping[str, object]) -> Answer:
    """Publish one event, or several as a batch, to a server on this machine.

    Raises:
        OSError, http.client.HTTPException: there was no answer.
    """
    path, body = publication(events)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", path, body, {"authorization": f"Bearer {key}"})
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read().decode())
    finally:
        connection.close()


def publication(events: Sequence[Mapping[str, object]]) -> tuple[str, str]:
    """Path and body of a request that publishes one event, or several as a batch."""
    if len(events) == 1:
        return "/v1/events", json.dumps(events[0])
    return "/v1/events/batch", json.dumps({"events": events})


def _now() -> datetime:
    return datetime.now(UTC)
