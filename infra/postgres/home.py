"""What lies where in a data directory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from infra.postgres.errors import PostgresError


@dataclass(frozen=True, slots=True)
class PidFile:
    """The part of `postmaster.pid` that matters here. Postgres removes the file on every orderly stop."""

    pid: int
    shared_memory_id: int | None
    status: str


@dataclass(frozen=True, slots=True)
class Home:
    """A data directory, by its absolute path."""

    root: Path

    @property
    def cluster(self) -> Path:
        """What is made at once, and belongs to the server's account."""
        return self.root / "cluster"

    @property
    def data(self) -> Path:
        """Postgres' own data directory."""
        return self.cluster / "data"

    @property
    def password(self) -> Path:
        """Where the password of the superuser is."""
        return self.cluster / "password"

    @property
    def _log(self) -> Path:
        return self.root / "server.log"

    def version(self) -> int | None:
        """The major version that made the cluster; None if there is no cluster yet."""
        try:
            return int((self.data / "PG_VERSION").read_text())
        except FileNotFoundError:
            return None

    def pid_file(self) -> PidFile | None:
        """None if the file is missing or its first line not yet written."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            pid = int(lines[0])
        except (FileNotFoundError, IndexError, ValueError):
            return None
        memory = lines[6].split() if len(lines) > 6 else []
        return PidFile(
            pid=pid,
            shared_memory_id=int(memory[1]) if len(memory) == 2 else None,
            status=lines[7].strip() if len(lines) > 7 else "",
        )

    def fresh_log(self) -> IO[bytes]:
        """Begins a new log, and keeps the one before."""
        with suppress(FileNotFoundError):
            self._log.replace(self._log.with_suffix(".log.old"))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        return os.fdopen(os.open(self._log, flags, 0o600), "ab")

    def last_words(self) -> str:
        """The end of the log, as the end of an error message."""
        lines = self._log.read_text(errors="replace").splitlines()[-8:]
        return "\n".join([f" The end of {self._log}:", *lines])

    @contextmanager
    def explaining_refusals(self) -> Iterator[None]:
        """Turns a refusal of the file system into advice."""
        try:
            yield
        except OSError as error:
            raise PostgresError(
                f"{self.root} cannot be used as a data directory: {error}. It must be a directory with some free "
                "space, and belong to the user who runs this (one that root has used stays root's)."
            ) from error
