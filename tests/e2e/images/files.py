"""An image's root filesystem, put together from files of this machine and handed to the engine: no registry is asked."""

import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

LABEL = "leasehook.image"
"""On every image that is made here, and so on those that are built upon one."""

_APPLETS = (
    *(
        "cat",
        "chmod",
        "chown",
        "cp",
        "date",
        "echo",
        "env",
        "false",
        "grep",
        "head",
        "id",
    ),
    *(
        "kill",
        "ln",
        "ls",
        "mkdir",
        "mv",
        "printf",
        "ps",
        "rm",
        "sed",
        "sh",
        "sleep",
        "tail",
        "test",
        "true",
    ),
)
_NAME_SERVICE_LIBRARIES = ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")
"""What the C library loads, by configuration, to look up names."""

_LIBRARY = re.compile(r"(?:=>\s+|^\s+)(/\S+)\s+\(0x", re.MULTILINE)
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\npostgres:x:999:999::/var/lib/postgresql:/bin/sh\n",
    "etc/group": "root:x:0:\npostgres:x:999:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


class ImageError(Exception):
    """The image cannot be made here. The message says what is missing and how to get it."""


class ImageFiles:
    """Collects files; leaving the block makes the image.

    There is a shell from the start (busybox), and the accounts root and postgres. `/bin`, `/lib` and `/lib64` lead
    into `/usr`, as on every present Linux.
    """

    def __init__(self, tag: str, changes: Iterable[str]) -> None:
        """Args: the image's name, and Dockerfile instructions such as `ENV A=b`."""
        self._tag = tag
        self._changes = (*changes, f"LABEL {LABEL}=made-from-host-files")
        self._trees: list[str] = []
        self._libraries: set[str] = set()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._archive = stack.enter_context(tempfile.TemporaryFile())
            self._tar = stack.enter_context(
                tarfile.open(fileobj=self._archive, mode="w", dereference=True)
            )
            self._lay_ground()
            self._opened = stack.pop_all()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        with self._opened:
            if error_type is None:
                self._tar.close()
                self._archive.seek(0)
                self._import()

    def _import(self) -> None:
        options = [part for each in self._changes for part in ("--change", each)]
        done = subprocess.run(
            ["docker", "import", *options, "-", self._tag],
            stdin=self._archive,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ImageError(f"`docker import` refused it: {done.stderr.strip()}")

    def _lay_ground(self) -> None:
        for directory in (
            "dev",
            "etc",
            "proc",
            "root",
            "run",
            "sys",
            "usr/bin",
            "usr/lib",
            "usr/lib64",
        ):
            self.directory(directory)
        self.directory("tmp", mode=0o1777)
        for short in ("bin", "lib", "lib64"):
            self.link(short, f"usr/{short}")
        for name, text in _ACCOUNTS.items():
            self.text(name, text)
        busybox = shutil.which("busybox")
        if busybox is None:
            raise ImageError(
                "busybox, the image's shell, is missing: apt-get install busybox-static"
            )
        self.file(Path(busybox), "usr/bin/busybox", mode=0o755)
        for applet in _APPLETS:
            self.link(f"usr/bin/{applet}", "busybox")
        self.libraries_of([Path(busybox)], also=_NAME_SERVICE_LIBRARIES)

    def directory(self, name: str, *, mode: int = 0o755, owner: int = 0) -> None:
        """An empty directory."""
        entry = _entry(name, tarfile.DIRTYPE, mode)
        entry.uid = entry.gid = owner
        self._tar.addfile(entry)

    def link(self, name: str, target: str) -> None:
        """A symbolic link; what it leads to is taken as it is."""
        entry = _entry(name, tarfile.SYMTYPE, 0o777)
        entry.linkname = target
        self._tar.addfile(entry)

    def text(self, name: str, text: str, *, mode: int = 0o644) -> None:
        """A file of these characters."""
        data = text.encode()
        entry = _entry(name, tarfile.REGTYPE, mode)
        entry.size = len(data)
        self._tar.addfile(entry, io.BytesIO(data))

    def file(self, source: Path, name: str, *, mode: int | None = None) -> None:
        """A file of this machine."""

        def as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
            entry.mode = entry.mode if mode is None else mode
            return _of_root(entry)

        self._tar.add(source.resolve(), name, recursive=False, filter=as_root)

    def tree(
        self, source: Path, name: str, leave_out: Callable[[PurePosixPath], bool] = lambda _: False
    ) -> None:
        """A directory of this machine with all that is in it, but for the paths (below it) that are left out.

        Its own libraries come along, so `libraries_of` does not copy them a second time.
        """

        def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
            if leave_out(PurePosixPath(entry.name).relative_to(name)):
                return None
            # What only its owner may read here is of no use to the accounts of an image.
            entry.mode |= 0o555 if entry.isdir() or entry.mode & 0o100 else 0o444
            return _of_root(entry)

        self._trees.append(f"{source.resolve()}/")
        self._tar.add(source, name, filter=kept)

    def libraries_of(
        self,
        programs: Iterable[Path],
        *,
        also: Iterable[str] = (),
        search: Path | None = None,
        elsewhere: Mapping[Path, str] | None = None,
    ) -> None:
        """The shared libraries that programs and libraries of this machine load, the loader included.

        Args:
            programs: what loads them.
            also: names of more, such as `libstdc++.so.6`: what comes into the image later may load them.
            search: a directory of libraries that the loader does not know.
            elsewhere: where libraries of a directory go; others go where they are on this machine.
        """
        environment = os.environ | ({"LD_LIBRARY_PATH": str(search)} if search else {})
        answer = subprocess.run(
            ["ldd", *programs], env=environment, capture_output=True, text=True, check=False
        )
        found = {Path(path) for path in _LIBRARY.findall(answer.stdout)}
        found |= {path for name in also if (path := _known_library(name)) is not None}
        for path in sorted(found):
            if any(str(path.resolve()).startswith(tree) for tree in self._trees):
                continue
            directory = (elsewhere or {}).get(path.parent) or str(path.parent.resolve())
            directory = directory.lstrip("/")
            if directory.startswith("lib"):
                directory = f"usr/{directory}"
            name = f"{directory}/{path.name}"
            if name not in self._libraries:
                self._libraries.add(name)
                self.file(path, name)


def exists_apart(tag: str) -> bool:
    """Whether the engine has an image of that name that was not made here, such as one from a registry."""
    answer = subprocess.run(
        ["docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{LABEL}"}}}}', tag],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.returncode == 0 and not answer.stdout.strip()


def remove(tag: str) -> None:
    """Remove an image if it is there; containers keep what they run."""
    subprocess.run(["docker", "image", "rm", "--force", tag], capture_output=True, check=False)


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = kind
    entry.mode = mode
    return entry


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _known_library(name: str) -> Path | None:
    ldconfig = shutil.which("ldconfig", path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
    if ldconfig is None:
        raise ImageError(
            "ldconfig, which says where libraries are, is missing: images are made on Linux with glibc"
        )
    listing = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        found, _, path = line.strip().partition(" => ")
        if found.split(" ")[0] == name:
            return Path(path)
    return None
