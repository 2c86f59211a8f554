"""Runs a command that needs a Docker engine: `python -m tests.e2e.with_engine lambda postgres:16 -- pytest tests/e2e`.

The images named before `--` are there when the command starts. IMAGES says where from:

- `pull` (the default): from their registries, as anybody would.
- `build`: made of this machine's files, for a machine that reaches no registry. As root it also starts an engine, for as
  long as the command runs, if none answers.

However the command ends, the containers and networks that carry its label are gone afterwards.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.e2e.images.__main__ import make
from tests.e2e.images.files import ImageError

RUN_LABEL = "leasehook.run"
RUN_VARIABLE = "LEASEHOOK_ENGINE_RUN"
"""Holds the value of the label for containers and networks of this run."""

_ENGINE_SECONDS = 30.0
_OFFLINE = {
    # SAM would look for a newer base image, and testcontainers would pull the image of its reaper.
    "SAM_SKIP_PULL_IMAGE": "1",
    "TESTCONTAINERS_RYUK_DISABLED": "true",
}


class EngineMissing(Exception):
    """There is no engine to run on. The message says what to do."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; its exit status, or 1 if there is no engine or image."""
    images, command = _split(arguments)
    source = os.environ.get("IMAGES") or "pull"
    if source not in {"pull", "build"}:
        raise SystemExit(f"IMAGES: expected pull or build, got {source!r}")
    run = secrets.token_hex(6)
    environment = os.environ | {"IMAGES": source, RUN_VARIABLE: run}
    if source == "build":
        environment |= _OFFLINE
    try:
        with _engine(may_start=source == "build"):
            try:
                for image in images:
                    _say(make(image) if source == "build" else _pulled(image))
                return _run(command, environment)
            finally:
                _sweep(run)
    except (EngineMissing, ImageError) as error:
        _say(str(error))
        return 1


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    if "--" not in arguments or arguments[-1] == "--":
        raise SystemExit(f"expected: IMAGE … -- COMMAND …\n\n{__doc__}")
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


@contextmanager
def _engine(*, may_start: bool) -> Iterator[None]:
    if shutil.which("docker") is None:
        raise EngineMissing(
            "There is no docker command here. Install Docker (on Debian: apt-get install docker.io) and run this again."
        )
    if _answers():
        yield
        return
    daemon = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if not may_start or os.geteuid() != 0 or daemon is None:
        raise EngineMissing(
            "No Docker engine answers. Start it (`systemctl start docker`, or Docker Desktop) and run this again. "
            "IMAGES=build starts one by itself where dockerd is installed and the user is root."
        )
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "dockerd.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [daemon], stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            _wait_for(process, log)
            _say("started a Docker engine for this run")
            yield
        finally:
            process.terminate()
            process.wait(60)


def _wait_for(process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _ENGINE_SECONDS
    while not _answers():
        if process.poll() is not None or time.monotonic() > deadline:
            last_lines = "\n".join(log.read_text().splitlines()[-5:])
            raise EngineMissing(f"dockerd does not start here:\n{last_lines}")
        time.sleep(0.2)


def _answers() -> bool:
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def _pulled(name: str) -> str:
    if name == "lambda":
        return "Lambda's base image: AWS's, pulled by SAM"
    here = subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False)
    if (
        here.returncode != 0
        and subprocess.run(["docker", "pull", "-q", name], check=False).returncode
    ):
        raise ImageError(
            f"{name} could not be pulled; docker says why above. IMAGES=build makes it of this machine's files."
        )
    return f"{name}: as it is in this engine"


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    # In a group of its own, so that Ctrl-C reaches it once, from here: a second one would cut its clean-up short.
    process = subprocess.Popen(command, env=environment, process_group=0)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        process.send_signal(signal.SIGINT)

    before = {
        number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _sweep(run: str) -> None:
    """Remove what a command that was killed has left."""
    mine = ["--filter", f"label={RUN_LABEL}={run}"]
    networks = _ids("network", "ls", "-q", *mine)
    # What SAM starts carries no label of ours, but is on our network.
    on_networks = [
        each for network in networks for each in _ids("ps", "-aq", "--filter", f"network={network}")
    ]
    for container in {*_ids("ps", "-aq", *mine), *on_networks}:
        subprocess.run(["docker", "rm", "-fv", container], capture_output=True, check=False)
    for network in networks:
        subprocess.run(["docker", "network", "rm", network], capture_output=True, check=False)


def _ids(*arguments: str) -> list[str]:
    answer = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    return answer.stdout.split()


def _say(text: str) -> None:
    print(f"with_engine: {text}", file=sys.stderr, flush=True)  # noqa: T201 - it is a command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
