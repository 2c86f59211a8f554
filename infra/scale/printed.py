"""How long the lines are that the functions print, by printing some."""

import io
from contextlib import redirect_stdout
from dataclasses import fields
from functools import cache
from uuid import UUID

from shared.dispatch import Attempted, Summary
from shared.maintenance import QueueHealth
from shared.telemetry import attempt_log, emit_metrics

LAMBDA_KEYS_BYTES = 150
"""What Powertools puts into every line on Lambda only: service, cold start, the request's and the trace's id."""
_ID = UUID("01990c2e-5c4d-7f1a-9d6e-3b1f0a2c4d5e")


@cache
def attempt_line_bytes() -> int:
    """Of an attempt that succeeded."""
    lines = io.StringIO()
    attempt_log(lines)([Attempted(_ID, _ID, _ID, _ID, 1, "succeed", 200, None, 187)])
    return len(lines.getvalue().rstrip("\n")) + LAMBDA_KEYS_BYTES


@cache
def metrics_line_bytes() -> int:
    """Of a drain's metrics."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        emit_metrics("leasehook/production", "drain", dict.fromkeys(_summary_names(), 0.0))
    return len(printed.getvalue().rstrip("\n"))


def metric_names() -> int:
    """How many custom metrics there are: a drain's summary without its reason, and the queue's health."""
    return len(_summary_names()) + len(fields(QueueHealth))


def _summary_names() -> list[str]:
    return [field.name for field in fields(Summary) if field.name != "stopped"]
