"""What a cold start loads: these libraries and no others, so that one more is a decision and not an accident."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

from tests.support.lambda_events import http_api
from tests.support.world import World

ROOT = Path(__file__).parents[2]

EVERYWHERE = frozenset(
    {
        # Every line of the log, and the metrics.
        "aws_lambda_powertools",
        "jmespath",
        "typing_extensions",
        # The database.
        "psycopg",
        "psycopg_binary",
    }
)
SEALING = frozenset({"cryptography", "_cffi_backend"})
HTTP = frozenset(
    {
        "annotated_doc",
        "annotated_types",
        "anyio",
        "fastapi",
        "mangum",
        "msgspec",
        "opentelemetry",
        "pydantic",
        "pydantic_core",
        "starlette",
        "typing_inspection",
    }
)
AT_IMPORT: Mapping[str, frozenset[str]] = {
    "ingest": EVERYWHERE | SEALING | HTTP,
    "api": EVERYWHERE | SEALING | HTTP,
    "drain": EVERYWHERE | SEALING | {"httptools", "msgspec"},
    "maintain": EVERYWHERE | SEALING | {"msgspec"},
    "migrate": EVERYWHERE | SEALING,
}
NEVER = ("boto3", "botocore.session", "botocore.client", "aws_xray_sdk", "httpx", "jsonschema_rs")
"""Of the Lambda runtime's own, or for what is rare. Powertools imports the bare `botocore` to name itself to it."""

# Prints what a fresh interpreter has loaded after an import, and then after an invocation, if there is an event.
PROBE = """
import importlib, json, sys
before = set(sys.modules)
module = importlib.import_module(sys.argv[1])
at_import = sorted(set(sys.modules) - before)
if len(sys.argv) > 2:
    answer = module.handler(json.loads(sys.argv[2]), None)
    assert answer.get("statusCode", 200) < 300, answer
print(json.dumps([at_import, sorted(set(sys.modules) - before)]))
"""


def loaded(
    function: str, event: object = None, environment: Mapping[str, str] | None = None
) -> tuple[list[str], list[str]]:
    """The modules that a function has loaded when it is imported, and after an invocation with an event."""
    arguments = [] if event is None else [json.dumps(event)]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, f"functions.{function}", *arguments],
        cwd=ROOT,
        env=dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    at_import, at_last = json.loads(done.stdout.splitlines()[-1])
    return at_import, at_last


@cache
def shipped() -> frozenset[str]:
    """The distributions of the Lambda package: the project's dependencies, and theirs."""
    found: set[str] = set()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    left = [_name(each) for each in project["dependencies"]]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            try:
                needed = requires(name) or ()
            except PackageNotFoundError:  # for another platform
                continue
            left += [_name(each) for each in needed if "extra ==" not in each]
    # Extras that the project asks for.
    return frozenset(found | {"psycopg-binary"})


def _name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found
    return found[0].lower().replace("_", "-")


def libraries(modules: list[str]) -> set[str]:
    """The top-level modules of other people's libraries that the Lambda package has."""
    roots = {module.partition(".")[0] for module in modules}
    owners = packages_distributions()
    return {
        root
        for root in roots
        if any(name.lower().replace("_", "-") in shipped() for name in owners.get(root, ()))
    }


def unexpected(function: str, modules: list[str], expected: frozenset[str]) -> list[str]:
    """What is too much or too little, in words."""
    found = libraries(modules)
    return (
        [f"functions.{function} loads {name}, which is not expected" for name in found - expected]
        + [f"functions.{function} no longer loads {name}" for name in expected - found]
        + [
            f"functions.{function} loads {name}, which is for what is rare"
            for name in NEVER
            if name in modules
        ]
    )


@pytest.mark.parametrize("function", AT_IMPORT)
def test_a_function_loads_these_libraries_and_no_others(function: str) -> None:
    at_import, _ = loaded(function)
    assert unexpected(function, at_import, AT_IMPORT[function]) == []


@pytest.mark.parametrize("function", AT_IMPORT)
def test_an_invocation_loads_nothing_that_its_caller_waits_for(
    world: World, database_url: str, function: str
) -> None:
    """An empty drain with all its tools, a publish, a list, maintenance and a migration of a current database."""
    bearer = {"authorization": f"Bearer {world.key()}"}
    events: dict[str, object] = {
        "ingest": http_api("POST", "/v1/events", b'{"type": "order.paid", "payload": 1}', bearer),
        "api": http_api("GET", "/v1/endpoints", headers=bearer),
    }
    environment = world.environment(database_url, POWERTOOLS_METRICS_NAMESPACE="Leasehook")
    at_import, at_last = loaded(function, events.get(function, {}), environment)
    assert unexpected(function, at_last, AT_IMPORT[function]) == []
    assert libraries(at_last) == libraries(at_import)


def test_the_drain_and_what_has_no_http_load_no_web_framework() -> None:
    for function in ("drain", "maintain", "migrate"):
        at_import, _ = loaded(function)
        roots = {module.partition(".")[0] for module in at_import}
        assert not roots & {"fastapi", "starlette", "pydantic", "mangum", "httpx", "boto3"}


def test_a_library_more_is_named() -> None:
    modules = ["psycopg", "jsonschema_rs", "anyio._core"]
    assert sorted(unexpected("drain", modules, frozenset({"psycopg", "msgspec"}))) == [
        "functions.drain loads anyio, which is not expected",
        "functions.drain loads jsonschema_rs, which is for what is rare",
        "functions.drain loads jsonschema_rs, which is not expected",
        "functions.drain no longer loads msgspec",
    ]
