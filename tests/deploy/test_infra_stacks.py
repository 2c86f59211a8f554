"""The optional network and database: safe by themselves, and their outputs are what the template takes."""

import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from infra import check_template
from infra.check_template import SURROUNDINGS, TEMPLATE, expand
from infra.stack import Stack, evaluate, read_template, references, refusals, text_of
from shared.config import Settings
from shared.store.credentials import FromSecret

NETWORK, DATABASE = SURROUNDINGS
THREE_ZONES = {"Zones": "3", "NatGateways": "OnePerZone"}
EVERY_NETWORK = [{}, {"Zones": "3"}, {"NatGateways": "OnePerZone"}, THREE_ZONES]
KMS_KEY = "arn:aws:kms:eu-central-1:123456789012:key/11111111-2222-3333-4444-555555555555"
SEALING_KEY = {"SecretKey": "A" * 43 + "="}

# What AWS would fill in.
SAMPLES = {
    "AWS::StackName": "leasehook-network",
    "AWS::Partition": "aws",
    "AWS::Region": "eu-central-1",
    "AWS::AccountId": "123456789012",
    "PrivateSubnetA": "subnet-0aaaaaaaaaaaaaaaa",
    "PrivateSubnetB": "subnet-0bbbbbbbbbbbbbbbb",
    "PrivateSubnetC": "subnet-0cccccccccccccccc",
    "FunctionSecurityGroup": "sg-0ffffffffffffffff",
    "DatabaseSecurityGroup": "sg-0dddddddddddddddd",
    "Vpc": "vpc-0eeeeeeeeeeeeeeee",
    "NatAddressA.PublicIp": "203.0.113.1",
    "NatAddressB.PublicIp": "203.0.113.2",
    "NatAddressC.PublicIp": "203.0.113.3",
    "Cluster.Endpoint.Address": "leasehook-database.cluster-c1a2b3.eu-central-1.rds.amazonaws.com",
    "Cluster.Endpoint.Port": "5432",
    "Cluster.DBClusterResourceId": "cluster-ABCDEFGHIJKLMNOP",
    "Cluster.MasterUserSecret.SecretArn": (
        "arn:aws:secretsmanager:eu-central-1:123456789012:secret:rds!cluster-0af7-11e9-AbCdEf"
    ),
}


def network(parameters: dict[str, str]) -> Stack:
    return evaluate(read_template(NETWORK), parameters)


def database(parameters: dict[str, str], of_network: dict[str, str] | None = None) -> Stack:
    exports = {
        filled(output["Export"]["Name"]): filled(output["Value"])
        for output in network(of_network or {}).outputs.values()
        if "Export" in output
    }
    return evaluate(read_template(DATABASE), parameters, exports)


def filled(node: object) -> str:
    """The text that a value comes to in an account."""
    return re.sub(r"\$\{([^}]+)\}", lambda found: SAMPLES[found[1]], text_of(node))


def outputs(stack: Stack) -> dict[str, str]:
    return {name: filled(output["Value"]) for name, output in stack.outputs.items()}


@pytest.mark.parametrize("parameters", EVERY_NETWORK)
def test_the_network_is_whole_in_every_shape(parameters: dict[str, str]) -> None:
    stack = network(parameters)
    assert list(refusals(stack.written, parameters)) == []
    assert [found for check in check_template.STRUCTURE_CHECKS for found in check(stack)] == []


@pytest.mark.parametrize(
    "parameters", [{}, {"Instances": "2"}, {"KmsKeyArn": KMS_KEY}, {"MinimumCapacity": "0"}]
)
def test_the_database_is_whole_in_every_shape(parameters: dict[str, str]) -> None:
    stack = database(parameters)
    assert list(refusals(stack.written, parameters)) == []
    assert [found for check in check_template.STRUCTURE_CHECKS for found in check(stack)] == []


@pytest.mark.parametrize(
    ("path", "break_it", "problem"),
    [
        (
            NETWORK,
            lambda template: template["Resources"]["NatC"].pop("Condition"),
            "NatC: refers to NatAddressC, which does not exist",
        ),
        (
            DATABASE,
            lambda template: template["Resources"]["ServerLog"].update(DependsOn="Cluster"),
            "resources depend on each other: ",
        ),
    ],
)
def test_a_fault_in_them_is_found(
    path: Path, break_it: Callable[[dict[str, Any]], object], problem: str
) -> None:
    broken = deepcopy(read_template(path))
    break_it(broken)
    found = list(check_template.problems_of_surroundings(broken))
    assert [each for each in found if each.startswith(problem)]


def routes_from(stack: Stack, subnet: str) -> Iterator[dict[str, Any]]:
    for _, association in stack.of_type("AWS::EC2::SubnetRouteTableAssociation"):
        if association["SubnetId"] == {"Ref": subnet}:
            for _, route in stack.of_type("AWS::EC2::Route"):
                if route["RouteTableId"] == association["RouteTableId"]:
                    yield dict(route)


@pytest.mark.parametrize("parameters", EVERY_NETWORK)
def test_functions_reach_the_internet_through_a_gateway_and_are_not_reached(
    parameters: dict[str, str],
) -> None:
    stack = network(parameters)
    zones = int(parameters.get("Zones", "2"))
    private = text_of(stack.outputs["SubnetIds"]["Value"]).split(",")
    assert len(private) == zones
    gateways = set()
    for subnet in private:
        [route] = routes_from(stack, subnet.strip("${}"))
        assert route["DestinationCidrBlock"] == "0.0.0.0/0"
        gateways.add(text_of(route["NatGatewayId"]).strip("${}"))
    assert len(gateways) == (zones if parameters.get("NatGateways") == "OnePerZone" else 1)
    assert gateways == {name for name, _ in stack.of_type("AWS::EC2::NatGateway")}
    for gateway in gateways:
        [place] = references(stack.resources[gateway].properties["SubnetId"])
        [route] = routes_from(stack, place)
        assert route["GatewayId"] == {"Ref": "InternetGateway"}
    assert len(outputs(stack)["DeliveryAddresses"].split(",")) == len(gateways)


def test_each_zone_has_its_own_gateway_in_the_same_zone() -> None:
    stack = network(THREE_ZONES)
    for letter in "ABC":
        [route] = routes_from(stack, f"PrivateSubnet{letter}")
        gateway = stack.resources[text_of(route["NatGatewayId"]).strip("${}")]
        [place] = references(gateway.properties["SubnetId"])
        zones = {
            json.dumps(stack.resources[name].properties["AvailabilityZone"])
            for name in (place, f"PrivateSubnet{letter}")
        }
        assert len(zones) == 1


def test_subnets_do_not_overlap_and_fit_into_the_smallest_network_allowed() -> None:
    stack = network({**THREE_ZONES, "VpcCidr": "10.0.0.0/22"})
    blocks: list[ipaddress.IPv4Network] = []
    for _, subnet in stack.of_type("AWS::EC2::Subnet"):
        [index, cut] = subnet["CidrBlock"]["Fn::Select"]
        [whole, count, bits] = cut["Fn::Cidr"]
        pieces = list(ipaddress.IPv4Network(whole).subnets(new_prefix=32 - int(bits)))
        assert len(pieces) >= int(count)
        blocks.append(pieces[int(index)])
    assert len(blocks) == 6
    assert not any(left.overlaps(right) for left, right in combinations(blocks, 2))


def test_only_the_functions_reach_the_database_and_only_its_port() -> None:
    groups = dict(network({}).of_type("AWS::EC2::SecurityGroup"))
    [rule] = groups["DatabaseSecurityGroup"]["SecurityGroupIngress"]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 5432, 5432)
    assert rule["SourceSecurityGroupId"] == {"Ref": "FunctionSecurityGroup"}
    assert not {"CidrIp", "CidrIpv6"} & rule.keys()
    assert "SecurityGroupIngress" not in groups["FunctionSecurityGroup"]
    [out] = groups["DatabaseSecurityGroup"]["SecurityGroupEgress"]
    assert out["CidrIp"] == "127.0.0.1/32"


@pytest.mark.parametrize("instances", [1, 2])
def test_the_database_is_encrypted_private_backed_up_and_survives_its_stack(instances: int) -> None:
    stack = database({"Instances": str(instances)})
    cluster = stack.resources["Cluster"]
    assert cluster.body["DeletionPolicy"] == cluster.body["UpdateReplacePolicy"] == "Snapshot"
    properties = cluster.properties
    assert properties["StorageEncrypted"] is True
    assert properties["DeletionProtection"] == "true"
    assert properties["BackupRetentionPeriod"] == 7
    assert properties["EnableIAMDatabaseAuthentication"] is True
    assert properties["ManageMasterUserPassword"] is True
    assert "MasterUserPassword" not in properties
    parameters = stack.resources["ClusterParameters"].properties
    assert parameters["Parameters"]["rds.force_ssl"] == "1"
    assert "log_min_duration_statement" not in parameters["Parameters"], "it writes payloads"
    machines = [machine for _, machine in stack.of_type("AWS::RDS::DBInstance")]
    assert len(machines) == instances
    assert all(machine["PubliclyAccessible"] is False for machine in machines)


def test_the_log_has_an_end_and_is_made_before_the_database_writes_it() -> None:
    stack = database({})
    log = stack.resources["ServerLog"].properties
    cluster = stack.resources["Cluster"]
    [kind] = cluster.properties["EnableCloudwatchLogsExports"]
    name = text_of(cluster.properties["DBClusterIdentifier"])
    assert log["LogGroupName"] == {"Fn::Sub": f"/aws/rds/cluster/{name}/{kind}"}
    assert log["RetentionInDays"] == 30
    assert cluster.body["DependsOn"] == "ServerLog"


@pytest.mark.parametrize(
    ("version", "family"), [("15.10", "aurora-postgresql15"), ("17.7", "aurora-postgresql17")]
)
def test_parameters_are_those_of_the_engine(version: str, family: str) -> None:
    stack = database({"EngineVersion": version})
    assert stack.resources["ClusterParameters"].properties["Family"] == family


def test_a_database_that_may_pause_says_when() -> None:
    pausing = database({"MinimumCapacity": "0"}).resources["Cluster"].properties
    running = database({}).resources["Cluster"].properties
    assert pausing["ServerlessV2ScalingConfiguration"]["SecondsUntilAutoPause"] == 3600
    assert "SecondsUntilAutoPause" not in running["ServerlessV2ScalingConfiguration"]


@pytest.mark.parametrize("of_network", EVERY_NETWORK)
@pytest.mark.parametrize("parameters", [{}, {"KmsKeyArn": KMS_KEY}])
def test_what_they_put_out_is_what_the_template_takes(
    of_network: dict[str, str], parameters: dict[str, str]
) -> None:
    text = outputs(database(parameters, of_network))["ParameterOverrides"]
    overrides = dict(part.split("=", 1) for part in text.split())
    assert overrides.get("SecretsKmsKeyArn") == parameters.get("KmsKeyArn")
    assert all(overrides.values()), "sam deploy refuses a parameter without a value"
    given = {**overrides, **SEALING_KEY}
    stack = expand(read_template(TEMPLATE), given)
    assert list(refusals(stack.written, given)) == []
    assert [found for check in check_template.CHECKS for found in check(stack)] == []
    for logical_id, function in stack.functions():
        assert len(function["VpcConfig"]["SubnetIds"]) == int(of_network.get("Zones", "2"))
        assert function["VpcConfig"]["SecurityGroupIds"] == [SAMPLES["FunctionSecurityGroup"]]
        settings = Settings.read(stack.environment(logical_id))
        assert ":" not in settings.require_database_url().partition("@")[0].partition("//")[2]
        assert isinstance(settings.database_credentials, FromSecret)


def test_iam_tokens_are_for_a_user_of_their_own() -> None:
    """A user that signs in with tokens can no longer do so with a password, and RDS keeps the master's."""
    stack = database({})
    found = outputs(stack)
    master = stack.resources["Cluster"].properties["MasterUsername"]
    user = found["DatabaseIamResourceArn"].rpartition("/")[2]
    assert user != master
    given = {
        "DatabaseUrl": found["DatabaseUrl"].replace(f"//{master}@", f"//{user}@"),
        "DatabaseIamResourceArn": found["DatabaseIamResourceArn"],
        **SEALING_KEY,
    }
    assert list(refusals(read_template(TEMPLATE), given)) == []


@pytest.mark.parametrize("path", SURROUNDINGS)
def test_they_grant_nobody_anything(path: Path) -> None:
    kinds = {resource["Type"] for resource in read_template(path)["Resources"].values()}
    assert not [kind for kind in kinds if "IAM" in kind or "Policy" in kind]


@pytest.mark.parametrize("path", SURROUNDINGS)
def test_nothing_in_them_is_bound_to_one_region_or_account(path: Path) -> None:
    template = read_template(path)
    text = json.dumps(template["Resources"]) + json.dumps(template["Outputs"])
    text = text.replace("com.amazonaws.${AWS::Region}.s3", "")
    assert not re.findall(r"arn:aws:|amazonaws\.com|\b[a-z]{2}-[a-z]+-\d\b|\b\d{12}\b", text)
