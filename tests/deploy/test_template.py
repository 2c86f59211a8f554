"""The template that is deployed passes every check, and every check finds the fault it is there for."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from infra import check_template
from infra.check_template import TEMPLATE, Check, Stack, expand, read_template
from shared.http import inbound, publishing
from tests.support.world import World

Template = dict[str, Any]
Fault = Callable[[Template], None]

EVENTS = Path(__file__).parent.parent / "events"
TO_FAILED_RUNS = ("sqs:SendMessage", "FailedRuns")
LOGS_AND_NETWORK = {"AWSLambdaBasicExecutionRole", "AWSLambdaVPCAccessExecutionRole"}

# Runs a handler as Lambda does: a fresh process, its settings in the environment.
INVOKE = """
import importlib, json, sys
handler = importlib.import_module(sys.argv[1]).handler
handler(json.loads(sys.argv[2]), None)
"""


@pytest.fixture(scope="module")
def written() -> Template:
    return read_template(TEMPLATE)


@pytest.fixture(scope="module")
def stack(written: Template) -> Stack:
    return expand(written)


def put(path: str, value: object) -> Fault:
    """Sets what lies at a path such as `Resources/Api/Type`."""
    *parents, last = path.split("/")

    def break_it(template: Template) -> None:
        node = template
        for name in parents:
            node = node.setdefault(name, {})
        node[last] = value

    return break_it


def drop(path: str) -> Fault:
    """Removes what lies at a path."""
    *parents, last = path.split("/")

    def break_it(template: Template) -> None:
        node = template
        for name in parents:
            node = node[name]
        del node[last]

    return break_it


def of(logical_id: str, path: str) -> str:
    return f"Resources/{logical_id}/Properties/{path}"


DRAIN_VARIABLES = of("DrainFunction", "Environment/Variables")
DRAIN_TICK = of("DrainFunction", "Events/EachMinute/Properties")


def test_the_template_passes_every_check_and_the_linter(capsys: pytest.CaptureFixture[str]) -> None:
    status = check_template.main([])
    assert (status, capsys.readouterr().err) == (0, "")


def test_what_a_check_and_the_linter_find_fails_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "template.yaml"
    broken.write_text(
        TEMPLATE.read_text()
        .replace("MetricName: Dead", "MetricName: Deed")
        .replace("MessageRetentionPeriod", "MessageRetention")
    )
    assert check_template.main([str(broken)]) == 1
    problems = capsys.readouterr().err
    assert "DeadDeliveriesAlarm: nothing publishes Deed" in problems
    assert "'MessageRetention' was unexpected" in problems


@pytest.mark.parametrize(
    ("check", "fault", "problem"),
    [
        (
            check_template.dangling_references,
            put("Outputs/Url/Value", {"Fn::Sub": "https://${Apo}.example/${AWS::Region}"}),
            "Url: refers to Apo, which does not exist",
        ),
        (
            check_template.dangling_references,
            put("Conditions/HasTopic", {"Fn::Equals": [{"Ref": "Topic"}, ""]}),
            "HasTopic: refers to Topic, which does not exist",
        ),
        (
            check_template.dangling_references,
            put(of("FailedRuns", "QueueName"), {"Fn::If": ["Never", "a", "b"]}),
            "FailedRuns: refers to Never, which does not exist",
        ),
        (
            check_template.dependency_cycles,
            put("Resources/FailedRuns/DependsOn", ["DrainFunction"]),
            "resources depend on each other: ",
        ),
        (
            check_template.missing_handlers,
            put(of("DrainFunction", "Handler"), "functions.drain.handle"),
            "DrainFunction: handler functions.drain.handle: ",
        ),
        (
            check_template.missing_handlers,
            put(of("DrainFunction", "Handler"), "functions.drane.handler"),
            "DrainFunction: handler functions.drane.handler: No module named 'functions.drane'",
        ),
        (
            check_template.unknown_variables,
            put(f"{DRAIN_VARIABLES}/LEASEHOOK_LEASE", "60"),
            "DrainFunction: LEASEHOOK_LEASE is not a setting of shared/config.py",
        ),
        (
            check_template.wrong_settings,
            put(f"{DRAIN_VARIABLES}/LEASEHOOK_LEASE_SECONDS", "20"),
            "DrainFunction: LEASEHOOK_LEASE_SECONDS: expected at least 21 ",
        ),
        (
            check_template.wrong_settings,
            drop("Globals/Function/Environment/Variables/DATABASE_URL"),
            "MigrateFunction: DATABASE_URL: ",
        ),
        (
            check_template.wrong_times,
            put(of("DrainFunction", "Timeout"), 85),
            "DrainFunction: LEASEHOOK_DRAIN_BUDGET_SECONDS must be below its Timeout",
        ),
        (
            check_template.wrong_times,
            put(f"{DRAIN_VARIABLES}/LEASEHOOK_DRAIN_BUDGET_SECONDS", "81"),
            "DrainFunction: polls for 60 seconds, DrainFunctionEachMinute starts the next one after 60",
        ),
        (
            check_template.wrong_times,
            put(f"{DRAIN_VARIABLES}/LEASEHOOK_DRAIN_LINGER_SECONDS", "30"),
            "DrainFunction: polls for 30 seconds, DrainFunctionEachMinute starts the next one after 60",
        ),
        (
            check_template.wrong_times,
            put(of("MaintainFunction", "Timeout"), 240),
            "MaintainFunction: LEASEHOOK_MAINTAIN_BUDGET_SECONDS must be below its Timeout",
        ),
        (
            check_template.wrong_times,
            put(of("IngestFunction", "Timeout"), 30),
            "IngestFunction: Timeout must be below the API's 30 seconds",
        ),
        (
            check_template.careless_schedules,
            drop(f"{DRAIN_TICK}/RetryPolicy/MaximumEventAgeInSeconds"),
            "DrainFunctionEachMinute: set both limits of RetryPolicy",
        ),
        (
            check_template.careless_schedules,
            drop(f"{DRAIN_TICK}/DeadLetterConfig"),
            "DrainFunctionEachMinute: set DeadLetterConfig",
        ),
        (
            check_template.careless_schedules,
            drop(f"{DRAIN_TICK}/OmitName"),
            "DrainFunctionEachMinute: set OmitName",
        ),
        (
            check_template.careless_schedules,
            drop(f"{DRAIN_TICK}/State"),
            "DrainFunctionEachMinute: set State",
        ),
        (
            check_template.careless_schedules,
            drop(of("DrainFunction", "EventInvokeConfig")),
            "DrainFunction: set both limits of EventInvokeConfig",
        ),
        (
            check_template.careless_schedules,
            drop(of("MaintainFunction", "EventInvokeConfig/DestinationConfig")),
            "MaintainFunction: set an OnFailure destination",
        ),
        (
            check_template.deaf_alarms,
            put(of("DueAgeAlarm", "MetricName"), "DueAge"),
            "DueAgeAlarm: nothing publishes DueAge in ",
        ),
        (
            check_template.deaf_alarms,
            put(of("DueAgeAlarm", "Dimensions"), [{"Name": "service", "Value": "drain"}]),
            "DueAgeAlarm: nothing publishes DueAgeSeconds in ",
        ),
        (
            check_template.deaf_alarms,
            put(of("DeadDeliveriesAlarm", "Namespace"), "leasehook"),
            "DeadDeliveriesAlarm: nothing publishes Dead in leasehook ",
        ),
        (
            check_template.deaf_alarms,
            put(of("PublishFailuresAlarm", "MetricName"), "5XXError"),
            "PublishFailuresAlarm: nothing publishes 5XXError in AWS/ApiGateway ",
        ),
    ],
)
def test_a_fault_is_found(written: Template, check: Check, fault: Fault, problem: str) -> None:
    broken = deepcopy(written)
    fault(broken)
    assert [found for found in check(expand(broken)) if found.startswith(problem)]


def test_the_functions_print_the_metrics_that_the_check_knows(
    world: World, database_url: str
) -> None:
    environment = world.environment(database_url, POWERTOOLS_METRICS_NAMESPACE="check")
    printed = {
        service: names
        for module, event in [("drain", "schedule-drain"), ("maintain", "schedule-health")]
        for service, names in metrics_of(f"functions.{module}", event, environment)
    }
    assert printed == check_template.emitted_metrics()


def metrics_of(
    module: str, event: str, environment: Mapping[str, str]
) -> Iterator[tuple[str, set[str]]]:
    done = subprocess.run(
        [sys.executable, "-c", INVOKE, module, (EVENTS / f"{event}.json").read_text()],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        document = json.loads(line)
        [directive] = document["_aws"]["CloudWatchMetrics"]
        assert directive["Dimensions"] == [["service"]]
        yield document["service"], {metric["Name"] for metric in directive["Metrics"]}


def test_a_failed_run_is_not_repeated_but_a_tick_that_did_not_start_is(stack: Stack) -> None:
    """WH-033: retries are chosen, not left at their defaults."""
    runs = {
        config["FunctionName"]["Ref"]: config["MaximumRetryAttempts"]
        for _, config in stack.of_type("AWS::Lambda::EventInvokeConfig")
    }
    ticks = {
        logical_id: schedule["Target"]["RetryPolicy"]["MaximumRetryAttempts"]
        for logical_id, schedule in stack.of_type("AWS::Scheduler::Schedule")
    }
    assert runs == {"DrainFunction": 0, "MaintainFunction": 0}
    assert ticks == {
        "DrainFunctionEachMinute": 2,
        "MaintainFunctionEachHour": 3,
        "MaintainFunctionEachMinute": 0,
    }


def test_silence_of_the_queue_metrics_is_an_alarm(stack: Stack) -> None:
    missing = {
        logical_id: alarm["TreatMissingData"]
        for logical_id, alarm in stack.of_type("AWS::CloudWatch::Alarm")
    }
    assert missing == {
        "DueAgeAlarm": {"Fn::If": ["IsMeasured", "breaching", "notBreaching"]},
        "DeadDeliveriesAlarm": "notBreaching",
        "PublishFailuresAlarm": "notBreaching",
        "FailedRunsAlarm": "notBreaching",
    }


def test_no_role_may_do_more_than_this(stack: Stack) -> None:
    allowed = {
        logical_id: {
            (statement["Action"], statement["Resource"]["Fn::GetAtt"][0])
            for policy in role.get("Policies", [])
            for statement in policy["PolicyDocument"]["Statement"]
        }
        for logical_id, role in stack.of_type("AWS::IAM::Role")
    }
    assert allowed == {
        "IngestFunctionRole": set(),
        "ApiFunctionRole": set(),
        "DrainFunctionRole": {TO_FAILED_RUNS},
        "MaintainFunctionRole": {TO_FAILED_RUNS},
        "MigrateFunctionRole": set(),
        "DrainFunctionEachMinuteRole": {
            ("lambda:InvokeFunction", "DrainFunction"),
            TO_FAILED_RUNS,
        },
        "MaintainFunctionEachHourRole": {
            ("lambda:InvokeFunction", "MaintainFunction"),
            TO_FAILED_RUNS,
        },
        "MaintainFunctionEachMinuteRole": {
            ("lambda:InvokeFunction", "MaintainFunction"),
            TO_FAILED_RUNS,
        },
    }


def test_functions_have_aws_policies_for_logs_and_network_only(stack: Stack) -> None:
    for logical_id, role in stack.of_type("AWS::IAM::Role"):
        managed = {arn.rpartition("/")[2] for arn in role.get("ManagedPolicyArns", [])}
        is_of_function = logical_id.removesuffix("Role") in dict(stack.functions())
        assert managed == (LOGS_AND_NETWORK if is_of_function else set())


def test_only_who_seals_or_opens_secrets_holds_the_key(stack: Stack) -> None:
    holders = {
        logical_id
        for logical_id, _ in stack.functions()
        if "LEASEHOOK_SECRET_KEY" in stack.environment(logical_id)
    }
    assert holders == {"ApiFunction", "DrainFunction", "IngestFunction"}


def test_parameters_that_hold_secrets_are_not_echoed(written: Template) -> None:
    secret = {name for name, parameter in written["Parameters"].items() if parameter.get("NoEcho")}
    assert secret == {"DatabaseUrl", "SecretKey"}


@pytest.mark.parametrize(
    ("parameter", "value", "is_allowed"),
    [
        ("DatabaseUrl", "postgresql://user:password@host:5432/database", True),
        ("DatabaseUrl", "postgres://host/database?sslmode=verify-full", True),
        ("DatabaseUrl", "{{resolve:secretsmanager:leasehook:SecretString:url}}", True),
        ("DatabaseUrl", "host:5432", False),
        ("SecretKey", "A" * 43 + "=", True),
        ("SecretKey", "A" * 43 + "=," + "B" * 43 + "=", True),
        ("SecretKey", "{{resolve:secretsmanager:leasehook:SecretString:key}}", True),
        ("SecretKey", "hunter2", False),
        ("DrainConcurrency", "0", True),
        ("DrainConcurrency", "1", False),
        ("DrainConcurrency", "2", True),
        ("DrainConcurrency", "10", True),
        ("IngestConcurrency", "-1", False),
        ("IngestConcurrency", "1", True),
    ],
)
def test_a_parameter_is_checked_before_anything_is_deployed(
    written: Template, parameter: str, value: str, *, is_allowed: bool
) -> None:
    pattern = written["Parameters"][parameter]["AllowedPattern"]
    assert bool(re.fullmatch(pattern, value)) == is_allowed


def test_the_api_has_no_stage_in_its_paths_and_turns_no_body_into_base64(stack: Stack) -> None:
    """WH-021 and WH-022: the shapes that the gateway tests cover are the ones that are deployed."""
    [(_, stage)] = stack.of_type("AWS::ApiGatewayV2::Stage")
    [(_, api)] = stack.of_type("AWS::ApiGatewayV2::Api")
    assert stage["StageName"] == "$default"
    assert "x-amazon-apigateway-binary-media-types" not in json.dumps(api)


def test_what_publishes_goes_to_ingest_and_everything_else_to_the_api(stack: Stack) -> None:
    [(_, api)] = stack.of_type("AWS::ApiGatewayV2::Api")
    routes = {
        (method.upper(), path)
        for path, methods in api["Body"]["paths"].items()
        for method in methods
    }
    publishing_routes = {
        (method, route.path)
        for route in (*publishing.router.routes, *inbound.router.routes)
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert routes == publishing_routes | {("X-AMAZON-APIGATEWAY-ANY-METHOD", "/{proxy+}")}


def test_the_access_log_is_one_json_object_a_line(stack: Stack) -> None:
    [(_, stage)] = stack.of_type("AWS::ApiGatewayV2::Stage")
    line = json.loads(stage["AccessLogSettings"]["Format"])
    assert line["status"] == "$context.status"


def test_logs_do_not_grow_for_ever(stack: Stack) -> None:
    retention = {
        logical_id: group["RetentionInDays"]
        for logical_id, group in stack.of_type("AWS::Logs::LogGroup")
    }
    assert retention == {
        "FunctionLogs": {"Ref": "LogRetentionDays"},
        "AccessLogs": {"Ref": "LogRetentionDays"},
    }
    for _, function in stack.functions():
        assert function["LoggingConfig"]["LogGroup"] == {"Ref": "FunctionLogs"}


def test_nothing_is_bound_to_one_region_partition_or_account(written: Template) -> None:
    text = json.dumps(written["Resources"]) + json.dumps(written["Outputs"])
    assert not re.findall(r"arn:aws|amazonaws\.com|\b[a-z]{2}-[a-z]+-\d\b|\b\d{12}\b", text)


def test_no_resource_has_a_name_that_a_second_stack_would_want_too(stack: Stack) -> None:
    named = {
        (logical_id, key)
        for logical_id, resource in stack.resources.items()
        for key in resource.properties
        if key in {"FunctionName", "QueueName", "LogGroupName", "RoleName", "AlarmName", "Name"}
        and isinstance(resource.properties[key], str)
    }
    assert named == set()
