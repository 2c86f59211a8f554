"""What the functions say about themselves: a line per attempt, and metrics in CloudWatch's embedded format."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TextIO

import msgspec

from shared.dispatch import Attempted, AttemptLog

_LEVELS = {"succeed": "INFO", "retry": "WARNING", "bury": "ERROR"}


def attempt_log(stream: TextIO) -> AttemptLog:
    """Writes one JSON line per attempt to `stream`, a batch at a time."""

    def write(attempts: Sequence[Attempted]) -> None:
        lines = [
            msgspec.json.encode({"level": _LEVELS[each.verb], "message": "attempt", **asdict(each)})
            for each in attempts
        ]
        if lines:
            stream.write((b"\n".join(lines) + b"\n").decode())
            stream.flush()

    return write


def emit_metrics(namespace: str, service: str, values: Mapping[str, float]) -> None:
    """Print metrics in the embedded metric format, from which CloudWatch Logs makes metrics.

    Names that end in `_seconds` or `_ms` have that unit, all others are counts. The only dimension is the service, so
    their number does not grow with tenants or endpoints.
    """
    if not namespace:
        return
    # Imported when it is needed: a drain sends its first requests before this.
    from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit  # noqa: PLC0415

    metrics = EphemeralMetrics(namespace=namespace, service=service)
    for name, value in values.items():
        unit = MetricUnit.Count
        if name.endswith("_seconds"):
            unit = MetricUnit.Seconds
        elif name.endswith("_ms"):
            unit = MetricUnit.Milliseconds
        metrics.add_metric(name=_camel(name), unit=unit, value=value)
    metrics.flush_metrics()


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
