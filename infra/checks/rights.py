"""What each function may do, beside what it needs."""

from collections.abc import Iterator
from typing import Any

from infra.stack import Stack, references, text_of

Grant = tuple[str, str]
"""An action and the resource that it is allowed on."""

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
