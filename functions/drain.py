"""Drain: invoked by a schedule, it sends what is due until its time is used."""

import asyncio
import logging
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from shared.dispatch import Tools, drain, make_tools
from shared.function_log import FunctionLog
from shared.invocations import is_http
from shared.runtime import process_runtime
from shared.sender.transport import Transport
from shared.telemetry import attempt_log, emit_metrics

_log = logging.getLogger(__name__)
_function_log = FunctionLog("drain")
_ORDERLY_ENDS = ("idle", "time", "bound")
_SHUTDOWN_SECONDS = 2.0
"""Kept free of the invocation for returning, metrics and log."""


def handler(event: Any, context: Any) -> dict[str, Any]:  # noqa: ANN401  # whatever Lambda is invoked with
    """Run one drain and answer what it did.

    Any event starts it but an HTTP request: nobody's URL may run the queue. Several at once are normal and harmless.
    `{"once": true}` ends it as soon as nothing is due, instead of waiting for what may become due meanwhile.
    """
    if is_http(event):
        return {"refused": "the drain is started by its schedule, not over HTTP"}
    with _function_log.invocation(context):
        return _drain(_tools(), context, once=isinstance(event, dict) and event.get("once") is True)


def _drain(tools: Tools, context: Any, *, once: bool) -> dict[str, Any]:  # noqa: ANN401  # Lambda's, or nothing
    settings = tools.settings
    if once:
        settings = replace(settings, drain_linger_seconds=0.0)
        tools = replace(tools, settings=settings)
    budget_seconds = settings.drain_budget_seconds
    if context is not None:
        left_seconds = context.get_remaining_time_in_millis() / 1000
        budget_seconds = min(budget_seconds, left_seconds - _SHUTDOWN_SECONDS)
    summary = asdict(_runner().run(drain(tools, budget_seconds)))
    emit_metrics(
        settings.metrics_namespace,
        "drain",
        {name: value for name, value in summary.items() if name != "stopped"},
    )
    is_orderly = summary["stopped"] in _ORDERLY_ENDS and not summary["unsettled"]
    _log.log(logging.INFO if is_orderly else logging.ERROR, "drained", extra=summary)
    return summary


@cache
def _runner() -> asyncio.Runner:
    """One event loop for the life of the process: kept connections belong to it."""
    return asyncio.Runner()


@cache
def _tools() -> Tools:
    runtime = process_runtime()
    transport = Transport(runtime.settings.targets, body_cap_bytes=runtime.settings.response_bytes)
    return make_tools(runtime, transport, attempt_log(sys.stderr, _function_log.line), _now)


def _now() -> datetime:
    return datetime.now(UTC)
