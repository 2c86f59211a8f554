"""infra/compose.yaml: what is in it fits together, and its receiver runs on the standard library alone."""

import os
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from standardwebhooks.webhooks import Webhook

from infra.check_template import expand
from infra.stack import read_template, refusals
from shared.config import Settings

INFRA = Path(__file__).parents[2] / "infra"
BODY = '{"order_id":17}'


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((INFRA / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def secret(compose: Any) -> str:
    """The receiver's default secret."""
    value: str = compose["services"]["receiver"]["environment"]["RECEIVER_SECRET"]
    return value.removeprefix("${RECEIVER_SECRET:-").removesuffix("}")


@pytest.fixture
def receiver(
    compose: Any, secret: str, tmp_path: Path
) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The receiver's command in a folder that holds what its volume does, without any installed package; its URL."""
    _, *arguments, port = compose["services"]["receiver"]["entrypoint"]
    assert port == "9000"
    (tmp_path / "infra").symlink_to(INFRA)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free: int = listener.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-S", *arguments, str(free)],
        cwd=tmp_path,
        env={"RECEIVER_SECRET": secret, "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 20
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", free)) == 0:
                    break
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield f"http://127.0.0.1:{free}/", process
        process.terminate()


def post(url: str, secret: str, body: str) -> int:
    now = datetime.now(UTC)
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign("msg_1", now, BODY),
    }
    return httpx.post(url, content=body, headers=headers, trust_env=False).status_code


def test_the_receiver_tells_good_signatures_from_bad_ones(
    receiver: tuple[str, "subprocess.Popen[str]"], secret: str
) -> None:
    url, process = receiver
    assert post(url, secret, BODY) == 204
    assert post(url, secret, "{}") == 401
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(2)]
    assert lines == [
        f"got msg_1, signature good: {BODY}",
        "got msg_1, refused, no signature fits: {}",
    ]


def test_the_network_has_the_name_that_sam_is_told(compose: Any) -> None:
    assert compose["networks"] == {"default": {"name": "leasehook"}}


@pytest.mark.parametrize("architecture", ["arm64", "x86_64"])
def test_samconfig_runs_the_functions_beside_what_is_in_it(compose: Any, architecture: str) -> None:
    config = tomllib.loads((INFRA.parent / "samconfig.toml").read_text())
    options = config[f"local-{architecture}"]["global"]["parameters"]
    parameters = dict(each.split("=", 1) for each in options["parameter_overrides"])
    template = read_template(INFRA.parent / "template.yaml")

    assert options["docker_network"] == compose["networks"]["default"]["name"]
    assert list(refusals(template, parameters)) == []
    assert parameters["Architecture"] == architecture
    environment = expand(template, parameters).environment("DrainFunction")
    account = compose["services"]["postgres"]["environment"]
    assert environment["DATABASE_URL"] == (
        f"postgresql://{account['POSTGRES_USER']}:{account['POSTGRES_PASSWORD']}@postgres:5432/leasehook"
    )
    settings = Settings.read(environment)
    assert settings.require_secret_keys()
    assert settings.targets.refusal("172.18.0.3", 9000) is None


def test_nothing_is_published_to_other_machines(compose: Any) -> None:
    published = [port for each in compose["services"].values() for port in each.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
