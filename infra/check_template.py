"""Check the deployment templates offline, for what otherwise only a failed deploy, or silence after one, would show.

    python -m infra.check_template [template.yaml]

The template goes through the real SAM transform, in every shape that its parameters give it, and each check reads what
CloudFormation would get. Without an argument the optional templates in infra/aws are checked, too.
"""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from infra.checks.metrics import deaf_alarms, deaf_dashboards, hasty_alarms
from infra.checks.rights import wrong_grants
from infra.checks.schedules import careless_schedules
from infra.checks.settings import unknown_variables, wrong_settings, wrong_times
from infra.checks.structure import dangling_references, dependency_cycles, missing_handlers
from infra.stack import Stack, Template, evaluate, read_template, refusals, transform

ROOT = Path(__file__).parent.parent
TEMPLATE = ROOT / "template.yaml"
SURROUNDINGS = (ROOT / "infra/aws/network.yaml", ROOT / "infra/aws/database.yaml")
"""Templates of what a user may have already."""

LINTED_REGIONS = ("us-east-1", "eu-central-1", "cn-north-1")
"""Two of the commercial partition, and one of another."""

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

Check = Callable[[Stack], Iterator[str]]


def expand(template: Template, parameters: Mapping[str, str] = SCENARIOS["plain"]) -> Stack:
    """One shape of the template, as CloudFormation would make it.

    Raises:
        samtranslator.model.exceptions.InvalidDocumentException: the transform refuses the template.
    """
    return evaluate(transform(template, parameters), parameters)


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
