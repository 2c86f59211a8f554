"""The management API as its users see it: the real application over a real database, called in-process."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI

from functions.api import create_app
from shared.runtime import Runtime
from shared.store.tenancy import ensure_tenant
from tests.support.world import World


class Client:
    """Calls an ASGI application in-process, from synchronous tests."""

    def __init__(self, app: FastAPI) -> None:
        self._runner = asyncio.Runner()
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://leasehook.test"
        )

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Any request; an exception that no handler of the application answers is raised here."""
        return self._runner.run(self._client.request(method, path, **arguments))

    def close(self) -> None:
        """End the event loop."""
        self._runner.run(self._client.aclose())
        self._runner.close()


@dataclass(frozen=True)
class Api:
    """A client with a tenant's key. `get("/v1/endpoints")`, `post("/v1/endpoints", {...})`, …"""

    client: Client
    key: str

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """Any request; `body` is sent as JSON."""
        headers = {"authorization": f"Bearer {self.key}", **headers}
        content = {} if body is None else {"json": body}
        return self.client.request(method, path, headers=headers, **content)

    def get(self, path: str, **headers: str) -> httpx.Response:
        """GET."""
        return self.call("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """POST."""
        return self.call("POST", path, body, **headers)

    def patch(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """PATCH."""
        return self.call("PATCH", path, body, **headers)

    def delete(self, path: str, **headers: str) -> httpx.Response:
        """DELETE."""
        return self.call("DELETE", path, **headers)

    def pages(self, path: str, limit: int) -> list[list[dict[str, Any]]]:
        """Every page of a list."""
        found, cursor = [], ""
        joint = "&" if "?" in path else "?"
        while True:
            page = self.get(f"{path}{joint}limit={limit}{cursor}").json()
            found.append(page["data"])
            if page["next_cursor"] is None:
                return found
            cursor = f"&cursor={page['next_cursor']}"


@pytest.fixture
def client(world: World, database_url: str) -> Iterator[Client]:
    """The application; an exception of ours that no handler answers fails the test."""
    runtime = Runtime.read(world.environment(database_url))
    client = Client(create_app(runtime))
    yield client
    client.close()
    runtime.database.close()


@pytest.fixture
def api(client: Client, world: World) -> Api:
    """The API for the world's tenant."""
    return Api(client, world.key())


@pytest.fixture
def other_tenant(world: World) -> UUID:
    """A second tenant."""
    return ensure_tenant(world.database, "other")


@pytest.fixture
def other(client: Client, world: World, other_tenant: UUID) -> Api:
    """The API for the second tenant."""
    return Api(client, world.key(tenant_id=other_tenant))
