"""Our functions in processes of their own, to be killed.

    with Worker("drain", environment) as worker:
        …
        worker.kill()

This file is both sides: `Worker` starts it as a script, and the script runs one of the tasks at its end.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.domain.outcome import Outcome
    from shared.domain.targets import Target

EXIT_OF_THE_POISONED = 137


class Worker:
    """A running child process; leaving the block kills it if it still runs."""

    def __init__(self, task: str, environment: Mapping[str, str], *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, task, *arguments],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone. It must not have ended by itself before."""
        assert self.kill_if_running(), "the worker has ended before it was killed"

    def kill_if_running(self) -> bool:
        """SIGKILL; whether it was still running. It must not have failed before."""
        self._process.send_signal(signal.SIGKILL)
        ended = self._process.wait(10)
        assert ended in (0, -signal.SIGKILL)
        return ended != 0

    def line(self) -> str:
        """The next line of its output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def exit_code(self, timeout_seconds: float = 30.0) -> int:
        """How it ended."""
        return self._process.wait(timeout_seconds)

    def answer(self, timeout_seconds: float = 30.0) -> dict[str, Any]:
        """What the function returned; the process must have ended well."""
        output, _ = self._process.communicate(timeout=timeout_seconds)
        assert self._process.returncode == 0
        answer: dict[str, Any] = json.loads(output.splitlines()[-1])
        return answer


class LambdaContext:
    """An invocation that has so many seconds left."""

    def __init__(self, left_seconds: float) -> None:
        self._ends_at = time.monotonic() + left_seconds

    def get_remaining_time_in_millis(self) -> int:
        """What Lambda's own context says, until it kills the process."""
        return max(round((self._ends_at - time.monotonic()) * 1000), 0)


def drain(left_seconds: str = "900") -> dict[str, Any]:
    """One invocation of the drain, with so many seconds left; the answer says how many were left at its end."""
    from functions.drain import handler

    context = LambdaContext(float(left_seconds))
    return {**handler({}, context), "left_seconds": context.get_remaining_time_in_millis() / 1000}


def poisoned_drain(webhook_id: str) -> dict[str, Any]:
    """A drain that dies the moment it sends a certain event, as one whose payload exhausts the memory does."""
    import asyncio
    import random
    from dataclasses import asdict
    from datetime import UTC, datetime

    from shared.courier import Courier
    from shared.dispatch import Tools, drain
    from shared.runtime import process_runtime
    from shared.sender.transport import Transport

    def now() -> datetime:
        return datetime.now(UTC)

    class Poisoned:
        def __init__(self, transport: Transport) -> None:
            self._transport = transport

        async def post(
            self,
            target: "Target",
            headers: "Sequence[tuple[bytes, bytes]]",
            body: bytes,
            *,
            timeout_seconds: float,
        ) -> "Outcome":
            if (b"webhook-id", webhook_id.encode()) in headers:
                os._exit(EXIT_OF_THE_POISONED)
            return await self._transport.post(
                target, headers, body, timeout_seconds=timeout_seconds
            )

    async def run() -> dict[str, Any]:
        runtime = process_runtime()
        transport = Poisoned(Transport(runtime.settings.targets))
        courier = Courier(transport, runtime.sealer, now)
        tools = Tools(
            runtime.database, courier, runtime.settings, random.random, now, lambda _attempts: None
        )
        return asdict(await drain(tools, runtime.settings.drain_budget_seconds))

    return asyncio.run(run())


def maintain(*parts: str) -> dict[str, Any]:
    """One invocation of maintenance, or of some parts of it."""
    from functions.maintain import handler

    return handler({"only": list(parts)} if parts else {}, None)


def migrate() -> dict[str, Any]:
    """One invocation of the migration."""
    from functions.migrate import handler

    return handler({}, None)


def serve() -> dict[str, Any]:
    """The ingest application over HTTP, until killed; its first line of output is its port."""
    import socket

    import uvicorn

    from functions.ingest import create_app
    from shared.runtime import process_runtime

    listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(create_app(process_runtime()), log_level="warning")
    uvicorn.Server(config).run(sockets=[listener])
    return {}


_TASKS: Mapping[str, Callable[..., dict[str, Any]]] = {
    task.__name__: task for task in (drain, poisoned_drain, maintain, migrate, serve)
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(_TASKS[sys.argv[1]](*sys.argv[2:])) + "\n")
