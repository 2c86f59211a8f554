"""Check the deployment templates offline, for what otherwise only a failed deploy, or silence after one, would show.

    python -m infra.check_template [template.yaml]

The template goes through the real SAM transform, in every shape that its parameters give it, and each check reads what
CloudFormation would get. Without an argument the optional templates in infra/aws are checked, too.
"""

import graphlib
import importlib
import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from infra.stack import (
    Resource,
    Stack,
    Template,
    evaluate,
    read_template,
    references,
    refusals,
    text_of,
    transform,
)
from shared.config import CLAIM_SECONDS, Settings, describe
from shared.dispatch import Attempted, Summary
from shared.errors import ConfigurationError
from shared.maintenance import QueueHealth
from shared.telemetry import attempt_log, emit_metrics

__all__ = ["Resource", "Stack", "evaluate", "read_template", "references"]

ROOT = Path(__file__).parent.parent
TEMPLATE = ROOT / "template.yaml"
SURROUNDINGS = (ROOT / "infra/aws/network.yaml", ROOT / "infra/aws/database.yaml")
"""Templates of what a user may have already."""

LINTED_REGIONS = ("us-east-1", "eu-central-1", "cn-north-1")
"""Two of the commercial partition, and one of another."""

API_TIMEOUT_SECONDS = 30
"""An HTTP API gives up on a function after this; it cannot be raised."""

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

SEALING = ("functions.ingest.handler", "functions.api.handler", "functions.drain.handler")
"""The handlers that seal signing secrets or open them."""

POWERTOOLS_VARIABLES = {"POWERTOOLS_LOG_LEVEL"}
"""What Powertools reads itself, beside our settings."""

_SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:"  # noqa: S105  # the front of an ARN
_KEY = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
_PLAIN = {
    "DatabaseUrl": "postgresql://user:password@host:5432/database",
    "SecretKey": _KEY,
}
_URL = "postgresql://leasehook@host:5432/leasehook"
_KMS_KEY = "arn:aws:kms:eu-central-1:123456789012:key/11111111-2222-3333-4444-555555555555"

SCENARIOS: Mapping[str, Mapping[str, str]] = {
    "plain": _PLAIN,
    "secrets": {
        "DatabaseSecretArn": f"{_SECRET}leasehook/database-AbCdEf",
        "SecretKeyArn": f"{_SECRET}leasehook/key-AbCdEf",
    },
    "password of RDS": {
        "DatabaseUrl": _URL,
        "DatabaseSecretArn": f"{_SECRET}rds!cluster-11111111-AbCdEf",
        "SecretKey": _KEY,
        "SecretsKmsKeyArn": _KMS_KEY,
    },
    "parameter": {
        "DatabaseParameterName": "/leasehook/database",
        "SecretKeyArn": f"{_SECRET}leasehook/key-AbCdEf",
        "SecretsKmsKeyArn": _KMS_KEY,
    },
    "IAM tokens": {
        "DatabaseUrl": _URL,
        "DatabaseIamResourceArn": "arn:aws:rds-db:eu-central-1:123456789012:dbuser:cluster-ABC/leasehook",
        "SecretKey": _KEY,
    },
    "VPC": {**_PLAIN, "SubnetIds": "subnet-1,subnet-2", "SecurityGroupIds": "sg-1"},
    "gradual": {**_PLAIN, "Deployment": "Canary10Percent5Minutes", "Release": "2"},
    "large": {
        "DatabaseSecretArn": f"{_SECRET}leasehook/database-AbCdEf",
        "SecretKeyArn": f"{_SECRET}leasehook/key-AbCdEf",
        "SecretsKmsKeyArn": _KMS_KEY,
        "SubnetIds": "subnet-1,subnet-2",
        "SecurityGroupIds": "sg-1",
        "DrainsPerTick": "8",
        "DrainConcurrency": "16",
        "IngestConcurrency": "50",
        "Deployment": "Linear10PercentEvery1Minute",
        "Tracing": "Active",
        "LogLevel": "DEBUG",
        "AlarmTopicArn": "arn:aws:sns:eu-central-1:123456789012:alarms",
        "Architecture": "x86_64",
    },
    "paused": {**_PLAIN, "DrainState": "DISABLED", "MaintainState": "DISABLED"},
}
"""The shapes that are checked: values of parameters, by what they are there for."""

VPC_ACTIONS = frozenset(
    f"ec2:{action}"
    for action in (
        "AssignPrivateIpAddresses",
        "CreateNetworkInterface",
        "DeleteNetworkInterface",
        "DescribeNetworkInterfaces",
        "DescribeSubnets",
        "UnassignPrivateIpAddresses",
    )
)
"""What Lambda does to run a function in a VPC."""

_MINUTES = {"minute": 1, "hour": 60, "day": 24 * 60}

Check = Callable[[Stack], Iterator[str]]
Grant = tuple[str, str]
"""An action and the resource that it is allowed on."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that an alarm or a dashboard reads; its dimensions by name."""

    namespace: str
    name: str
    dimensions: Mapping[str, str]
    period_seconds: int


def expand(template: Template, parameters: Mapping[str, str] = SCENARIOS["plain"]) -> Stack:
    """One shape of the template, as CloudFormation would make it.

    Raises:
        samtranslator.model.exceptions.InvalidDocumentException: the transform refuses the template.
    """
    return evaluate(transform(template, parameters), parameters)


def dangling_references(stack: Stack) -> Iterator[str]:
    """References to what does not exist: nowhere, or not in this shape."""
    template = stack.written
    conditions = template.get("Conditions", {})
    mappings = template.get("Mappings", {})
    known = {*stack.parameters, *conditions, *mappings, *template["Resources"]}
    yield from _dangling({**conditions, **template["Resources"]}, known)
    yield from _dangling(template.get("Outputs", {}), known)
    present = {*conditions, *stack.resources}
    yield from _dangling({name: each.body for name, each in stack.resources.items()}, present)
    yield from _dangling(stack.outputs, present)


def _dangling(places: Mapping[str, object], known: set[str]) -> Iterator[str]:
    for place, body in places.items():
        for name in sorted(set(references(body)) - known):
            if not name.startswith("AWS::"):
                yield f"{place}: refers to {name}, which does not exist"


def dependency_cycles(stack: Stack) -> Iterator[str]:
    """Resources that wait for each other, which CloudFormation refuses only when it deploys."""
    graph = {
        logical_id: set(references(resource.body)) & set(stack.resources)
        for logical_id, resource in stack.resources.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield f"resources depend on each other: {' -> '.join(error.args[1])}"


def missing_handlers(stack: Stack) -> Iterator[str]:
    """Functions whose handler cannot be imported."""
    for logical_id, properties in stack.functions():
        module, _, name = properties["Handler"].rpartition(".")
        try:
            handler = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            yield f"{logical_id}: handler {properties['Handler']}: {error}"
        else:
            if not callable(handler):
                yield f"{logical_id}: handler {properties['Handler']} is not callable"


def unknown_variables(stack: Stack) -> Iterator[str]:
    """Environment variables that nothing reads."""
    known = {key for key, _, _ in describe()} | POWERTOOLS_VARIABLES
    for logical_id, _ in stack.functions():
        for key in sorted(stack.environment(logical_id).keys() - known):
            yield f"{logical_id}: {key} is not a setting of shared/config.py"


def wrong_settings(stack: Stack) -> Iterator[str]:
    """Values that the function would refuse at its first invocation, or that it needs and does not get."""
    for logical_id, properties in stack.functions():
        environment = stack.environment(logical_id)
        try:
            settings = Settings.read(environment)
            settings.require_database_url()
            if properties["Handler"] in SEALING:
                settings.require_secret_keys()
        except ConfigurationError as error:
            yield f"{logical_id}: {error}"
        if properties["Handler"] not in SEALING and "LEASEHOOK_SECRET_KEY" in environment:
            yield f"{logical_id}: holds LEASEHOOK_SECRET_KEY, which it does not need"


def wrong_times(stack: Stack) -> Iterator[str]:
    """Time limits that do not fit into each other."""
    for logical_id, properties in stack.functions():
        settings = _settings(stack, logical_id)
        if settings is None:
            continue
        timeout_seconds = properties["Timeout"]
        match properties["Handler"]:
            case "functions.drain.handler":
                yield from _wrong_drain_times(stack, logical_id, timeout_seconds, settings)
            case "functions.maintain.handler":
                if settings.maintain_budget_seconds >= timeout_seconds:
                    yield f"{logical_id}: LEASEHOOK_MAINTAIN_BUDGET_SECONDS must be below its Timeout"
            case "functions.ingest.handler" | "functions.api.handler":
                if timeout_seconds >= API_TIMEOUT_SECONDS:
                    yield f"{logical_id}: Timeout must be below the API's {API_TIMEOUT_SECONDS} seconds"
            case _:
                pass


def _wrong_drain_times(
    stack: Stack, logical_id: str, timeout_seconds: int, settings: Settings
) -> Iterator[str]:
    if settings.drain_budget_seconds >= timeout_seconds:
        yield f"{logical_id}: LEASEHOOK_DRAIN_BUDGET_SECONDS must be below its Timeout"
    attempt_seconds = settings.timeout_seconds + settings.settle_margin_seconds + CLAIM_SECONDS
    polling_seconds = min(
        settings.drain_budget_seconds - attempt_seconds, settings.drain_linger_seconds
    )
    schedules = list(_schedules_of(stack, logical_id))
    if not schedules:
        yield f"{logical_id}: no schedule starts it"
    for schedule_id, schedule in schedules:
        period_seconds = _period_seconds(schedule["ScheduleExpression"])
        if polling_seconds <= period_seconds:
            yield (
                f"{logical_id}: polls for {polling_seconds:g} seconds, {schedule_id} starts the next one after "
                f"{period_seconds}: nothing looks at the queue in between"
            )
    reserved = stack.resources[logical_id].properties.get("ReservedConcurrentExecutions")
    if reserved is not None and int(reserved) < 2 * len(schedules):
        yield (
            f"{logical_id}: {len(schedules)} start each minute and overlap with the next ones, so its reserved "
            f"concurrency must be {2 * len(schedules)} or more, not {reserved}"
        )


def _settings(stack: Stack, logical_id: str) -> Settings | None:
    """None if they are wrong, which is another check's finding."""
    try:
        return Settings.read(stack.environment(logical_id))
    except ConfigurationError:
        return None


def _schedules_of(stack: Stack, function_id: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The schedules that start a function, by itself or by one of its aliases."""
    targets = {function_id}
    for alias_id, alias in stack.of_type("AWS::Lambda::Alias"):
        if function_id in references(alias["FunctionName"]):
            targets.add(alias_id)
    for logical_id, schedule in stack.of_type("AWS::Scheduler::Schedule"):
        if targets & set(references(schedule["Target"]["Arn"])):
            yield logical_id, schedule


def _period_seconds(expression: str) -> int:
    found = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression)
    if found is None:
        raise ValueError(f"expected a rate such as rate(1 minute), got {expression!r}")
    return 60 * int(found[1]) * _MINUTES[found[2]]


def careless_schedules(stack: Stack) -> Iterator[str]:
    """Schedules whose failures would be repeated by default, or lost."""
    for function_id, _ in stack.functions():
        schedules = list(_schedules_of(stack, function_id))
        for logical_id, schedule in schedules:
            target = schedule["Target"]
            if not {"MaximumRetryAttempts", "MaximumEventAgeInSeconds"} <= set(
                target.get("RetryPolicy", {})
            ):
                yield f"{logical_id}: set both limits of RetryPolicy (the default repeats for 24 hours)"
            if "DeadLetterConfig" not in target:
                yield f"{logical_id}: set DeadLetterConfig, or a tick that cannot start is lost unseen"
            if "Name" in schedule:
                yield f"{logical_id}: set no Name, or two stacks in one account collide"
            if "State" not in schedule:
                yield f"{logical_id}: set State, so that it can be switched off"
            yield from _careless_runs(stack, function_id, text_of(target["Arn"]))


def _careless_runs(stack: Stack, function_id: str, target: str) -> Iterator[str]:
    """What Lambda does with a run that failed is said per function and qualifier; the schedule's is what counts."""
    called = {
        text_of(alias_arn): alias["Name"]
        for alias_id, alias in stack.of_type("AWS::Lambda::Alias")
        for alias_arn in ({"Ref": alias_id}, {"Fn::GetAtt": [alias_id, "AliasArn"]})
    }
    qualifier = called.get(target, "$LATEST")
    config: Mapping[str, Any] = {}
    for _, each in stack.of_type("AWS::Lambda::EventInvokeConfig"):
        if function_id in references(each["FunctionName"]) and each["Qualifier"] == qualifier:
            config = each
    if not {"MaximumRetryAttempts", "MaximumEventAgeInSeconds"} <= set(config):
        yield f"{function_id}: set both limits of EventInvokeConfig (the default repeats twice in 6 hours)"
    if "OnFailure" not in config.get("DestinationConfig", {}):
        yield f"{function_id}: set an OnFailure destination, or a failed run is lost unseen"


def grants_of(stack: Stack, role_id: str) -> set[Grant]:
    """What a role is allowed, by its own policies and by the managed ones in the template.

    A managed policy of AWS counts as the grant `("*", its ARN)`. A condition is no part of a grant.
    """
    role = stack.resources[role_id].properties
    documents = [policy["PolicyDocument"] for policy in role.get("Policies", [])]
    grants: set[Grant] = set()
    for arn in role.get("ManagedPolicyArns", []):
        match arn:
            case {"Ref": str(name)} if name in stack.resources:
                documents.append(stack.resources[name].properties["PolicyDocument"])
            case _:
                grants.add(("*", text_of(arn)))
    for document in documents:
        for statement in document["Statement"]:
            for action in _many(statement["Action"]):
                for resource in _many(statement["Resource"]):
                    grants.add((action, text_of(resource)))
    return grants


def _many(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def wrong_grants(stack: Stack) -> Iterator[str]:
    """Rights that a function needs and does not have, or has and does not need."""
    for logical_id, properties in stack.functions():
        [role_id] = references(properties["Role"])
        needed = set(_needed_grants(stack, logical_id))
        allowed = grants_of(stack, role_id)
        for action, resource in sorted(needed - allowed):
            yield f"{logical_id}: {role_id} lacks {action} on {resource}"
        for action, resource in sorted(allowed - needed):
            yield f"{logical_id}: {role_id} may {action} on {resource}, which it does not need"


def _needed_grants(stack: Stack, logical_id: str) -> Iterator[Grant]:
    properties = stack.resources[logical_id].properties
    log_group = text_of(properties["LoggingConfig"]["LogGroup"]).rstrip("}") + ".Arn}"
    yield "logs:CreateLogStream", log_group
    yield "logs:PutLogEvents", log_group
    if "VpcConfig" in properties:
        yield from ((action, "*") for action in VPC_ACTIONS)
    if properties.get("TracingConfig") == {"Mode": "Active"}:
        yield "xray:PutTelemetryRecords", "*"
        yield "xray:PutTraceSegments", "*"
    for _, config in stack.of_type("AWS::Lambda::EventInvokeConfig"):
        on_failure = config.get("DestinationConfig", {}).get("OnFailure")
        if logical_id in references(config["FunctionName"]) and on_failure:
            yield "sqs:SendMessage", text_of(on_failure["Destination"])
    environment = stack.environment(logical_id)
    is_encrypted_by_us = bool(stack.parameters["SecretsKmsKeyArn"])
    for key in ("LEASEHOOK_DATABASE_CREDENTIALS", "LEASEHOOK_SECRET_KEY"):
        kind, _, name = environment.get(key, "").partition(":")
        match kind:
            case "secretsmanager":
                yield "secretsmanager:GetSecretValue", name
            case "ssm":
                path = f"/{name.removeprefix('/')}"
                yield (
                    "ssm:GetParameter",
                    f"arn:${{AWS::Partition}}:ssm:${{AWS::Region}}:${{AWS::AccountId}}:parameter{path}",
                )
            case "iam":
                yield "rds-db:connect", stack.parameters["DatabaseIamResourceArn"]
            case _:
                continue
        if kind != "iam" and is_encrypted_by_us:
            yield "kms:Decrypt", stack.parameters["SecretsKmsKeyArn"]


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
                    _period_seconds(schedule["ScheduleExpression"])
                    for _, schedule in _schedules_of(stack, function_id or "")
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


CHECKS: tuple[Check, ...] = (
    dangling_references,
    dependency_cycles,
    missing_handlers,
    unknown_variables,
    wrong_settings,
    wrong_times,
    careless_schedules,
    wrong_grants,
    deaf_alarms,
    hasty_alarms,
    deaf_dashboards,
)

STRUCTURE_CHECKS: tuple[Check, ...] = (dangling_references, dependency_cycles)
"""The checks that hold for any template."""


def lint(*paths: Path) -> list[str]:
    """What cfn-lint says about templates, one line per finding."""
    command = Path(sys.executable).with_name("cfn-lint")
    done = subprocess.run(
        [command, "--format", "parseable", "--regions", *LINTED_REGIONS, "--", *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    findings = done.stdout.splitlines()
    if done.returncode and not findings:
        raise RuntimeError(f"cfn-lint did not run: {done.stderr}")
    return findings


def problems_of(template: Template) -> Iterator[str]:
    """What the checks find in any shape of the template that is deployed; each finding once."""
    seen: set[str] = set()
    for name, parameters in SCENARIOS.items():
        found = list(refusals(template, parameters))
        stack = expand(template, parameters)
        for problem in [*found, *(problem for check in CHECKS for problem in check(stack))]:
            if problem not in seen:
                seen.add(problem)
                yield f"{problem} (seen with: {name})"


def problems_of_surroundings(template: Template) -> Iterator[str]:
    """What the structural checks find in a template that the transform has no part in."""
    stack = evaluate(template, {})
    for check in STRUCTURE_CHECKS:
        yield from check(stack)


def main(arguments: list[str]) -> int:
    """Print what is wrong with the templates; the exit status is 1 if anything is."""
    # The transform reports on features of the service that it does not find here.
    logging.getLogger("samtranslator").addHandler(logging.NullHandler())
    path = Path(arguments[0]) if arguments else TEMPLATE
    others = () if arguments else SURROUNDINGS
    problems = [*lint(path, *others), *problems_of(read_template(path))]
    for each in others:
        problems += (
            f"{each.name}: {found}" for found in problems_of_surroundings(read_template(each))
        )
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    if not problems:
        names = ", ".join(each.name for each in (path, *others))
        sys.stdout.write(
            f"{names}: {len(CHECKS)} checks in {len(SCENARIOS)} shapes and cfn-lint in {len(LINTED_REGIONS)} regions "
            "find nothing wrong\n"
        )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
