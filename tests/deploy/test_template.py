"""The template that is deployed passes every check, and every check finds the fault it is there for."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from infra import check_template
from infra.check_template import SCENARIOS, TEMPLATE, Check, expand
from infra.checks import metrics, rights, schedules, settings, structure
from infra.checks.rights import grants_of
from infra.stack import Stack, read_template, refusals, text_of
from shared.config import Settings
from shared.http import inbound, publishing
from tests.support.world import World

Template = dict[str, Any]
Grant = tuple[str, str]
Fault = Callable[[Template], None]

NO_DATABASE = "postgresql://nobody@127.0.0.1:1/nothing"
EVENTS = Path(__file__).parent.parent / "events"

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
        node: Any = template
        for name in parents:
            node = node[int(name)] if isinstance(node, list) else node.setdefault(name, {})
        if isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value

    return break_it


def drop(path: str) -> Fault:
    """Removes what lies at a path."""
    *parents, last = path.split("/")

    def break_it(template: Template) -> None:
        del at(template, parents)[last]

    return break_it


def replace(path: str, old: str, new: str) -> Fault:
    """Changes a word in the text that lies at a path."""
    *parents, last = path.split("/")

    def break_it(template: Template) -> None:
        node = at(template, parents)
        assert old in node[last]
        node[last] = node[last].replace(old, new)

    return break_it


def at(template: Template, names: Sequence[str]) -> Any:
    node: Any = template
    for name in names:
        node = node[int(name)] if isinstance(node, list) else node[name]
    return node


def of(logical_id: str, path: str) -> str:
    return f"Resources/{logical_id}/Properties/{path}"


DRAIN_VARIABLES = of("DrainFunction", "Environment/Variables")
DRAIN_TICK = of("DrainTick1", "Target")


def shape(written: Template, scenario: str) -> Stack:
    return expand(written, SCENARIOS[scenario])


def test_the_templates_pass_every_check_and_the_linter(capsys: pytest.CaptureFixture[str]) -> None:
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
    assert problems.count("nothing publishes Deed") == 1, "each finding once, not once a shape"
    assert "'MessageRetention' was unexpected" in problems


@pytest.mark.parametrize(
    ("check", "fault", "problem"),
    [
        (
            structure.dangling_references,
            put("Outputs/Url/Value", {"Fn::Sub": "https://${Apo}.example/${AWS::Region}"}),
            "Url: refers to Apo, which does not exist",
        ),
        (
            structure.dangling_references,
            put("Conditions/HasTopic", {"Fn::Equals": [{"Ref": "Topic"}, ""]}),
            "HasTopic: refers to Topic, which does not exist",
        ),
        (
            structure.dangling_references,
            put(of("FailedRuns", "QueueName"), {"Fn::If": ["Never", "a", "b"]}),
            "FailedRuns: refers to Never, which does not exist",
        ),
        (
            structure.dependency_cycles,
            put("Resources/FailedRuns/DependsOn", ["DrainFunction"]),
            "resources depend on each other: ",
        ),
        (
            structure.missing_handlers,
            put(of("DrainFunction", "Handler"), "functions.drain.handle"),
            "DrainFunction: handler functions.drain.handle: ",
        ),
        (
            structure.missing_handlers,
            put(of("DrainFunction", "Handler"), "functions.drane.handler"),
            "DrainFunction: handler functions.drane.handler: No module named 'functions.drane'",
        ),
        (
            settings.unknown_variables,
            put(f"{DRAIN_VARIABLES}/LEASEHOOK_LEASE", "60"),
            "DrainFunction: LEASEHOOK_LEASE is not a setting of shared/config.py",
        ),
        (
            settings.wrong_settings,
            put(f"{DRAIN_VARIABLES}/LEASEHOOK_LEASE_SECONDS", "20"),
            "DrainFunction: LEASEHOOK_LEASE_SECONDS: expected at least 21 ",
        ),
        (
            settings.wrong_settings,
            put("Globals/Function/Environment/Variables/DATABASE_URL", ""),
            "MigrateFunction: DATABASE_URL: ",
        ),
        (
            settings.wrong_settings,
            drop(f"{DRAIN_VARIABLES}/LEASEHOOK_SECRET_KEY"),
            "DrainFunction: LEASEHOOK_SECRET_KEY: expected ",
        ),
        (
            settings.wrong_settings,
            put(
                of("MaintainFunction", "Environment/Variables/LEASEHOOK_SECRET_KEY"), "A" * 43 + "="
            ),
            "MaintainFunction: holds LEASEHOOK_SECRET_KEY, which it does not need",
        ),
        (
            settings.wrong_settings,
            put("Globals/Function/Environment/Variables/LEASEHOOK_DATABASE_CREDENTIALS", "vault:x"),
            "IngestFunction: LEASEHOOK_DATABASE_CREDENTIALS: expected ",
        ),
        (
            settings.wrong_times,
            put(of("DrainFunction", "Timeout"), 85),
            "DrainFunction: LEASEHOOK_DRAIN_BUDGET_SECONDS must be below its Timeout",
        ),
        (
            settings.wrong_times,
            put(f"{DRAIN_VARIABLES}/LEASEHOOK_DRAIN_BUDGET_SECONDS", "81"),
            "DrainFunction: polls for 60 seconds, DrainTick1 starts the next one after 60",
        ),
        (
            settings.wrong_times,
            put(f"{DRAIN_VARIABLES}/LEASEHOOK_DRAIN_LINGER_SECONDS", "30"),
            "DrainFunction: polls for 30 seconds, DrainTick1 starts the next one after 60",
        ),
        (
            settings.wrong_times,
            put(of("MaintainFunction", "Timeout"), 240),
            "MaintainFunction: LEASEHOOK_MAINTAIN_BUDGET_SECONDS must be below its Timeout",
        ),
        (
            settings.wrong_times,
            put(of("IngestFunction", "Timeout"), 16),
            "IngestFunction: Timeout must be above the 16 seconds after which it can answer that the database does not",
        ),
        (
            settings.wrong_times,
            put(of("IngestFunction", "Timeout"), 30),
            "IngestFunction: Timeout must be below the API's 30 seconds",
        ),
        (
            settings.wrong_times,
            put(of("ApiFunction", "Timeout"), 30),
            "ApiFunction: Timeout must be below the API's 30 seconds",
        ),
        (
            settings.wrong_times,
            put(of("DrainFunction", "ReservedConcurrentExecutions"), 1),
            "DrainFunction: 1 start each minute and overlap with the next ones",
        ),
        (
            settings.wrong_times,
            put(f"{DRAIN_TICK}/Arn", "arn:aws:lambda:eu-central-1:123456789012:function:other"),
            "DrainFunction: no schedule starts it",
        ),
        (
            schedules.careless_schedules,
            drop(f"{DRAIN_TICK}/RetryPolicy/MaximumEventAgeInSeconds"),
            "DrainTick1: set both limits of RetryPolicy",
        ),
        (
            schedules.careless_schedules,
            drop(f"{DRAIN_TICK}/DeadLetterConfig"),
            "DrainTick1: set DeadLetterConfig",
        ),
        (
            schedules.careless_schedules,
            put(of("DrainTick1", "Name"), "drain"),
            "DrainTick1: set no Name",
        ),
        (
            schedules.careless_schedules,
            drop(of("DrainTick1", "State")),
            "DrainTick1: set State",
        ),
        (
            schedules.careless_schedules,
            drop(of("DrainFunction", "EventInvokeConfig")),
            "DrainFunction: set both limits of EventInvokeConfig",
        ),
        (
            schedules.careless_schedules,
            drop(of("MaintainFunction", "EventInvokeConfig/DestinationConfig")),
            "MaintainFunction: set an OnFailure destination",
        ),
        (
            metrics.deaf_alarms,
            put(of("DueAgeAlarm", "MetricName"), "DueAge"),
            "DueAgeAlarm: nothing publishes DueAge in ",
        ),
        (
            metrics.deaf_alarms,
            put(of("DueAgeAlarm", "Dimensions"), [{"Name": "service", "Value": "drain"}]),
            "DueAgeAlarm: nothing publishes DueAgeSeconds in ",
        ),
        (
            metrics.deaf_alarms,
            put(of("DeadDeliveriesAlarm", "Namespace"), "leasehook"),
            "DeadDeliveriesAlarm: nothing publishes Dead in leasehook ",
        ),
        (
            metrics.deaf_alarms,
            put(of("PublishFailuresAlarm", "MetricName"), "5XXError"),
            "PublishFailuresAlarm: nothing publishes 5XXError in AWS/ApiGateway ",
        ),
        (
            metrics.deaf_alarms,
            put(of("ThrottledAlarm", "Metrics/1/MetricStat/Metric/MetricName"), "Throttled"),
            "ThrottledAlarm: nothing publishes Throttled in AWS/Lambda ",
        ),
        (
            metrics.hasty_alarms,
            put(of("DueAgeAlarm", "Period"), 30),
            "DueAgeAlarm: looks at DueAgeSeconds every 30 seconds, and it is published every 60",
        ),
        (
            metrics.hasty_alarms,
            put(of("DrainTick1", "ScheduleExpression"), "rate(10 minutes)"),
            "DeadDeliveriesAlarm: looks at Dead every 300 seconds, and it is published every 600",
        ),
        (
            metrics.deaf_dashboards,
            replace(of("Dashboard", "DashboardBody/Fn::Sub"), "ClaimMsMax", "ClaimMs"),
            "Dashboard: Slowest claim and settle (ms): nothing publishes ClaimMs in leasehook/",
        ),
        (
            metrics.deaf_dashboards,
            replace(of("Dashboard", "DashboardBody/Fn::Sub"), '"4xx", "ApiId"', '"4xx", "ApiName"'),
            "Dashboard: Requests per minute: nothing publishes 4xx in AWS/ApiGateway ",
        ),
        (
            metrics.deaf_dashboards,
            replace(of("Dashboard", "DashboardBody/Fn::Sub"), '"widgets": [', '"widgets": [,'),
            "Dashboard: its body is not JSON: ",
        ),
        (
            metrics.deaf_dashboards,
            replace(of("Dashboard", "DashboardBody/Fn::Sub"), "outcome =", "verb ="),
            "Dashboard: The last deliveries that died: no attempt's line has a field verb",
        ),
        (
            rights.wrong_grants,
            put(of("MigrateRole", "ManagedPolicyArns/0"), "arn:aws:iam::aws:policy/ReadOnlyAccess"),
            "MigrateFunction: MigrateRole may * on arn:aws:iam::aws:policy/ReadOnlyAccess",
        ),
        (
            rights.wrong_grants,
            put(of("MaintainRole", "ManagedPolicyArns"), [{"Ref": "FunctionPolicy"}]),
            "MaintainFunction: MaintainRole lacks sqs:SendMessage on ${FailedRuns.Arn}",
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
    without_database = {**environment, "DATABASE_URL": NO_DATABASE}
    runs = [
        ("drain", "schedule-drain", environment),
        ("maintain", "schedule-health", environment),
        ("ingest", "http-api-publish", without_database),
        ("api", "http-api-publish", without_database),
    ]
    printed = {
        service: names
        for module, event, variables in runs
        for service, names in metrics_of(f"functions.{module}", event, variables)
    }
    assert printed == metrics.emitted_metrics()


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


def test_a_fault_of_one_shape_is_found_in_that_shape(written: Template) -> None:
    broken = deepcopy(written)
    put(of("IngestReleaseAlarm", "Metrics/1/MetricStat/Metric/MetricName"), "ServerError")(broken)
    put("Resources/FailurePolicy/Condition", "IsGradual")(broken)
    problems = [
        (problem.partition(":")[0], problem.rpartition(" (seen with: ")[2])
        for problem in check_template.problems_of(broken)
        if "ServerError " in problem or "refers to FailurePolicy" in problem
    ]
    assert sorted(problems) == [
        ("DrainRole", "plain)"),
        ("IngestReleaseAlarm", "gradual)"),
        ("MaintainRole", "plain)"),
        ("TickRole", "plain)"),
    ]


def test_a_schedule_that_starts_an_alias_is_recognised(written: Template) -> None:
    through_alias = deepcopy(written)
    put(of("DrainFunction", "AutoPublishAlias"), "live")(through_alias)
    put(of("DrainTick1", "Target/Arn"), {"Ref": "DrainFunction.Alias"})(through_alias)
    stack = expand(through_alias)
    assert [*settings.wrong_times(stack), *schedules.careless_schedules(stack)] == []
    drop(f"{DRAIN_TICK}/DeadLetterConfig")(through_alias)
    assert [*schedules.careless_schedules(expand(through_alias))]


def test_a_schedule_must_start_what_its_limits_are_set_for(written: Template) -> None:
    """What happens to a failed run is set per qualifier: an alias that nobody calls must not stand in."""
    aside = deepcopy(written)
    put(of("DrainFunction", "AutoPublishAlias"), "live")(aside)
    assert [*schedules.careless_schedules(expand(aside))]


def test_a_failed_run_is_not_repeated_but_a_tick_that_did_not_start_is(written: Template) -> None:
    """WH-033: retries are chosen, not left at their defaults."""
    stack = shape(written, "large")
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
        **{f"DrainTick{number}": 2 for number in range(1, 9)},
        "MeasureTick": 0,
        "MaintainTick": 3,
    }


@pytest.mark.parametrize("drains_per_tick", [1, 2, 4, 8])
def test_as_many_drains_start_each_minute_as_are_asked_for(
    written: Template, drains_per_tick: int
) -> None:
    stack = expand(written, {**SCENARIOS["plain"], "DrainsPerTick": str(drains_per_tick)})
    drains = [
        schedule
        for _, schedule in stack.of_type("AWS::Scheduler::Schedule")
        if schedule["Target"]["Arn"] == {"Fn::GetAtt": ["DrainFunction", "Arn"]}
    ]
    assert len(drains) == drains_per_tick
    assert {json.dumps(schedule, sort_keys=True) for schedule in drains} == {
        json.dumps(drains[0], sort_keys=True)
    }


def test_a_drain_has_the_slots_that_are_asked_for(written: Template) -> None:
    stack = expand(written, {**SCENARIOS["plain"], "DrainSlots": "600"})
    assert Settings.read(stack.environment("DrainFunction")).drain_concurrency == 600


def test_silence_of_the_queue_metrics_is_an_alarm(written: Template) -> None:
    missing = {
        logical_id: alarm["TreatMissingData"]
        for logical_id, alarm in shape(written, "gradual").of_type("AWS::CloudWatch::Alarm")
    }
    assert missing == {
        "DueAgeAlarm": "breaching",
        "DeadDeliveriesAlarm": "notBreaching",
        "PublishFailuresAlarm": "notBreaching",
        "FailedRunsAlarm": "notBreaching",
        "ThrottledAlarm": "notBreaching",
        "IngestReleaseAlarm": "notBreaching",
        "ApiReleaseAlarm": "notBreaching",
    }
    paused = dict(shape(written, "paused").of_type("AWS::CloudWatch::Alarm"))
    assert paused["DueAgeAlarm"]["TreatMissingData"] == "notBreaching"


def test_every_alarm_notifies_the_topic_but_those_that_only_turn_a_release_back(
    written: Template,
) -> None:
    notifying = {
        logical_id
        for logical_id, alarm in shape(written, "large").of_type("AWS::CloudWatch::Alarm")
        if alarm.get("AlarmActions")
        == alarm.get("OKActions")
        == [SCENARIOS["large"]["AlarmTopicArn"]]
    }
    alarms = {
        logical_id for logical_id, _ in shape(written, "large").of_type("AWS::CloudWatch::Alarm")
    }
    assert alarms - notifying == {"IngestReleaseAlarm", "ApiReleaseAlarm"}


LOGS = {
    ("logs:CreateLogStream", "${FunctionLogs.Arn}"),
    ("logs:PutLogEvents", "${FunctionLogs.Arn}"),
}
TO_FAILED_RUNS = {("sqs:SendMessage", "${FailedRuns.Arn}")}
START = {
    ("lambda:InvokeFunction", "${DrainFunction.Arn}"),
    ("lambda:InvokeFunction", "${MaintainFunction.Arn}"),
}
BY_CODEDEPLOY = {("*", "arn:aws:iam::aws:policy/service-role/AWSCodeDeployRoleForLambda")}
SECRET = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:"
READS_DATABASE_SECRET = {("secretsmanager:GetSecretValue", f"{SECRET}leasehook/database-AbCdEf")}
READS_RDS_SECRET = {("secretsmanager:GetSecretValue", f"{SECRET}rds!cluster-11111111-AbCdEf")}
READS_PARAMETER = {
    (
        "ssm:GetParameter",
        "arn:${AWS::Partition}:ssm:${AWS::Region}:${AWS::AccountId}:parameter/leasehook/database",
    )
}
READS_KEY = {("secretsmanager:GetSecretValue", f"{SECRET}leasehook/key-AbCdEf")}
DECRYPTS = {
    (
        "kms:Decrypt",
        "arn:aws:kms:eu-central-1:123456789012:key/11111111-2222-3333-4444-555555555555",
    )
}
SIGNS_IN = {
    ("rds-db:connect", "arn:aws:rds-db:eu-central-1:123456789012:dbuser:cluster-ABC/leasehook")
}
TRACES = {("xray:PutTelemetryRecords", "*"), ("xray:PutTraceSegments", "*")}
RUNS_IN_VPC = {
    ("ec2:AssignPrivateIpAddresses", "*"),
    ("ec2:CreateNetworkInterface", "*"),
    ("ec2:DeleteNetworkInterface", "*"),
    ("ec2:DescribeNetworkInterfaces", "*"),
    ("ec2:DescribeSubnets", "*"),
    ("ec2:UnassignPrivateIpAddresses", "*"),
}


@pytest.mark.parametrize(
    ("scenario", "all_functions", "sealing_functions", "others"),
    [
        ("plain", set(), set(), {}),
        ("paused", set(), set(), {}),
        ("secrets", READS_DATABASE_SECRET, READS_KEY, {}),
        ("password of RDS", READS_RDS_SECRET | DECRYPTS, set(), {}),
        ("parameter", READS_PARAMETER | DECRYPTS, READS_KEY | DECRYPTS, {}),
        ("IAM tokens", SIGNS_IN, set(), {}),
        ("VPC", RUNS_IN_VPC, set(), {}),
        ("gradual", set(), set(), {"CodeDeployServiceRole": BY_CODEDEPLOY}),
        (
            "large",
            READS_DATABASE_SECRET | DECRYPTS | RUNS_IN_VPC | TRACES,
            READS_KEY | DECRYPTS,
            {"CodeDeployServiceRole": BY_CODEDEPLOY},
        ),
    ],
)
def test_no_role_may_do_more_than_this(
    written: Template,
    scenario: str,
    all_functions: set[Grant],
    sealing_functions: set[Grant],
    others: dict[str, set[Grant]],
) -> None:
    stack = shape(written, scenario)
    allowed = {
        logical_id: grants_of(stack, logical_id)
        for logical_id, _ in stack.of_type("AWS::IAM::Role")
    }
    every = LOGS | all_functions
    assert allowed == {
        "IngestRole": every | sealing_functions,
        "ApiRole": every | sealing_functions,
        "DrainRole": every | sealing_functions | TO_FAILED_RUNS,
        "MaintainRole": every | TO_FAILED_RUNS,
        "MigrateRole": every,
        "TickRole": START | TO_FAILED_RUNS,
        **others,
    }


def test_every_shape_has_its_roles_listed_here() -> None:
    [marked] = [
        mark
        for mark in test_no_role_may_do_more_than_this.pytestmark  # type: ignore[attr-defined]
        if mark.name == "parametrize"
    ]
    assert {scenario for scenario, *_ in marked.args[1]} == set(SCENARIOS)


def test_a_key_is_only_used_through_the_service_that_keeps_the_secret(written: Template) -> None:
    for scenario, service in [("large", "secretsmanager"), ("parameter", "ssm")]:
        policies = dict(shape(written, scenario).of_type("AWS::IAM::ManagedPolicy"))
        [condition] = [
            statement["Condition"]
            for statement in policies["FunctionPolicy"]["PolicyDocument"]["Statement"]
            if statement["Action"] == "kms:Decrypt"
        ]
        through = {"Fn::Sub": f"{service}.${{AWS::Region}}.*"}
        assert condition == {"StringLike": {"kms:ViaService": through}}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_only_who_seals_or_opens_secrets_holds_the_key(written: Template, scenario: str) -> None:
    stack = shape(written, scenario)
    holders = {
        logical_id
        for logical_id, _ in stack.functions()
        if "LEASEHOOK_SECRET_KEY" in stack.environment(logical_id)
    }
    assert holders == {"ApiFunction", "DrainFunction", "IngestFunction"}


@pytest.mark.parametrize("scenario", ["secrets", "parameter", "large"])
def test_what_is_read_from_a_secret_is_in_no_environment(written: Template, scenario: str) -> None:
    stack = shape(written, scenario)
    for logical_id, _ in stack.functions():
        environment = stack.environment(logical_id)
        assert environment["DATABASE_URL"] == ""
        assert environment.get("LEASEHOOK_SECRET_KEY", f"secretsmanager:{SECRET}").startswith(
            f"secretsmanager:{SECRET}"
        )


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"DatabaseUrl": ""}, "Give DatabaseUrl, DatabaseSecretArn or DatabaseParameterName"),
        (
            {
                "DatabaseSecretArn": SCENARIOS["secrets"]["DatabaseSecretArn"],
                "DatabaseParameterName": "/leasehook",
            },
            "Give DatabaseSecretArn or DatabaseParameterName, not both",
        ),
        ({"DatabaseUrl": "-"}, "Give DatabaseUrl, DatabaseSecretArn or DatabaseParameterName"),
        ({"SecretKey": ""}, "Give SecretKey or SecretKeyArn, and not both"),
        ({"SecretKey": "-"}, "Give SecretKey or SecretKeyArn, and not both"),
        (
            {"SecretKeyArn": SCENARIOS["secrets"]["SecretKeyArn"]},
            "Give SecretKey or SecretKeyArn, and not both",
        ),
        (
            {
                "DatabaseUrl": "",
                "DatabaseParameterName": "/leasehook",
                "DatabaseIamResourceArn": SCENARIOS["IAM tokens"]["DatabaseIamResourceArn"],
            },
            "DatabaseIamResourceArn needs a DatabaseUrl with user, host and database",
        ),
        (
            {
                "DatabaseParameterName": "/leasehook",
                "DatabaseIamResourceArn": SCENARIOS["IAM tokens"]["DatabaseIamResourceArn"],
            },
            "DatabaseIamResourceArn replaces DatabaseSecretArn and DatabaseParameterName",
        ),
        (
            {"DrainsPerTick": "2", "DrainConcurrency": "3"},
            "DrainConcurrency must be 0 or at least 4 for 2 drains per tick, since they overlap",
        ),
        (
            {"DrainsPerTick": "4", "DrainConcurrency": "7"},
            "DrainConcurrency must be 0 or at least 8 for 4 drains per tick, since they overlap",
        ),
        (
            {"DrainsPerTick": "8", "DrainConcurrency": "15"},
            "DrainConcurrency must be 0 or at least 16 for 8 drains per tick, since they overlap",
        ),
    ],
)
def test_what_could_only_fail_later_is_refused_before_anything_changes(
    stack: Stack, changes: dict[str, str], complaint: str
) -> None:
    """On the transformed template: the rules have to come through the transform, too."""
    assert complaint in refusals(stack.written, {**SCENARIOS["plain"], **changes})


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_fits_together_is_not_refused(stack: Stack, scenario: str) -> None:
    assert list(refusals(stack.written, SCENARIOS[scenario])) == []
    for drains, concurrency in [("1", "2"), ("2", "4"), ("4", "8"), ("8", "16"), ("8", "0")]:
        parameters = {
            **SCENARIOS[scenario],
            "DrainsPerTick": drains,
            "DrainConcurrency": concurrency,
        }
        assert list(refusals(stack.written, parameters)) == []


def test_a_dash_stands_for_nothing(written: Template) -> None:
    """`sam deploy --guided` asks again and again for a hidden parameter that is left empty."""
    parameters = {**SCENARIOS["secrets"], "DatabaseUrl": "-", "SecretKey": "-"}
    stack = expand(written, parameters)
    assert list(refusals(stack.written, parameters)) == []
    for logical_id, _ in stack.functions():
        assert stack.environment(logical_id) == expand(written, SCENARIOS["secrets"]).environment(
            logical_id
        )


CALLABLE = {
    "${IngestFunction.Arn}",
    "${ApiFunction.Arn}",
    "${IngestFunctionAliaslive}",
    "${ApiFunctionAliaslive}",
}
"""Both, whichever is called: a permission that came with the change would come after it."""


def test_a_gradual_release_differs_from_the_version_before_it(written: Template) -> None:
    """Lambda refuses to publish a version that is like the last one, and one of before would have old settings."""
    releases = [
        expand(written, {**SCENARIOS["plain"], **parameters})
        for parameters in (
            {},
            {"Deployment": "Canary10Percent5Minutes"},
            {"Deployment": "Canary10Percent5Minutes", "Release": "2"},
        )
    ]
    for logical_id in ("IngestFunction", "ApiFunction"):
        names = [stack.environment(logical_id)["LEASEHOOK_RELEASE"] for stack in releases]
        assert len(set(names)) == 3
        [*described] = [
            text_of(version.get("Description", ""))
            for stack in releases
            for version_id, version in stack.of_type("AWS::Lambda::Version")
            if version_id.startswith(logical_id)
        ]
        assert described == names


def test_all_at_once_needs_no_codedeploy_and_calls_the_functions_themselves(stack: Stack) -> None:
    """New values of parameters publish no version: behind an alias they would not reach a request."""
    assert not [
        each for each in stack.resources.values() if each.type.startswith("AWS::CodeDeploy")
    ]
    assert called_functions(stack) == {
        ("POST", "/v1/events"): "${IngestFunction.Arn}",
        ("POST", "/v1/events/batch"): "${IngestFunction.Arn}",
        ("POST", "/in/{slug}"): "${IngestFunction.Arn}",
        ("X-AMAZON-APIGATEWAY-ANY-METHOD", "/{proxy+}"): "${ApiFunction.Arn}",
    }
    assert permitted_functions(stack) == CALLABLE


def test_a_gradual_deployment_moves_an_alias_that_the_api_calls(written: Template) -> None:
    stack = shape(written, "gradual")
    assert set(called_functions(stack).values()) == {
        "${IngestFunctionAliaslive}",
        "${ApiFunctionAliaslive}",
    }
    assert permitted_functions(stack) == CALLABLE
    groups = {
        logical_id: (
            text_of(group["DeploymentConfigName"]),
            [text_of(alarm["Name"]) for alarm in group["AlarmConfiguration"]["Alarms"]],
            group["AutoRollbackConfiguration"]["Enabled"],
        )
        for logical_id, group in stack.of_type("AWS::CodeDeploy::DeploymentGroup")
    }
    way = "CodeDeployDefault.LambdaCanary10Percent5Minutes"
    assert groups == {
        "IngestFunctionDeploymentGroup": (way, ["${IngestReleaseAlarm}"], True),
        "ApiFunctionDeploymentGroup": (way, ["${ApiReleaseAlarm}"], True),
    }
    for alias_id in ("IngestFunctionAliaslive", "ApiFunctionAliaslive"):
        assert "CodeDeployLambdaAliasUpdate" in stack.resources[alias_id].body["UpdatePolicy"]


def test_every_way_of_deploying_is_known_to_codedeploy(written: Template) -> None:
    ways = written["Parameters"]["Deployment"]["AllowedValues"]
    assert set(ways) == set(written["Mappings"]["ByCodeDeploy"])
    for way in ways[1:]:
        stack = expand(written, {**SCENARIOS["plain"], "Deployment": way})
        names = {
            text_of(group["DeploymentConfigName"])
            for _, group in stack.of_type("AWS::CodeDeploy::DeploymentGroup")
        }
        assert names == {f"CodeDeployDefault.Lambda{way}"}


def called_functions(stack: Stack) -> dict[tuple[str, str], str]:
    [(_, api)] = stack.of_type("AWS::ApiGatewayV2::Api")
    return {
        (method.upper(), path): text_of(operation["x-amazon-apigateway-integration"]["uri"])
        .partition("/functions/")[2]
        .removesuffix("/invocations")
        for path, methods in api["Body"]["paths"].items()
        for method, operation in methods.items()
    }


def permitted_functions(stack: Stack) -> set[str]:
    return {
        text_of(permission["FunctionName"])
        for _, permission in stack.of_type("AWS::Lambda::Permission")
    }


def test_less_is_logged_without_losing_metrics(written: Template) -> None:
    """Lambda takes a line without a level, as a metric's is, for INFO: above that it would drop it."""
    for level, ours, lambdas in [
        ("DEBUG", "DEBUG", "INFO"),
        ("INFO", "INFO", "INFO"),
        ("WARNING", "INFO", "WARN"),
        ("ERROR", "INFO", "WARN"),
    ]:
        stack = expand(written, {**SCENARIOS["plain"], "LogLevel": level})
        for logical_id, function in stack.functions():
            assert function["LoggingConfig"]["ApplicationLogLevel"] == ours
            assert function["LoggingConfig"]["SystemLogLevel"] == lambdas
            assert stack.environment(logical_id)["POWERTOOLS_LOG_LEVEL"] == level


def test_parameters_that_hold_secrets_are_not_echoed(written: Template) -> None:
    secret = {name for name, parameter in written["Parameters"].items() if parameter.get("NoEcho")}
    assert secret == {"DatabaseUrl", "SecretKey"}


@pytest.mark.parametrize(
    ("parameter", "value", "is_allowed"),
    [
        ("DatabaseUrl", "postgresql://user:password@host:5432/database", True),
        ("DatabaseUrl", "postgres://host/database?sslmode=verify-full", True),
        ("DatabaseUrl", "-", True),
        ("DatabaseUrl", "postgresql://leasehook@cluster.example:5432/leasehook", True),
        ("DatabaseUrl", "", True),
        ("DatabaseUrl", "host:5432", False),
        ("DatabaseSecretArn", "", True),
        ("DatabaseSecretArn", f"{SECRET}rds!cluster-0af7-AbCdEf", True),
        ("DatabaseSecretArn", f"{SECRET}leasehook", False),
        ("DatabaseSecretArn", "leasehook", False),
        ("DatabaseParameterName", "/leasehook/database", True),
        ("DatabaseParameterName", "leasehook", True),
        ("DatabaseParameterName", "/leasehook/*", False),
        ("DatabaseParameterName", "/leasehook/", False),
        ("DatabaseIamResourceArn", "arn:aws:rds-db:us-east-1:123456789012:dbuser:db-ABC/app", True),
        ("DatabaseIamResourceArn", "arn:aws:rds-db:us-east-1:123456789012:dbuser:*/*", False),
        ("SecretsKmsKeyArn", "arn:aws-cn:kms:cn-north-1:123456789012:key/0af7-1", True),
        ("SecretsKmsKeyArn", "arn:aws:kms:us-east-1:123456789012:alias/mine", False),
        ("SecretKeyArn", f"{SECRET}leasehook/key-AbCdEf", True),
        ("SecretKeyArn", f"{SECRET}*", False),
        ("SecretKey", "", True),
        ("AllowTargets", "10.1.0.0/16, fd00::/8", True),
        ("AllowTargets", "example.com", False),
        ("AlarmTopicArn", "arn:aws:sns:us-east-1:123456789012:alarms", True),
        ("AlarmTopicArn", "alarms", False),
        ("Release", "v1.2+3", True),
        ("Release", "two words", False),
        ("SecretKey", "A" * 43 + "=", True),
        ("SecretKey", "A" * 43 + "=," + "B" * 43 + "=", True),
        ("SecretKey", "-", True),
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


def test_the_routes_are_what_sam_would_make_of_events(written: Template, stack: Stack) -> None:
    """An import with warnings fails the deploy, and SAM knows what API Gateway wants to be told."""
    by_events = deepcopy(written)
    drop(of("Api", "DefinitionBody"))(by_events)
    for route, ((method, path), target) in enumerate(called_functions(stack).items()):
        function = target.removeprefix("${").removesuffix(".Arn}")
        is_any = method == "X-AMAZON-APIGATEWAY-ANY-METHOD"
        properties = {
            "ApiId": {"Ref": "Api"},
            "Method": "ANY" if is_any else method,
            "Path": path,
        }
        put(of(function, f"Events/Route{route}"), {"Type": "HttpApi", "Properties": properties})(
            by_events
        )
    for function in ("IngestFunction", "ApiFunction"):
        drop(of(function, "AutoPublishAlias"))(by_events)
        drop(of(function, "DeploymentPreference"))(by_events)
    ours, theirs = (
        {**api, "Body": with_plain_targets(api["Body"])}
        for each in (stack, expand(by_events))
        for _, api in each.of_type("AWS::ApiGatewayV2::Api")
    )
    assert ours == theirs


def with_plain_targets(body: Any) -> Any:
    match body:
        case {"uri": uri, **others}:
            return {"uri": text_of(uri), **others}
        case dict():
            return {key: with_plain_targets(value) for key, value in body.items()}
        case _:
            return body


def test_nothing_needs_more_than_the_capability_in_samconfig(written: Template) -> None:
    """IAM resources with names of their own would need CAPABILITY_NAMED_IAM."""
    configuration = tomllib.loads((TEMPLATE.parent / "samconfig.toml").read_text())["default"]
    assert configuration["deploy"]["parameters"]["capabilities"] == "CAPABILITY_IAM"
    for scenario in SCENARIOS:
        for resource in shape(written, scenario).resources.values():
            if resource.type.startswith("AWS::IAM::"):
                assert not {"RoleName", "ManagedPolicyName"} & resource.properties.keys()


def test_sam_local_starts_containers_when_they_are_needed_and_keeps_them() -> None:
    configuration = tomllib.loads((TEMPLATE.parent / "samconfig.toml").read_text())["default"]
    for command in ("local_start_api", "local_start_lambda"):
        assert configuration[command]["parameters"]["warm_containers"] == "LAZY"


def test_the_access_log_is_one_json_object_a_line(stack: Stack) -> None:
    [(_, stage)] = stack.of_type("AWS::ApiGatewayV2::Stage")
    line = json.loads(stage["AccessLogSettings"]["Format"])
    assert line["status"] == "$context.status"


def test_logs_do_not_grow_for_ever(stack: Stack) -> None:
    retention = {
        logical_id: group["RetentionInDays"]
        for logical_id, group in stack.of_type("AWS::Logs::LogGroup")
    }
    assert retention == {"FunctionLogs": 30, "AccessLogs": 30}
    for _, function in stack.functions():
        assert function["LoggingConfig"]["LogGroup"] == {"Ref": "FunctionLogs"}


def test_nothing_is_bound_to_one_region_partition_or_account(written: Template) -> None:
    text = json.dumps(written["Resources"]) + json.dumps(written["Outputs"])
    # Services call themselves the same in every partition.
    text = re.sub(r"(lambda|scheduler|apigateway)\.amazonaws\.com", "", text)
    assert not re.findall(r"arn:aws|amazonaws\.com|\b[a-z]{2}-[a-z]+-\d\b|\b\d{12}\b", text)


def test_no_resource_has_a_name_that_a_second_stack_would_want_too(stack: Stack) -> None:
    named = {
        (logical_id, key)
        for logical_id, resource in stack.resources.items()
        if resource.type != "AWS::Lambda::Alias"  # its name is the function's own
        for key in resource.properties
        if key in {"FunctionName", "QueueName", "LogGroupName", "RoleName", "AlarmName", "Name"}
        and isinstance(resource.properties[key], str)
    }
    assert named == set()
