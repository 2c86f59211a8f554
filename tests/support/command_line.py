"""The `leasehook` program under a test's control: real processes in a folder, home and state directory of their own."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

_PROGRAM = str(Path(sys.executable).with_name("leasehook"))
_MARK = "LEASEHOOK_TEST_MARK"


@dataclass(frozen=True)
class Dev:
    """A running `leasehook dev --json` and the line that it printed."""

    process: "subprocess.Popen[str]"
    url: str
    api_key: str
    database_url: str
    log: Path
    """What it writes to stderr."""

    def publish(self, event_type: str, payload: object) -> Any:
        """POST /v1/events; the answer's document."""
        answer = httpx.post(
            f"{self.url}/v1/events",
            headers={"authorization": f"Bearer {self.api_key}"},
            json={"type": event_type, "payload": payload},
            trust_env=False,
        )
        assert answer.status_code == 202, answer.text
        return answer.json()


@dataclass(frozen=True)
class CommandLine:
    """Runs the program in `folder`. Every process carries a mark, by which those that are left over are found."""

    folder: Path
    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def temporary(self) -> Path:
        """The TMPDIR of every process."""
        return self.folder / "tmp"

    @property
    def state_files(self) -> list[Path]:
        """What `leasehook dev` left in the state directory."""
        return list((self.folder / "state" / "leasehook").glob("*"))

    def environment(self, **settings: str) -> dict[str, str]:
        """Without any setting of the tests' own surroundings."""
        self.temporary.mkdir(exist_ok=True)
        ours = {
            name: value
            for name, value in os.environ.items()
            if name != "DATABASE_URL" and not name.startswith("LEASEHOOK_")
        }
        own = {
            "COLUMNS": "80",
            "TMPDIR": str(self.temporary),
            "XDG_STATE_HOME": str(self.folder / "state"),
            _MARK: self.mark,
        }
        return ours | own | settings

    def start(self, *arguments: str, **settings: str) -> "subprocess.Popen[str]":
        """Start a command; its output goes to pipes."""
        return subprocess.Popen(
            [_PROGRAM, *arguments],
            cwd=self.folder,
            env=self.environment(**settings),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(
        self, *arguments: str, stdin: str | None = None, **settings: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return subprocess.run(
            [_PROGRAM, *arguments],
            cwd=self.folder,
            env=self.environment(**settings),
            text=True,
            input=stdin,
            capture_output=True,
            timeout=30,
            check=False,
        )

    def json(self, *arguments: str, **settings: str) -> Any:
        """Run a command with --json; its document."""
        done = self.run(*arguments, "--json", **settings)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refusal(self, *arguments: str, **settings: str) -> str:
        """Run a command that must fail; the one line that it says."""
        done = self.run(*arguments, **settings)
        assert (done.returncode, done.stdout) == (1, "")
        [line] = done.stderr.splitlines()
        assert line.startswith("leasehook: ")
        return line

    @contextmanager
    def dev(self, *arguments: str, **settings: str) -> Iterator[Dev]:
        """`leasehook dev --json` while the block runs."""
        log = self.folder / f"dev-{secrets.token_hex(4)}.log"
        with (
            log.open("w") as stderr,
            subprocess.Popen(
                [_PROGRAM, "dev", "--json", "--port", "0", *arguments],
                cwd=self.folder,
                env=self.environment(**settings),
                text=True,
                stdout=subprocess.PIPE,
                stderr=stderr,
            ) as process,
        ):
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            ready = json.loads(line)
            try:
                yield Dev(process, ready["url"], ready["api_key"], ready["database_url"], log)
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    process.wait(10)

    def processes(self) -> list[str]:
        """The commands of all living processes that carry the mark (Linux)."""
        wanted = f"{_MARK}={self.mark}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_text())
            except OSError:
                continue
        return found
