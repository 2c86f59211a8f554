"""The functions as Lambda runs them: each environment with modules, threads and event loops of its own."""

import asyncio
import contextlib
import importlib.util
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from types import ModuleType
from typing import Any

import pytest

from shared.runtime import process_runtime
from tests.support import lambda_events
from tests.support.lambda_events import Event, FakeContext
from tests.support.world import World

PROBLEM = "application/problem+json"


@dataclass(frozen=True)
class Answer:
    """An HTTP answer as a Lambda function returns it."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The document in it; what is no strict JSON raises."""
        return json.loads(self.text, parse_constant=_refuse)

    @property
    def fields(self) -> list[str]:
        """The fields that a problem document complains about."""
        assert self.headers["content-type"] == PROBLEM, self
        return [error["field"] for error in self.json["errors"]]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def read_answer(result: Mapping[str, Any]) -> Answer:
    """Whatever the event's shape, the answer's headers by lower-case name."""
    headers = result.get("headers") or {
        name: values[-1] for name, values in result["multiValueHeaders"].items()
    }
    return Answer(
        result["statusCode"],
        {name.lower(): value for name, value in headers.items()},
        result["body"],
    )


class Environment:
    """One Lambda environment: a handler that was loaded by a cold start, and serves one invocation at a time.

    Its thread stands for the process that it is on Lambda: event loops belong to it.
    """

    def __init__(self, load: Callable[[], ModuleType]) -> None:
        self._thread = ThreadPoolExecutor(1)
        self.module = self._thread.submit(load).result()

    @classmethod
    def of(cls, function: str) -> "Environment":
        """A cold start of `functions.<function>`: its module is loaded afresh, with empty caches."""
        return cls(lambda: _load(f"functions.{function}"))

    def start(self, event: Any = None, context: Any = None) -> "Future[Any]":
        """Begin an invocation."""
        return self._thread.submit(self.module.handler, event, context)

    def invoke(self, event: Any = None, context: Any = None) -> Any:
        """One invocation and its result."""
        return self.start(event, context).result(60)

    def close(self) -> None:
        """Let go of connections and loops, which Lambda does by killing the process."""
        self._thread.submit(self._close).result(60)
        self._thread.shutdown()

    def _close(self) -> None:
        if hasattr(self.module, "_tools") and self.module._tools.cache_info().currsize:
            transport = self.module._tools().courier._transport
            self.module._runner().run(transport.aclose())
            self.module._runner().close()
        with contextlib.suppress(RuntimeError):  # this thread has no loop
            asyncio.get_event_loop_policy().get_event_loop().close()


def _load(name: str) -> ModuleType:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Lambdas:
    """All functions, deployed against one test's database with loopback open to deliveries."""

    def __init__(self, world: World, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._world = world
        self._database_url = database_url
        self._monkeypatch = monkeypatch
        self._environments: list[Environment] = []
        self._warm: dict[str, Environment] = {}
        self._key: str | None = None
        self.deploy()

    def deploy(self, **environment: str) -> None:
        """Set environment variables; every function starts cold again.

        The times are those of tests: a drain ends as soon as nothing is due.
        """
        self._forget_runtime()
        defaults = {
            "LEASEHOOK_DRAIN_POLL_SECONDS": "0.02",
            "LEASEHOOK_TIMEOUT_SECONDS": "10",
        }
        for name, value in self._world.environment(
            self._database_url, **(defaults | environment)
        ).items():
            self._monkeypatch.setenv(name, value)
        self._warm.clear()
        process_runtime()

    def cold(self, function: str) -> Environment:
        """A new environment of a function."""
        environment = Environment.of(function)
        self._environments.append(environment)
        return environment

    def warm(self, function: str) -> Environment:
        """The environment of a function that all calls share."""
        if function not in self._warm:
            self._warm[function] = self.cold(function)
        return self._warm[function]

    def serve(self, handler: Callable[[Any, Any], Any]) -> Environment:
        """An environment of a handler made by the test."""
        module = ModuleType("made_by_the_test")
        module.handler = handler  # type: ignore[attr-defined]
        environment = Environment(lambda: module)
        self._environments.append(environment)
        return environment

    @property
    def key(self) -> str:
        """An API key with every scope."""
        if self._key is None:
            self._key = self._world.key()
        return self._key

    def event(self, body: object, *, path: str = "/v1/events", key: str | None = None) -> Event:
        """A publish request. Bytes are sent as they are, anything else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {key or self.key}"}
        return lambda_events.http_api("POST", path, data, headers, encoded=True)

    def publish(self, body: object, *, path: str = "/v1/events", key: str | None = None) -> Answer:
        """Send a publish request through the warm ingest function."""
        return read_answer(
            self.warm("ingest").invoke(
                self.event(body, path=path, key=key), FakeContext.lasting(30)
            )
        )

    def drain(self, lasting_seconds: float = 60.0) -> dict[str, Any]:
        """One scheduled drain in the warm environment."""
        result: dict[str, Any] = self.warm("drain").invoke(
            lambda_events.SCHEDULE, FakeContext.lasting(lasting_seconds)
        )
        return result

    def drain_at(self, wall_clock: datetime) -> dict[str, Any]:
        """One drain in an environment whose wall clock shows that instant."""
        environment = self.cold("drain")
        environment.module._now = lambda: wall_clock  # type: ignore[attr-defined]
        result: dict[str, Any] = environment.invoke(
            lambda_events.SCHEDULE, FakeContext.lasting(60.0)
        )
        return result

    def drain_together(
        self, count: int, lasting_seconds: float = 60.0
    ) -> "list[Future[dict[str, Any]]]":
        """`count` drains in environments of their own, begun at the same moment."""
        return [
            self.cold("drain").start(lambda_events.SCHEDULE, FakeContext.lasting(lasting_seconds))
            for _ in range(count)
        ]

    def maintain(self, event: Any = None, lasting_seconds: float = 60.0) -> dict[str, Any]:
        """One scheduled run of maintenance."""
        result: dict[str, Any] = self.warm("maintain").invoke(
            event or lambda_events.SCHEDULE, FakeContext.lasting(lasting_seconds)
        )
        return result

    def close(self) -> None:
        """Close every environment and the connections they shared."""
        while self._environments:
            self._environments.pop().close()
        self._forget_runtime()

    def _forget_runtime(self) -> None:
        if process_runtime.cache_info().currsize:
            runtime = process_runtime()
            if "database" in vars(runtime):
                runtime.database.close()
        process_runtime.cache_clear()


def in_step(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run `work(0)` … `work(count - 1)` in threads that begin together; returns their results."""
    barrier = threading.Barrier(count)

    def run(index: int) -> Any:
        barrier.wait()
        return work(index)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def wait_until_somebody_waits_for_a_lock(world: World) -> None:
    """Until a session in the world's database waits for a lock."""
    deadline = time.monotonic() + 10
    waiting = """
        select 1
        from pg_stat_activity
        where wait_event_type = 'Lock' and datname = current_database()
    """
    while not world.sql(waiting):
        assert time.monotonic() < deadline
        time.sleep(0.005)
