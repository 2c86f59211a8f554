"""The stack is made, by moto's CloudFormation: resources and what is in them, not only what the template says.

moto leaves NoValue in lists, so it gets each shape with its conditions applied. It cannot make everything; what it
cannot is listed here, and looked at in the template's own tests.
"""

import ast
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import boto3
import pytest
from moto import mock_aws

from infra.check_template import SCENARIOS, TEMPLATE, expand
from infra.stack import Stack, read_template, references
from shared.config import Settings
from shared.secret_values import SecretReference
from shared.store.credentials import FromSecret, IamToken, InUrl

REGION: Final = "eu-central-1"
NAME = "leasehook"
NOT_MADE_BY_MOTO = {
    "AWS::ApiGatewayV2::Api",
    "AWS::ApiGatewayV2::Stage",
    "AWS::CloudWatch::Alarm",
    "AWS::CodeDeploy::Application",
    "AWS::CodeDeploy::DeploymentGroup",
    "AWS::Lambda::Alias",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Scheduler::Schedule",
}
"""Permissions are left out with them where they are an alias's."""

Statement = tuple[str, str]


@dataclass(frozen=True)
class Made:
    """A stack that exists. `names` are the physical names by logical id."""

    shape: Stack
    names: Mapping[str, str]
    types: Mapping[str, str]
    outputs: Mapping[str, str]

    def function(self, logical_id: str) -> dict[str, Any]:
        client = boto3.client("lambda")
        return dict(client.get_function_configuration(FunctionName=self.names[logical_id]))

    def statements(self, role_id: str) -> set[Statement]:
        """What the role's policies say, read back from IAM; names of this stack's resources are their logical ids."""
        iam = boto3.client("iam")
        role = self.names[role_id]
        documents = [
            iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
            for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
        ]
        for policy in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
            version = iam.get_policy_version(PolicyArn=policy["PolicyArn"], VersionId="v1")
            documents.append(version["PolicyVersion"]["Document"])
        return {
            (action, self._logical(resource))
            for document in documents
            for statement in _parsed(document)["Statement"]
            for action in _many(statement["Action"])
            for resource in _many(statement["Resource"])
        }

    def _logical(self, arn: str) -> str:
        for logical_id, name in self.names.items():
            if name and arn.endswith(name.rpartition("/")[2]):
                return logical_id
        return arn


def _parsed(document: Any) -> dict[str, Any]:
    """moto keeps a role's own policies as Python writes them."""
    return dict(ast.literal_eval(document) if isinstance(document, str) else document)


def _many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    return read_template(TEMPLATE)


@pytest.fixture(scope="module", params=SCENARIOS)
def scenario(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def made(template: dict[str, Any], scenario: str) -> Iterator[Made]:
    with pytest.MonkeyPatch.context() as environment, mock_aws():
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.setenv(key, "test")
        environment.setenv("AWS_DEFAULT_REGION", REGION)
        environment.setattr(boto3, "DEFAULT_SESSION", None)
        upload_code()
        parameters = in_a_network(SCENARIOS[scenario])
        shape = expand(template, parameters)
        cloudformation = boto3.client("cloudformation")
        cloudformation.create_stack(
            StackName=NAME,
            TemplateBody=what_moto_can_make(shape),
            Capabilities=["CAPABILITY_IAM"],
        )
        [stack] = cloudformation.describe_stacks(StackName=NAME)["Stacks"]
        resources = cloudformation.describe_stack_resources(StackName=NAME)["StackResources"]
        made = Made(
            shape=shape,
            names={
                each["LogicalResourceId"]: each.get("PhysicalResourceId", "") for each in resources
            },
            types={each["LogicalResourceId"]: each["ResourceType"] for each in resources},
            outputs={each["OutputKey"]: each["OutputValue"] for each in stack["Outputs"]},
        )
        attach_policies(made)
        yield made


def attach_policies(made: Made) -> None:
    """moto makes roles without their ManagedPolicyArns."""
    for logical_id, role in made.shape.of_type("AWS::IAM::Role"):
        for policy in role.get("ManagedPolicyArns", []):
            if policy in ({"Ref": logical_id} for logical_id in made.names):
                boto3.client("iam").attach_role_policy(
                    RoleName=made.names[logical_id], PolicyArn=made.names[policy["Ref"]]
                )


def upload_code() -> None:
    """An archive where `sam package` would have put ours."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("functions/__init__.py", "")
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket="bucket", Key="key", Body=archive.getvalue())


def in_a_network(parameters: Mapping[str, str]) -> dict[str, str]:
    """The same, in subnets that exist, if it is in any."""
    if "SubnetIds" not in parameters:
        return dict(parameters)
    ec2 = boto3.client("ec2")
    subnets = [each["SubnetId"] for each in ec2.describe_subnets()["Subnets"]][:2]
    [group, *_] = ec2.describe_security_groups()["SecurityGroups"]
    return {
        **parameters,
        "SubnetIds": ",".join(subnets),
        "SecurityGroupIds": group["GroupId"],
    }


def what_moto_can_make(shape: Stack) -> str:
    left_out = {
        logical_id
        for logical_id, resource in shape.resources.items()
        if resource.type in NOT_MADE_BY_MOTO
    }
    left_out |= {
        logical_id
        for logical_id, permission in shape.of_type("AWS::Lambda::Permission")
        if left_out & set(references(permission["FunctionName"]))
    }
    template = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Mappings": shape.written["Mappings"],
        "Resources": {
            logical_id: {key: value for key, value in resource.body.items() if key != "Condition"}
            for logical_id, resource in shape.resources.items()
            if logical_id not in left_out
        },
        "Outputs": {
            name: output
            for name, output in shape.outputs.items()
            if not left_out & set(references(output))
        },
    }
    # What the others say about the API, without there being one.
    return json.dumps(template).replace("${Api}", "Api")


FUNCTIONS = {
    "IngestFunction": ("functions.ingest.handler", 20, 512),
    "ApiFunction": ("functions.api.handler", 25, 512),
    "DrainFunction": ("functions.drain.handler", 90, 512),
    "MaintainFunction": ("functions.maintain.handler", 300, 256),
    "MigrateFunction": ("functions.migrate.handler", 900, 256),
}


def test_everything_is_made_that_moto_can_make(made: Made) -> None:
    expected = {
        logical_id: resource.type
        for logical_id, resource in made.shape.resources.items()
        if resource.type not in NOT_MADE_BY_MOTO
    }
    missing = set(expected) - set(made.types)
    assert all(expected[each] == "AWS::Lambda::Permission" for each in missing)
    assert {each: made.types[each] for each in made.types} == {
        each: kind for each, kind in expected.items() if each not in missing
    }
    nameless = {made.types[each] for each, name in made.names.items() if not name}
    assert nameless <= {"AWS::Lambda::Permission", "AWS::Lambda::Version"}, "moto names all others"


def test_functions_run_with_their_limits_and_settings_that_they_accept(
    made: Made, scenario: str
) -> None:
    parameters = SCENARIOS[scenario]
    for logical_id, (handler, timeout_seconds, megabytes) in FUNCTIONS.items():
        function = made.function(logical_id)
        assert (function["Handler"], function["Timeout"], function["MemorySize"]) == (
            handler,
            timeout_seconds,
            megabytes,
        )
        assert function["Runtime"] == "python3.13"
        assert function["Role"].endswith(made.names[logical_id.replace("Function", "Role")])
        is_in_vpc = bool(function.get("VpcConfig", {}).get("SubnetIds"))
        assert is_in_vpc == ("SubnetIds" in parameters)
        settings = Settings.read(function["Environment"]["Variables"])
        assert settings.metrics_namespace == f"leasehook/{NAME}"
        match settings.database_credentials:
            case InUrl():
                assert parameters.keys() & {"DatabaseUrl"}
            case FromSecret(reference):
                assert reference.name in parameters.values()
            case IamToken():
                assert "DatabaseIamResourceArn" in parameters
        match settings.secret_keys:
            case SecretReference() as reference:
                assert reference.name == parameters["SecretKeyArn"]
            case tuple() as keys:
                assert len(keys) == (logical_id not in {"MaintainFunction", "MigrateFunction"})


def test_roles_are_allowed_in_iam_what_the_template_says(made: Made, scenario: str) -> None:
    """The template's tests say, one by one, which grants there should be; these are those that arrive."""
    parameters = SCENARIOS[scenario]
    logs = {("logs:CreateLogStream", "FunctionLogs"), ("logs:PutLogEvents", "FunctionLogs")}
    to_failed_runs = {("sqs:SendMessage", "FailedRuns")}
    database: set[Statement] = set()
    key: set[Statement] = set()
    decrypts = {("kms:Decrypt", parameters.get("SecretsKmsKeyArn", ""))}
    is_ours = "SecretsKmsKeyArn" in parameters
    if arn := parameters.get("DatabaseSecretArn"):
        database = {("secretsmanager:GetSecretValue", arn), *(decrypts if is_ours else ())}
    if name := parameters.get("DatabaseParameterName"):
        arn = f"arn:aws:ssm:{REGION}:123456789012:parameter{name}"
        database = {("ssm:GetParameter", arn), *(decrypts if is_ours else ())}
    if arn := parameters.get("DatabaseIamResourceArn"):
        database = {("rds-db:connect", arn)}
    if arn := parameters.get("SecretKeyArn"):
        key = {("secretsmanager:GetSecretValue", arn), *(decrypts if is_ours else ())}
    by_lambda_and_tracing = {
        (action, resource)
        for action, resource in made.statements("MigrateRole")
        if action.startswith(("ec2:", "xray:")) and resource == "*"
    }
    assert bool(by_lambda_and_tracing) == bool(parameters.keys() & {"SubnetIds", "Tracing"})
    every = logs | database | by_lambda_and_tracing
    assert made.statements("MigrateRole") == every
    assert made.statements("MaintainRole") == every | to_failed_runs
    assert made.statements("DrainRole") == every | to_failed_runs | key
    assert made.statements("IngestRole") == every | key
    assert made.statements("ApiRole") == every | key
    assert made.statements("TickRole") == to_failed_runs | {
        ("lambda:InvokeFunction", "DrainFunction"),
        ("lambda:InvokeFunction", "MaintainFunction"),
    }


def test_logs_are_kept_for_a_while_and_failed_runs_for_two_weeks(made: Made) -> None:
    groups = boto3.client("logs").describe_log_groups()["logGroups"]
    assert {group["logGroupName"]: group["retentionInDays"] for group in groups} == {
        made.names["FunctionLogs"]: 30,
        made.names["AccessLogs"]: 30,
    }
    attributes = boto3.client("sqs").get_queue_attributes(
        QueueUrl=made.outputs["FailedRunsUrl"], AttributeNames=["All"]
    )["Attributes"]
    assert attributes["MessageRetentionPeriod"] == str(14 * 24 * 60 * 60)
    assert attributes["SqsManagedSseEnabled"] == "true"


def test_the_dashboard_is_drawn_of_this_stacks_own_metrics(made: Made) -> None:
    [entry] = boto3.client("cloudwatch").list_dashboards()["DashboardEntries"]
    text = boto3.client("cloudwatch").get_dashboard(DashboardName=entry["DashboardName"])[
        "DashboardBody"
    ]
    body = json.loads(text)
    assert "${" not in text
    assert f"leasehook/{NAME}" in text
    assert made.names["IngestFunction"] in text
    assert {widget["properties"]["region"] for widget in body["widgets"]} == {REGION}
    assert entry["DashboardName"] in made.outputs["DashboardUrl"]


def test_outputs_are_commands_to_paste(made: Made) -> None:
    assert made.outputs["MigrateCommand"] == (
        f"aws lambda invoke --region {REGION} --cli-read-timeout 0 "
        f"--function-name {made.names['MigrateFunction']} /dev/stdout"
    )
    assert made.outputs["LogsCommand"].endswith(f"--follow {made.names['FunctionLogs']}")
    for name, function, event in [
        ("DrainCommand", "DrainFunction", {"once": True}),
        ("FirstKeyCommand", "MigrateFunction", {"api_key": "first"}),
    ]:
        assert f"--function-name {made.names[function]} " in made.outputs[name]
        payload = re.search(r"--payload '(.+)' /dev/stdout$", made.outputs[name])
        assert payload is not None
        assert json.loads(payload[1]) == event
    for logical_id in FUNCTIONS:
        assert made.outputs[f"{logical_id}Name"] == made.names[logical_id]
