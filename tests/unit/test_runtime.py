"""The composition root: what it makes, when, and what a process never imports."""

import base64
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore.client
import pytest
from moto import mock_aws

from infra.cli.connection import found_settings
from shared.crypto import Sealer
from shared.errors import ConfigurationError, DatabaseUnavailable
from shared.runtime import Runtime

ROOT = Path(__file__).parents[2]
KEY = base64.b64encode(b"k" * 32).decode()
OTHER_KEY = base64.b64encode(b"o" * 32).decode()
NAME = "leasehook/key"
ENVIRONMENT = {
    "DATABASE_URL": "postgresql://127.0.0.1:1/nowhere",
    "LEASEHOOK_SECRET_KEY": f"secretsmanager:{NAME}",
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The operations that AWS was asked for."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    asked: list[str] = []
    clients: Any = botocore.client.BaseClient
    call = clients._make_api_call

    def counting(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
        asked.append(operation)
        return call(client, operation, parameters)

    monkeypatch.setattr(clients, "_make_api_call", counting)
    with mock_aws():
        yield asked


def keep(text: str) -> None:
    boto3.client("secretsmanager").create_secret(Name=NAME, SecretString=text)


def test_a_sealing_key_is_fetched_once_when_it_is_needed(asked: list[str]) -> None:
    keep(f"{KEY},{OTHER_KEY}\n")
    runtime = Runtime.read(ENVIRONMENT)
    assert asked == ["CreateSecret"]
    sealed = runtime.sealer.seal(b"secret", b"context")
    assert Sealer([b"k" * 32]).open(sealed, b"context") == b"secret"
    old = Sealer([b"o" * 32]).seal(b"older", b"context")
    assert runtime.sealer.open(old, b"context") == b"older"
    assert asked == ["CreateSecret", "GetSecretValue"]


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("text", ["hidden", f"{KEY},hidden", ","])
def test_a_sealing_key_that_is_none_is_said_without_its_text(text: str) -> None:
    keep(text)
    with pytest.raises(ConfigurationError, match="LEASEHOOK_SECRET_KEY: expected ") as refused:
        _ = Runtime.read(ENVIRONMENT).sealer
    assert "hidden" not in str(refused.value)


def test_a_sealing_key_that_cannot_be_fetched_now_is_asked_for_again(asked: list[str]) -> None:
    runtime = Runtime.read(ENVIRONMENT)
    with pytest.raises(ConfigurationError, match="LEASEHOOK_SECRET_KEY: expected a secret that"):
        _ = runtime.sealer
    keep(KEY)
    assert runtime.sealer.seal(b"secret", b"context")
    assert asked.count("GetSecretValue") == 2


@pytest.mark.usefixtures("asked")
def test_a_sealing_key_that_made_no_sense_is_taken_when_it_is_repaired() -> None:
    keep("none")
    runtime = Runtime.read(ENVIRONMENT)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="LEASEHOOK_SECRET_KEY: expected "):
            _ = runtime.sealer
    boto3.client("secretsmanager").put_secret_value(SecretId=NAME, SecretString=KEY)
    assert runtime.sealer.seal(b"secret", b"context")


def test_a_store_of_the_sealing_key_that_is_down_is_unavailability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSM", "http://127.0.0.1:9")
    with pytest.raises(DatabaseUnavailable, match="LEASEHOOK_SECRET_KEY"):
        _ = Runtime.read(ENVIRONMENT | {"LEASEHOOK_SECRET_KEY": "ssm:/key"}).sealer


def test_the_database_takes_its_limit_and_its_credentials_from_the_settings() -> None:
    runtime = Runtime.read(ENVIRONMENT | {"LEASEHOOK_STATEMENT_TIMEOUT_SECONDS": "2.5"})
    assert runtime.database._statement_seconds == 2.5
    with pytest.raises(ConfigurationError, match="a user and a host"):
        _ = Runtime.read(ENVIRONMENT | {"LEASEHOOK_DATABASE_CREDENTIALS": "iam"}).database


def test_a_drain_whose_secrets_are_in_its_environment_imports_no_boto3_and_no_fastapi() -> None:
    program = (
        "import sys, functions.drain\n"
        "from shared.runtime import Runtime\n"
        f"runtime = Runtime.read({ENVIRONMENT | {'LEASEHOOK_SECRET_KEY': KEY}!r})\n"
        "runtime.database, runtime.sealer\n"
        "print([name for name in ('boto3', 'fastapi', 'certifi') if name in sys.modules])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True
    )
    assert printed.stdout.strip() == b"[]"


def test_commands_work_on_the_database_of_a_secret_without_a_url(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    assert found_settings(environment | {"LEASEHOOK_DATABASE_CREDENTIALS": "ssm:/db"}) == {}
    with pytest.raises(ConfigurationError, match="no database"):
        found_settings(environment | {"LEASEHOOK_DATABASE_CREDENTIALS": " "})
