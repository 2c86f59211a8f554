"""Drain: invoked by a schedule, it sends what is due until its time is used."""

import asyncio
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from typing import Any

from shared.dispatch import Tools, drain, make_tools
from shared.runtime import process_runtime
from shared.sender.transport import Transport
from shared.telemetry import attempt_log, emit_metrics

_SHUTDOWN_SECONDS = 2.0
"""Kept free of the invocation for returning, metrics and log."""


def handler(event: Any, context: Any) -> dict[str, Any]:  # noqa: ANN401  # whatever Lambda is invoked with
    """Run one drain and answer what it did.

    Any event starts it but an HTTP request: nobody's URL may run the queue. Several at once are normal and harmless.
    """
    if isinstance(event, dict) and "requestContext" in event:
        return {"refused": "the drain is started by its schedule, not over HTTP"}
    settings = process_runtime().settings
    budget_seconds = settings.drain_budget_seconds
    if context is not None:
        left_seconds = context.get_remaining_time_in_millis() / 1000
        budget_seconds = min(budget_seconds, left_seconds - _SHUTDOWN_SECONDS)
    summary = asdict(_runner().run(drain(_tools(), budget_seconds)))
    emit_metrics(
        settings.metrics_namespace,
        "drain",
        {name: value for name, value in summary.items() if name != "stopped"},
    )
    return summary


@cache
def _runner() -> asyncio.Runner:
    """One event loop for the life of the process: kept connections belong to it."""
    return asyncio.Runner()


@cache
def _tools() -> Tools:
    runtime = process_runtime()
    transport = Transport(runtime.settings.targets, body_cap_bytes=runtime.settings.response_bytes)
    return make_tools(runtime, transport, attempt_log(sys.stderr), _now)


def _now() -> datetime:
    return datetime.now(UTC)
