"""Maintain: invoked by a schedule, it prunes, disables what has failed for days, and measures the queue."""

import time
from dataclasses import asdict
from typing import Any

from shared.maintenance import maintain, queue_health
from shared.runtime import process_runtime
from shared.telemetry import emit_metrics

_SHUTDOWN_SECONDS = 5.0


def handler(event: Any, context: Any) -> dict[str, Any]:  # noqa: ANN401  # whatever Lambda is invoked with
    """Run maintenance and answer what it did and how the queue is.

    With `{"only": "health"}` it only measures, which is cheap enough for every minute.
    """
    runtime = process_runtime()
    settings = runtime.settings
    health = queue_health(runtime.database)
    emit_metrics(settings.metrics_namespace, "queue", health.as_metrics())
    answer: dict[str, Any] = {"health": asdict(health)}
    if isinstance(event, dict) and event.get("only") == "health":
        return answer
    budget_seconds = settings.maintain_budget_seconds
    if context is not None:
        left_seconds = context.get_remaining_time_in_millis() / 1000
        budget_seconds = min(budget_seconds, left_seconds - _SHUTDOWN_SECONDS)
    stop_at = time.monotonic() + budget_seconds
    upkeep = maintain(runtime.database, settings, lambda: time.monotonic() >= stop_at)
    answer["upkeep"] = asdict(upkeep)
    return answer
