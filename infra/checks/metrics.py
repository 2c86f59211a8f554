"""Whether alarms and dashboards read what somebody publishes."""

import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any
from uuid import UUID

from infra.checks.schedules import period_seconds, schedules_of
from infra.stack import Stack, text_of
from shared.dispatch import Attempted, Summary
from shared.maintenance import QueueHealth
from shared.telemetry import attempt_log, emit_metrics

AWS_METRIC_SECONDS = 60
"""How often AWS publishes the metrics below."""

AWS_METRICS = {
    **{("AWS/ApiGateway", name): {"ApiId"} for name in ("Count", "Latency", "4xx", "5xx")},
    **{
        ("AWS/Lambda", name): {"FunctionName"}
        for name in ("ConcurrentExecutions", "Duration", "Errors", "Invocations", "Throttles")
    },
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible"): {"QueueName"},
}
"""The dimensions under which AWS publishes the metrics that alarms and the dashboard use."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that an alarm or a dashboard reads; its dimensions by name."""

    namespace: str
    name: str
    dimensions: Mapping[str, str]
    period_seconds: int


@cache
def emitted_metrics() -> dict[str, set[str]]:
    """Names of the metrics that the functions print, by the value of their one dimension, `service`."""
    summary = {name: value for name, value in asdict(Summary()).items() if name != "stopped"}
    health = QueueHealth(*(0 for _ in fields(QueueHealth))).as_metrics()
    server_errors = {"server_errors": 1}
    return {
        "drain": _printed("drain", summary),
        "queue": _printed("queue", health),
        "ingest": _printed("ingest", server_errors),
        "api": _printed("api", server_errors),
    }


def _printed(service: str, values: Mapping[str, float]) -> set[str]:
    with redirect_stdout(io.StringIO()) as output:
        emit_metrics("check", service, values)
    return {
        metric["Name"]
        for line in output.getvalue().splitlines()
        for directive in json.loads(line)["_aws"]["CloudWatchMetrics"]
        for metric in directive["Metrics"]
    }


def _alarm_metrics(alarm: Mapping[str, Any]) -> Iterator[Metric]:
    single = [{"Metric": alarm, "Period": alarm.get("Period")}] if "MetricName" in alarm else []
    queried = [query["MetricStat"] for query in alarm.get("Metrics", []) if "MetricStat" in query]
    for each in [*single, *queried]:
        metric = each["Metric"]
        yield Metric(
            namespace=text_of(metric["Namespace"]),
            name=metric["MetricName"],
            dimensions={
                dimension["Name"]: text_of(dimension["Value"]) for dimension in metric["Dimensions"]
            },
            period_seconds=int(each["Period"]),
        )


def _is_published(stack: Stack, metric: Metric) -> bool:
    if metric.namespace.startswith("AWS/"):
        return AWS_METRICS.get((metric.namespace, metric.name)) == set(metric.dimensions)
    namespaces = {
        stack.environment(logical_id).get("POWERTOOLS_METRICS_NAMESPACE")
        for logical_id, _ in stack.functions()
    }
    return (
        metric.namespace in namespaces
        and metric.dimensions.keys() == {"service"}
        and metric.name in emitted_metrics().get(metric.dimensions["service"], ())
    )


def deaf_alarms(stack: Stack) -> Iterator[str]:
    """Alarms on metrics that nobody publishes: they look healthy for ever."""
    for logical_id, alarm in stack.of_type("AWS::CloudWatch::Alarm"):
        for metric in _alarm_metrics(alarm):
            if not _is_published(stack, metric):
                yield (
                    f"{logical_id}: nothing publishes {metric.name} in {metric.namespace} with dimensions "
                    f"{dict(metric.dimensions)}"
                )


def hasty_alarms(stack: Stack) -> Iterator[str]:
    """Alarms that look more often than their metric is published: every other look finds nothing."""
    functions = {properties["Handler"]: name for name, properties in stack.functions()}
    measured = {
        "drain": functions.get("functions.drain.handler"),
        "queue": functions.get("functions.maintain.handler"),
    }
    for logical_id, alarm in stack.of_type("AWS::CloudWatch::Alarm"):
        for metric in _alarm_metrics(alarm):
            function_id = measured.get(metric.dimensions.get("service", ""))
            every_seconds = min(
                (
                    period_seconds(schedule["ScheduleExpression"])
                    for _, schedule in schedules_of(stack, function_id or "")
                ),
                default=AWS_METRIC_SECONDS,
            )
            if metric.period_seconds < every_seconds:
                yield (
                    f"{logical_id}: looks at {metric.name} every {metric.period_seconds} seconds, and it is published "
                    f"every {every_seconds}"
                )


def deaf_dashboards(stack: Stack) -> Iterator[str]:
    """Dashboards that CloudWatch would refuse, or that plot what nobody publishes."""
    for logical_id, dashboard in stack.of_type("AWS::CloudWatch::Dashboard"):
        try:
            body = json.loads(text_of(dashboard["DashboardBody"]))
        except json.JSONDecodeError as error:
            yield f"{logical_id}: its body is not JSON: {error}"
            continue
        for widget in body["widgets"]:
            properties = widget["properties"]
            if "query" in properties:
                yield from _unknown_fields(logical_id, properties)
            for metric in _plotted(properties):
                if not _is_published(stack, metric):
                    yield (
                        f"{logical_id}: {properties['title']}: nothing publishes {metric.name} in {metric.namespace} "
                        f"with dimensions {dict(metric.dimensions)}"
                    )


def _plotted(properties: Mapping[str, Any]) -> Iterator[Metric]:
    """A row may say `.` for what the row above it says in that place, and end with how to draw it."""
    above: list[str] = []
    for row in properties.get("metrics", []):
        words = [word for word in row if isinstance(word, str)]
        above = [
            above[place] if word == "." and place < len(above) else word
            for place, word in enumerate(words)
        ]
        namespace, name, *dimensions = above
        yield Metric(
            namespace=namespace,
            name=name,
            dimensions=dict(zip(dimensions[::2], dimensions[1::2], strict=True)),
            period_seconds=properties["period"],
        )


def _unknown_fields(logical_id: str, properties: Mapping[str, Any]) -> Iterator[str]:
    """Fields of a log query that no attempt's line has."""
    query = re.sub(r"'[^']*'", "", properties["query"].partition("|")[2])
    keywords = {"and", "asc", "desc", "fields", "filter", "limit", "or", "sort"}
    for word in re.findall(r"@?[a-z_]+", query):
        if word not in attempt_fields() | keywords and not word.startswith("@"):
            yield f"{logical_id}: {properties['title']}: no attempt's line has a field {word}"


@cache
def attempt_fields() -> set[str]:
    """The keys of an attempt's line in the log."""
    output = io.StringIO()
    ids = {f"{name}_id": UUID(int=0) for name in ("delivery", "event", "endpoint", "tenant")}
    answered_late = Attempted(
        **ids, attempt=1, verb="bury", status_code=500, error_kind="timeout", duration_ms=1
    )
    attempt_log(output)([answered_late])
    return set(json.loads(output.getvalue()))
