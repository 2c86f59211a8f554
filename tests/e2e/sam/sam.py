"""The SAM command line, as a user types it."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from tests.e2e.images.lambda_base import ARCHITECTURE

ROOT = Path(__file__).parents[3]
EVENTS = ROOT / "tests" / "events"
BIN = ROOT / ".venv-sam" / "bin"

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Sam:
    """Runs `sam` in the repository, with its samconfig.toml and what the template's parameters are set to."""

    folder: Path
    """For the build, the logs, and what SAM keeps about itself."""

    network: str
    parameters: Mapping[str, str] = field(repr=False)
    template: Path

    @classmethod
    def build(cls, folder: Path, network: str, parameters: Mapping[str, str]) -> Self:
        """`sam build` for this machine's architecture: emulating another one is slow, and needs more than an engine."""
        build = folder / "build"
        chosen = {"Architecture": ARCHITECTURE, **parameters}
        sam = cls(folder, network, chosen, build / "template.yaml")
        home = folder / "sam"
        home.mkdir(parents=True)
        # Otherwise each command asks the package index for a newer SAM.
        about = {"lastVersionCheck": time.time(), "telemetryEnabled": False}
        (home / "metadata.json").write_text(json.dumps(about))
        sam.run("build", "--build-dir", str(build), *sam._overrides())
        return sam

    def with_parameters(self, template: Path | None = None, **parameters: str) -> Self:
        """The same build, deployed otherwise."""
        chosen = {**self.parameters, **parameters}
        return replace(self, parameters=chosen, template=template or self.template)

    def run(self, *arguments: str) -> str:
        """Run a command to its end; its output."""
        done = subprocess.run(
            [BIN / "sam", *arguments, "--config-file", str(ROOT / "samconfig.toml")],
            cwd=ROOT,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"sam {arguments[0]}: {done.stdout}{done.stderr}"
        return done.stdout

    def invoke(self, function: str, event: str) -> Any:
        """`sam local invoke` with a file of tests/events; what the function answered."""
        arguments = ("--event", str(EVENTS / f"{event}.json"), *self._local_options())
        output = self.run("local", "invoke", function, *arguments)
        answer = json.loads(output.strip().splitlines()[-1])
        # SAM ends with status 0 all the same.
        assert not (isinstance(answer, dict) and "errorType" in answer), answer
        return answer

    @contextmanager
    def api(self) -> Iterator[str]:
        """`sam local start-api` while the block runs; its URL."""
        with self._serving("start-api") as port:
            yield f"http://127.0.0.1:{port}"

    @contextmanager
    def lambdas(self) -> Iterator[str]:
        """`sam local start-lambda` while the block runs; its URL, which stands in for Lambda's own."""
        with self._serving("start-lambda") as port:
            yield f"http://127.0.0.1:{port}"

    @contextmanager
    def _serving(self, command: str) -> Iterator[int]:
        port = _free_port()
        options = ("--host", "127.0.0.1", "--port", str(port), "--warm-containers", "LAZY")
        log = self.folder / f"{command}.log"
        with (
            log.open("w") as output,
            subprocess.Popen(
                [BIN / "sam", "local", command, *options, *self._local_options()],
                cwd=ROOT,
                env=self._environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            try:
                _wait_until_it_listens(port, process, log)
                yield port
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()

    def _local_options(self) -> tuple[str, ...]:
        return (
            "--template",
            str(self.template),
            "--docker-network",
            self.network,
            *self._overrides(),
        )

    def _overrides(self) -> tuple[str, ...]:
        # SAM refuses an empty value; a parameter that is not named is empty, too.
        given = (f"{name}={text}" for name, text in self.parameters.items() if text)
        return ("--parameter-overrides", *given)

    def _environment(self) -> dict[str, str]:
        # SAM passes on to the functions what has a name of theirs.
        ours = ("DATABASE_URL", "LEASEHOOK_", "POWERTOOLS_", "AWS_")
        surroundings = {
            name: text for name, text in os.environ.items() if not name.startswith(ours)
        }
        # No account is asked for anything, and no network for where it is.
        return surroundings | {
            "PATH": f"{BIN}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "LAMBDA_ARCHITECTURE": ARCHITECTURE,
            "SAM_CLI_TELEMETRY": "0",
            "__SAM_CLI_APP_DIR": str(self.folder / "sam"),
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:9",
            "AWS_MAX_ATTEMPTS": "1",
        }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _wait_until_it_listens(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
