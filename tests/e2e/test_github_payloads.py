"""Real payloads through the whole product: published over HTTP or received from GitHub, delivered by the local runner,
verified by others.

The payloads are GitHub's own webhook examples, several hundred, as the npm package has them: their text is cut out of
its files byte by byte, indentation, Unicode and all.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.support.providers import GITHUB_SECRET, sign
from tests.support.receiver import Received, Receiver

pytestmark = [
    pytest.mark.npm,
    pytest.mark.skipif(
        shutil.which("npm") is None, reason="needs npm, for the payloads and two verifiers"
    ),
]

HERE = Path(__file__).parent
LEASEHOOK = str(Path(sys.executable).with_name("leasehook"))
BATCH = 50


class Example(msgspec.Struct):
    """One kind of event in the package's index."""

    name: str
    examples: list[msgspec.Raw]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the npm packages installed."""
    folder = tmp_path_factory.mktemp("npm")
    for name in ("package.json", "verify.mjs"):
        shutil.copy(HERE / name, folder)
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def payloads(modules: Path) -> list[tuple[str, bytes]]:
    """Event type and payload text of every example, each text once."""
    found: dict[bytes, str] = {}
    package = modules / "node_modules" / "@octokit" / "webhooks-examples"
    for index in sorted(package.glob("*/index.json")):
        for kind in msgspec.json.decode(index.read_bytes(), type=list[Example]):
            found.update(dict.fromkeys(map(bytes, kind.examples), f"github.{kind.name}"))
    return [(event_type, payload) for payload, event_type in found.items()]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The local runner, with loopback open to deliveries."""
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(LEASEHOOK, "dev", "--port", "0", "--data-dir", str(tmp_path / "data"), "--json"),
                *("--no-demo", "--allow-target", "127.0.0.0/8"),
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (tmp_path / "log").read_text()
    yield json.loads(line)
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0
    process.stdout.close()


def test_every_payload_arrives_to_the_byte_and_every_signature_verifies(
    running: dict[str, str],
    receiver: Receiver,
    payloads: list[tuple[str, bytes]],
    modules: Path,
    tmp_path: Path,
) -> None:
    assert len(payloads) > 300
    assert any(not payload.isascii() for _, payload in payloads)
    assert max(len(payload) for _, payload in payloads) > 20_000
    secret = leasehook(tmp_path, "endpoints", "create", "--url", receiver.url("/hook"))["secret"]

    sent: dict[str, bytes] = {}
    headers = {"authorization": f"Bearer {running['api_key']}", "content-type": "application/json"}
    with httpx.Client(base_url=running["url"], headers=headers, trust_env=False) as client:
        for start in range(0, len(payloads), BATCH):
            batch = payloads[start : start + BATCH]
            events = [
                b'{"type": "%b", "payload": %b}' % (name.encode(), payload)
                for name, payload in batch
            ]
            response = client.post(
                "/v1/events/batch", content=b'{"events": [%b]}' % b", ".join(events)
            )
            assert response.status_code == 202, response.text
            ids = [event["id"] for event in response.json()["events"]]
            sent.update(zip(ids, (payload for _, payload in batch), strict=True))

    received = receiver.wait_for(len(sent), timeout_seconds=60)

    assert {request.webhook_id: request.body for request in received} == sent
    verify_with_others(modules, secret, received)


def test_every_payload_that_github_signs_goes_out_to_the_byte_under_our_signature(
    running: dict[str, str],
    receiver: Receiver,
    payloads: list[tuple[str, bytes]],
    modules: Path,
    tmp_path: Path,
) -> None:
    secret = leasehook(
        *(tmp_path, "endpoints", "create", "--url", receiver.url("/hook")),
        *("--event-types", "github.*"),
    )["secret"]
    source = leasehook(
        *(tmp_path, "sources", "create", "--provider", "github", "--secret", GITHUB_SECRET),
        *("--event-type-prefix", "github"),
    )

    sent: dict[str, bytes] = {}
    with httpx.Client(base_url=running["url"], trust_env=False) as client:
        for event_type, payload in payloads:
            signed = sign("github", payload, event=event_type.removeprefix("github."))
            headers = dict(signed.headers)
            first, again = (
                client.post(source["path"], content=payload, headers=headers) for _ in range(2)
            )
            for response, verdict in ((first, "accepted"), (again, "duplicate")):
                assert response.status_code == 200, response.text
                assert response.headers["leasehook-verdict"] == verdict
            sent[first.headers["leasehook-event-id"]] = payload
            forged = client.post(source["path"], content=payload + b" ", headers=headers)
            assert forged.status_code == 401

    received = receiver.wait_for(len(sent), timeout_seconds=60)

    assert len(sent) == len(payloads)
    assert {request.webhook_id: request.body for request in received} == sent
    verify_with_others(modules, secret, received)


def leasehook(folder: Path, *arguments: str) -> Any:
    """Run a command on the runner whose state is in `folder`; its document."""
    done = subprocess.run(
        [LEASEHOOK, *arguments, "--json"],
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def verify_with_others(modules: Path, secret: str, received: Sequence[Received]) -> None:
    """Every request verifies by the Python and the JavaScript implementations of the specification."""
    for request in received:
        request.verify(secret)
    requests = [{"headers": r.headers, "body": base64.b64encode(r.body).decode()} for r in received]
    verified = subprocess.run(
        ["node", "verify.mjs"],
        cwd=modules,
        input=json.dumps({"secret": secret, "requests": requests}).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    assert int(verified.stdout) == len(received)
