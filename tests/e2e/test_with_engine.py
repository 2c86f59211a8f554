"""What runs a command in an engine says what is missing, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.sam.containers import docker
from tests.e2e.with_engine import RUN_LABEL, RUN_VARIABLE

ROOT = Path(__file__).parents[2]
IMAGE = "postgres:16"

# Starts a container, says its run, and waits to be killed: it cleans nothing up.
CARELESS = """
import os, signal, subprocess, sys
run = os.environ[sys.argv[1]]
label = f"{sys.argv[2]}={run}"
network = f"careless-{run}"
subprocess.run(["docker", "network", "create", "--label", label, network], check=True, stdout=sys.stderr)
for labels in (["--label", label], []):
    options = [*labels, "--network", network, "--pull", "never", "--entrypoint", "sleep"]
    subprocess.run(["docker", "run", "-d", *options, sys.argv[3], "600"], check=True, stdout=sys.stderr)
signal.signal(signal.SIGINT, signal.SIG_DFL)
print(run, flush=True)
signal.pause()
"""


def with_engine(arguments: Sequence[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.e2e.with_engine", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_docker_it_fails_and_says_what_to_install(tmp_path: Path) -> None:
    done = with_engine(["--", "true"], PATH=str(tmp_path))
    assert done.returncode == 1
    assert "There is no docker command here. Install Docker" in done.stderr


def test_without_an_engine_it_fails_and_says_how_to_start_one(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexit 1\n")
    docker.chmod(0o755)
    done = with_engine(["--", "true"], PATH=str(tmp_path), IMAGES="pull")
    assert done.returncode == 1
    assert "No Docker engine answers. Start it" in done.stderr


def test_another_source_of_images_is_refused() -> None:
    done = with_engine(["--", "true"], IMAGES="borrow")
    assert done.returncode == 1
    assert "IMAGES: expected pull or build, got 'borrow'" in done.stderr


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_leaves_no_container_and_no_network(
    run: str,  # noqa: ARG001  # skips where there is no engine
    number: signal.Signals,
) -> None:
    command = [sys.executable, "-c", CARELESS, RUN_VARIABLE, RUN_LABEL, IMAGE]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.with_engine", "--", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        inner = process.stdout.readline().strip()
        network = f"careless-{inner}"
        assert len(docker("ps", "-q", "--filter", f"network={network}").split()) == 2
        process.send_signal(number)
        assert process.wait(60) != 0
    assert docker("ps", "-aq", "--filter", f"label={RUN_LABEL}={inner}") == ""
    assert docker("network", "ls", "-q", "--filter", f"name={network}") == ""
