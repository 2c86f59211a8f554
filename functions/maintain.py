"""Maintain: invoked by schedules, it measures the queue, steps bulk replays, prunes, and disables what has failed for days."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from shared import replay
from shared.function_log import FunctionLog
from shared.invocations import is_http
from shared.maintenance import maintain, queue_health
from shared.runtime import process_runtime
from shared.telemetry import emit_metrics

_log = logging.getLogger(__name__)
_function_log = FunctionLog("maintain")
_SHUTDOWN_SECONDS = 5.0
_REPLAY_SECONDS = 40.0
"""Less than the minute after which the next run goes on."""
_PARTS = ("health", "replays", "upkeep")


def handler(event: Any, context: Any) -> dict[str, Any]:  # noqa: ANN401  # whatever Lambda is invoked with
    """Run maintenance and answer what it did and how the queue is.

    `{"only": ["health", "replays"]}` leaves the upkeep out: that is cheap enough for every minute. An HTTP request is
    refused: nobody's URL may start it.
    """
    if is_http(event):
        return {"refused": "maintenance is started by its schedules, not over HTTP"}
    with _function_log.invocation(context):
        answer = _run(_parts(event), context)
        _log.info("maintained", extra=answer)
        return answer


def _run(parts: tuple[str, ...], context: Any) -> dict[str, Any]:  # noqa: ANN401  # Lambda's, or nothing
    runtime = process_runtime()
    settings = runtime.settings
    budget_seconds = settings.maintain_budget_seconds
    if context is not None:
        left_seconds = context.get_remaining_time_in_millis() / 1000
        budget_seconds = min(budget_seconds, left_seconds - _SHUTDOWN_SECONDS)
    answer: dict[str, Any] = {}
    if "health" in parts:
        health = queue_health(runtime.database)
        emit_metrics(settings.metrics_namespace, "queue", health.as_metrics())
        answer["health"] = asdict(health)
    out_of_time = _timer(budget_seconds)
    if "replays" in parts:
        progress = replay.work(runtime.database, _timer(min(budget_seconds, _REPLAY_SECONDS)))
        answer["replays"] = asdict(progress)
    if "upkeep" in parts:
        answer["upkeep"] = asdict(maintain(runtime.database, settings, out_of_time))
    return answer


def _parts(event: object) -> tuple[str, ...]:
    only = event.get("only") if isinstance(event, dict) else None
    if not isinstance(only, str | list):
        return _PARTS
    return tuple(part for part in _PARTS if part in only)


def _timer(seconds: float) -> Callable[[], bool]:
    stop_at = time.monotonic() + seconds
    return lambda: time.monotonic() >= stop_at
