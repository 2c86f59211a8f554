"""Programs of Postgres as child processes that do not outlive this one."""

import os
import platform
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from infra.postgres.account import Account

# The pipe on its stdin ends when the last process that holds the other end does, even by kill -9. A
# parent-death signal would do that on Linux alone, and for the starting thread instead of the process.
_WATCHDOG = 'read -r line || { kill -INT "$1"; rm -rf "$2"; }'


@dataclass(frozen=True, slots=True)
class Child:
    """A running program, and the shell that interrupts it when this process ends in any way."""

    process: subprocess.Popen[bytes]
    watchdog: subprocess.Popen[bytes]

    def wait(self, timeout_seconds: float | None = None) -> int:
        """Waits for the end and returns the exit code; kills a program that takes longer than that."""
        try:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_seconds)
        finally:
            exit_code = self.kill()
            self.watchdog.communicate(b"dismissed\n")
        return exit_code

    def kill(self) -> int:
        """SIGKILL for the program and all its children, if it still runs; returns the exit code."""
        return _kill_with_children(self.process)


@dataclass(frozen=True, slots=True)
class Launcher:
    """How the programs of one start are run.

    Attributes:
        account: Whom they run as; None is this process' own account.
        log: Where they write.
        lock: A descriptor that they inherit.
        scratch: A directory that is removed if this process ends before them.
    """

    bin_dir: Path
    account: Account | None
    log: IO[bytes]
    lock: int
    scratch: Path

    def spawn(
        self, program: str, *arguments: str, directory: Path, environment: Mapping[str, str]
    ) -> Child:
        """Starts a program inside `directory`, with additions to the environment."""
        process = subprocess.Popen(
            [self.bin_dir / program, *arguments],
            cwd=directory,
            env={**os.environ, **environment, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            # Ctrl-C in a terminal is for this process, which then stops the server.
            start_new_session=True,
            pass_fds=(self.lock,),
            user=self.account.uid if self.account else None,
            group=self.account.gid if self.account else None,
            extra_groups=[] if self.account else None,
        )
        try:
            watchdog = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHDOG, "watchdog", str(process.pid), self.scratch],
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            _kill_with_children(process)
            raise
        return Child(process, watchdog)


def _kill_with_children(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        # A stopped process starts no more children, so the list is complete.
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        for pid in (*_descendants(process.pid), process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return process.wait()


def _descendants(ancestor: int) -> list[int]:
    parents = _parents()
    found = [ancestor]
    for known in found:
        found += [pid for pid, parent in parents.items() if parent == known]
    return found[1:]


def _parents() -> dict[int, int]:
    """The ids of all processes with those of their parents."""
    if platform.system() != "Linux":
        listing = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
        )
        return {
            int(pid): int(parent) for pid, parent in map(str.split, listing.stdout.splitlines())
        }
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name in parentheses may hold anything; state and parent follow the last of them.
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    return parents
