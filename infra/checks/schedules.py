"""What starts the functions, and what becomes of a run that fails or cannot start."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.stack import Stack, references, text_of

_MINUTES = {"minute": 1, "hour": 60, "day": 24 * 60}


def schedules_of(stack: Stack, function_id: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The schedules that start a function, by itself or by one of its aliases."""
    targets = {function_id}
    for alias_id, alias in stack.of_type("AWS::Lambda::Alias"):
        if function_id in references(alias["FunctionName"]):
            targets.add(alias_id)
    for logical_id, schedule in stack.of_type("AWS::Scheduler::Schedule"):
        if targets & set(references(schedule["Target"]["Arn"])):
            yield logical_id, schedule


def period_seconds(expression: str) -> int:
    """The seconds between two ticks of a rate.

    Raises:
        ValueError: it is no rate.
    """
    found = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression)
    if found is None:
        raise ValueError(f"expected a rate such as rate(1 minute), got {expression!r}")
    return 60 * int(found[1]) * _MINUTES[found[2]]


def careless_schedules(stack: Stack) -> Iterator[str]:
    """Schedules whose failures would be repeated by default, or lost."""
    for function_id, _ in stack.functions():
        schedules = list(schedules_of(stack, function_id))
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
