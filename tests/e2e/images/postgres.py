"""A stand-in for Docker Hub's `postgres` image, of the Postgres programs that this machine has.

It takes the same variables (`POSTGRES_USER`, `POSTGRES_PASSWORD`, `POSTGRES_DB`), the same port and volume, and server
settings as the command's arguments. It is not the official image: no ICU, no contrib from the wheel, no init scripts.
"""

from itertools import chain
from pathlib import Path, PurePosixPath

from infra.postgres.binaries import find_binaries
from infra.postgres.errors import PostgresError
from tests.e2e.images.files import ImageError, ImageFiles

ENTRYPOINT = Path(__file__).with_name("postgres-entrypoint.sh")
_UID = 999
_LEFT_OUT = frozenset({"bitcode", "include", "pgxs"})


def make_postgres(tag: str, version: int) -> str:
    """Make the image, and say what of.

    Raises:
        ImageError: this machine has no Postgres of that version, or something to make an image with is missing.
    """
    try:
        bin_dir = find_binaries(version)
    except PostgresError as error:
        raise ImageError(f"{error} Debian's package is postgresql-{version}.") from error
    installation = bin_dir.parent
    from_wheel = installation.name.startswith("pginstall")
    # The wheel's programs find their libraries and files by paths relative to themselves, Debian's by absolute ones.
    home = (
        f"opt/site/{installation.parent.name}/{installation.name}"
        if from_wheel
        else str(installation)
    )
    changes = [
        f"ENV PATH=/{home.lstrip('/')}/bin:/usr/local/bin:/usr/bin LANG=C.UTF-8 PGDATA=/var/lib/postgresql/data",
        "USER postgres",
        "VOLUME /var/lib/postgresql/data",
        "EXPOSE 5432",
        'ENTRYPOINT ["postgres-entrypoint.sh"]',
        'CMD ["postgres"]',
    ]
    with ImageFiles(tag, changes) as image:
        image.tree(installation, home.lstrip("/"), _left_out)
        if from_wheel:
            libraries = installation.parent.parent / f"{installation.parent.name}.libs"
            image.tree(libraries, f"opt/site/{libraries.name}")
        else:
            image.tree(Path(f"/usr/share/postgresql/{version}"), f"usr/share/postgresql/{version}")
            image.tree(Path("/usr/share/zoneinfo"), "usr/share/zoneinfo", _is_duplicate_zone)
        programs = (
            bin_dir / name for name in ("postgres", "initdb", "psql", "pg_ctl", "pg_isready")
        )
        extensions = (
            path for path in installation.rglob("*.so") if not path.name.startswith("llvmjit")
        )
        image.libraries_of(chain(programs, extensions))
        if (locale := Path("/usr/lib/locale/C.utf8")).is_dir():
            image.tree(locale, "usr/lib/locale/C.utf8")
        image.file(ENTRYPOINT, "usr/local/bin/postgres-entrypoint.sh", mode=0o755)
        for directory in ("var/lib/postgresql", "var/lib/postgresql/data", "run/postgresql"):
            image.directory(directory, owner=_UID)
        image.link("var/run", "../run")
    return f"Postgres {version} of {'the wheel' if from_wheel else installation}"


def _left_out(path: PurePosixPath) -> bool:
    return (
        not _LEFT_OUT.isdisjoint(path.parts)
        or path.suffix == ".a"
        or path.name.startswith("llvmjit")
    )


def _is_duplicate_zone(path: PurePosixPath) -> bool:
    return path.parts[:1] in {("posix",), ("right",)}
