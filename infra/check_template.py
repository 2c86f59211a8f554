"""Check the deployment template offline, for what otherwise only a failed deploy, or silence after one, would show.

    python -m infra.check_template [template.yaml]

The template goes through the real SAM transform, and each check reads what CloudFormation would get.
"""

import graphlib
import importlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import boto3
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse

from shared.config import CLAIM_SECONDS, Settings, describe
from shared.dispatch import Summary
from shared.errors import ConfigurationError
from shared.maintenance import QueueHealth
from shared.telemetry import emit_metrics

TEMPLATE = Path(__file__).parent.parent / "template.yaml"

LINTED_REGIONS = ("us-east-1", "eu-central-1", "cn-north-1")
"""Two of the commercial partition, and one of another."""

EXAMPLES = {
    "DatabaseUrl": "postgresql://user:password@host:5432/database",
    "SecretKey": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
}
"""Values of the parameters that have no default."""

API_TIMEOUT_SECONDS = 30
"""An HTTP API gives up on a function after this; it cannot be raised."""

AWS_METRICS = {
    ("AWS/ApiGateway", "5xx"): {"ApiId"},
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible"): {"QueueName"},
}
"""The dimensions under which AWS publishes the metrics that alarms use."""

_MINUTES = {"minute": 1, "hour": 60, "day": 24 * 60}
_PLACEHOLDER = re.compile(r"\$\{(?!!)([^}]+)\}")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource after the transform: its type, its properties, and all that is written about it."""

    type: str
    properties: Mapping[str, Any]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stack:
    """A template after the transform. `defaults` has a value for each parameter."""

    defaults: Mapping[str, Any]
    conditions: Mapping[str, Any]
    resources: Mapping[str, Resource]
    outputs: Mapping[str, Any]

    def of_type(self, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Logical ids and properties of the resources of one type."""
        for logical_id, resource in self.resources.items():
            if resource.type == name:
                yield logical_id, resource.properties

    def functions(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Logical ids and properties of the Lambda functions."""
        return self.of_type("AWS::Lambda::Function")

    def environment(self, logical_id: str) -> dict[str, str]:
        """The environment variables of a function, with every parameter at its default."""
        properties = self.resources[logical_id].properties
        variables = properties.get("Environment", {}).get("Variables", {})
        return {key: self._text(value) for key, value in variables.items()}

    def _text(self, value: object) -> str:
        match value:
            case str():
                return value
            case {"Ref": str(name)} if name in self.defaults:
                return str(self.defaults[name])
            case _:
                return json.dumps(value)


Check = Callable[[Stack], Iterator[str]]


def read_template(path: Path) -> dict[str, Any]:
    """The template as it is written, CloudFormation's short forms (`!Ref`) spelled out."""
    template: dict[str, Any] = yaml_parse(path.read_text())
    return template


def expand(template: Mapping[str, Any]) -> Stack:
    """The template after the SAM transform, as CloudFormation would see it.

    Raises:
        samtranslator.model.exceptions.InvalidDocumentException: the transform refuses the template.
    """
    packaged = deepcopy(dict(template))
    # `sam package` puts the place of the uploaded code here, and the transform insists on one.
    packaged["Globals"]["Function"]["CodeUri"] = "s3://bucket/key"
    defaults = {
        name: parameter.get("Default", EXAMPLES.get(name, ""))
        for name, parameter in packaged["Parameters"].items()
    }
    session = boto3.Session(region_name=LINTED_REGIONS[0])
    expanded = Translator(None, Parser(), boto_session=session).translate(
        packaged, parameter_values=dict(defaults), get_managed_policy_map=dict
    )
    return Stack(
        defaults=defaults,
        conditions=expanded.get("Conditions", {}),
        resources={
            logical_id: Resource(body["Type"], body.get("Properties", {}), body)
            for logical_id, body in expanded["Resources"].items()
        },
        outputs=expanded.get("Outputs", {}),
    )


def references(node: object) -> Iterator[str]:
    """The names that a part of a template refers to: parameters, resources and conditions."""
    match node:
        case list():
            for item in node:
                yield from references(item)
        case dict():
            for key, value in node.items():
                yield from _REFERRING.get(key, references)(value)


def _named(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list() if all(isinstance(name, str) for name in value):
            yield from value
        case _:  # the `Condition` of a policy statement
            yield from references(value)


def _owner(value: object) -> Iterator[str]:
    match value:
        case str(path) | [str(path), *_]:
            yield path.partition(".")[0]


def _substituted(value: object) -> Iterator[str]:
    match value:
        case str(text):
            yield from (name.partition(".")[0] for name in _PLACEHOLDER.findall(text))
        case [str(text), dict(local)]:
            yield from (name for name in _substituted(text) if name not in local)
            yield from references(list(local.values()))


def _chosen(value: object) -> Iterator[str]:
    match value:
        case [str(condition), *branches]:
            yield condition
            yield from references(branches)


_REFERRING: Mapping[str, Callable[[object], Iterator[str]]] = {
    "Ref": _named,
    "Condition": _named,
    "DependsOn": _named,
    "Fn::GetAtt": _owner,
    "Fn::Sub": _substituted,
    "Fn::If": _chosen,
}


def dangling_references(stack: Stack) -> Iterator[str]:
    """References to what does not exist."""
    known = {*stack.defaults, *stack.conditions, *stack.resources}
    places: dict[str, object] = {
        **stack.conditions,
        **{logical_id: resource.body for logical_id, resource in stack.resources.items()},
        **stack.outputs,
    }
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
    known = {key for key, _, _ in describe()}
    for logical_id, _ in stack.functions():
        for key in sorted(stack.environment(logical_id).keys() - known):
            yield f"{logical_id}: {key} is not a setting of shared/config.py"


def wrong_settings(stack: Stack) -> Iterator[str]:
    """Values that the function would refuse at its first invocation."""
    for logical_id, _ in stack.functions():
        try:
            Settings.read(stack.environment(logical_id)).require_database_url()
        except ConfigurationError as error:
            yield f"{logical_id}: {error}"


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
            case "functions.ingest.handler":
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
    for schedule_id, schedule in _schedules_of(stack, logical_id):
        period_seconds = _period_seconds(schedule["ScheduleExpression"])
        if polling_seconds <= period_seconds:
            yield (
                f"{logical_id}: polls for {polling_seconds:g} seconds, {schedule_id} starts the next one after "
                f"{period_seconds}: nothing looks at the queue in between"
            )


def _settings(stack: Stack, logical_id: str) -> Settings | None:
    """None if they are wrong, which is another check's finding."""
    try:
        return Settings.read(stack.environment(logical_id))
    except ConfigurationError:
        return None


def _schedules_of(stack: Stack, function_id: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for logical_id, schedule in stack.of_type("AWS::Scheduler::Schedule"):
        if function_id in references(schedule["Target"]["Arn"]):
            yield logical_id, schedule


def _period_seconds(expression: str) -> int:
    found = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression)
    if found is None:
        raise ValueError(f"expected a rate such as rate(1 minute), got {expression!r}")
    return 60 * int(found[1]) * _MINUTES[found[2]]


def careless_schedules(stack: Stack) -> Iterator[str]:
    """Schedules whose failures would be repeated by default, or lost."""
    asynchronous = {
        name: config
        for _, config in stack.of_type("AWS::Lambda::EventInvokeConfig")
        for name in references(config["FunctionName"])
    }
    for function_id, _ in stack.functions():
        for logical_id, schedule in _schedules_of(stack, function_id):
            target = schedule["Target"]
            if not {"MaximumRetryAttempts", "MaximumEventAgeInSeconds"} <= set(
                target.get("RetryPolicy", {})
            ):
                yield f"{logical_id}: set both limits of RetryPolicy (the default repeats for 24 hours)"
            if "DeadLetterConfig" not in target:
                yield f"{logical_id}: set DeadLetterConfig, or a tick that cannot start is lost unseen"
            if "Name" in schedule:
                yield f"{logical_id}: set OmitName, or two stacks in one account collide"
            if "State" not in schedule:
                yield f"{logical_id}: set State, so that it can be switched off"
        if any(_schedules_of(stack, function_id)):
            config = asynchronous.get(function_id, {})
            if not {"MaximumRetryAttempts", "MaximumEventAgeInSeconds"} <= set(config):
                yield f"{function_id}: set both limits of EventInvokeConfig (the default repeats twice in 6 hours)"
            if "OnFailure" not in config.get("DestinationConfig", {}):
                yield f"{function_id}: set an OnFailure destination, or a failed run is lost unseen"


def emitted_metrics() -> dict[str, set[str]]:
    """Names of the metrics that the functions print, by the value of their one dimension, `service`."""
    summary = {name: value for name, value in asdict(Summary()).items() if name != "stopped"}
    health = QueueHealth(*(0 for _ in fields(QueueHealth))).as_metrics()
    return {"drain": _printed("drain", summary), "queue": _printed("queue", health)}


def _printed(service: str, values: Mapping[str, float]) -> set[str]:
    with redirect_stdout(io.StringIO()) as output:
        emit_metrics("check", service, values)
    return {
        metric["Name"]
        for line in output.getvalue().splitlines()
        for directive in json.loads(line)["_aws"]["CloudWatchMetrics"]
        for metric in directive["Metrics"]
    }


def deaf_alarms(stack: Stack) -> Iterator[str]:
    """Alarms on metrics that nobody publishes: they look healthy for ever."""
    emitted = emitted_metrics()
    namespaces = [
        properties.get("Environment", {}).get("Variables", {}).get("POWERTOOLS_METRICS_NAMESPACE")
        for _, properties in stack.functions()
    ]
    for logical_id, alarm in stack.of_type("AWS::CloudWatch::Alarm"):
        name, namespace = alarm["MetricName"], alarm["Namespace"]
        dimensions = {each["Name"]: each["Value"] for each in alarm["Dimensions"]}
        if isinstance(namespace, str) and namespace.startswith("AWS/"):
            is_published = AWS_METRICS.get((namespace, name)) == dimensions.keys()
        else:
            is_published = (
                namespace in namespaces
                and dimensions.keys() == {"service"}
                and name in emitted.get(dimensions["service"], ())
            )
        if not is_published:
            yield f"{logical_id}: nothing publishes {name} in {namespace} with dimensions {dimensions}"


CHECKS: tuple[Check, ...] = (
    dangling_references,
    dependency_cycles,
    missing_handlers,
    unknown_variables,
    wrong_settings,
    wrong_times,
    careless_schedules,
    deaf_alarms,
)


def lint(path: Path) -> list[str]:
    """What cfn-lint says about a template, one line per finding."""
    command = Path(sys.executable).with_name("cfn-lint")
    done = subprocess.run(
        [command, "--format", "parseable", "--regions", *LINTED_REGIONS, "--", path],
        capture_output=True,
        text=True,
        check=False,
    )
    findings = done.stdout.splitlines()
    if done.returncode and not findings:
        raise RuntimeError(f"cfn-lint did not run: {done.stderr}")
    return findings


def main(arguments: list[str]) -> int:
    """Print what is wrong with a template; the exit status is 1 if anything is."""
    path = Path(arguments[0]) if arguments else TEMPLATE
    stack = expand(read_template(path))
    problems = [*lint(path), *(problem for check in CHECKS for problem in check(stack))]
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    if not problems:
        sys.stdout.write(
            f"{path.name}: {len(stack.resources)} resources, {len(CHECKS)} checks and cfn-lint in "
            f"{len(LINTED_REGIONS)} regions find nothing wrong\n"
        )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
