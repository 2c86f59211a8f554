"""A stand-in for AWS's base image of the Lambda runtime python3.13, of a CPython 3.13 of this machine.

Like AWS's it has the interpreter in /var/lang, with the runtime interface client and boto3 (which functions take from
the runtime and do not ship), and a bootstrap in /var/runtime. SAM puts its runtime emulator on top. It is not AWS's
image: the libraries around Python are this machine's, not Amazon Linux's.
"""

import json
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tests.e2e.images.files import ImageError, ImageFiles

PYTHON = "3.13"
ARCHITECTURE = {"aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), "x86_64")
"""This machine's, in Lambda's words."""

TAG = f"public.ecr.aws/lambda/python:{PYTHON}-{ARCHITECTURE}"
EMULATOR_TAG = f"public.ecr.aws/lambda/python:{PYTHON}-rapid-{ARCHITECTURE}"
"""What SAM makes on top of it, and would keep using when the base has changed."""

BOOTSTRAP = Path(__file__).with_name("lambda-bootstrap.sh")
_SITE = f"var/lang/lib/python{PYTHON}/site-packages"
_LEFT_OUT = frozenset(
    {
        "__pycache__",
        "dist-packages",
        "ensurepip",
        "idlelib",
        "site-packages",
        "test",
        "tkinter",
        "turtledemo",
    }
)
_PLATFORM_LIBRARIES = (
    *("libgcc_s.so.1", "libstdc++.so.6", "libm.so.6", "libz.so.1"),
    *("libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"),
)
"""What a manylinux wheel may expect of the platform."""

SAM_PYTHON = str(Path(__file__).parents[3] / ".venv-sam" / "bin" / "python")
_UV = str(Path(sys.executable).with_name("uv"))
_PACKAGES = ("awslambdaric", "boto3")

# In a virtual environment, these are those of the installation behind it.
_ASK = """
import json, os, sys, sysconfig
print(json.dumps([
    sysconfig.get_python_version(),
    os.path.realpath(sys._base_executable),
    sysconfig.get_path("stdlib"),
    sysconfig.get_config_var("LIBDIR"),
]))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Where a CPython has its parts."""

    executable: Path
    standard_library: Path
    library_directory: Path


def make_lambda_base() -> str:
    """Make the image, and say what of.

    Raises:
        ImageError: there is no CPython 3.13 here, or something to make an image with is missing.
    """
    python = _find_interpreter()
    changes = [
        "ENV PATH=/var/lang/bin:/usr/bin:/bin LANG=C.UTF-8 TZ=:/etc/localtime LAMBDA_TASK_ROOT=/var/task"
        " LAMBDA_RUNTIME_DIR=/var/runtime LD_LIBRARY_PATH=/var/lang/lib:/var/task:/opt/lib"
        " SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
        "WORKDIR /var/task",
    ]
    with tempfile.TemporaryDirectory() as folder, ImageFiles(TAG, changes) as image:
        packages = Path(folder)
        _install(packages)
        standard_library = f"var/lang/lib/python{PYTHON}"
        image.tree(python.standard_library, standard_library, _left_out)
        image.tree(packages, _SITE)
        image.file(python.executable, f"var/lang/bin/python{PYTHON}", mode=0o755)
        for name in ("python", "python3"):
            image.link(f"var/lang/bin/{name}", f"python{PYTHON}")
        natives = [*python.standard_library.glob("lib-dynload/*.so"), *packages.rglob("*.so")]
        image.libraries_of(
            [python.executable, *(path for path in natives if not _is_left_out_native(path))],
            also=_PLATFORM_LIBRARIES,
            search=python.library_directory,
            elsewhere={python.library_directory: "var/lang/lib"},
        )
        image.file(Path("/etc/ssl/certs/ca-certificates.crt"), "etc/ssl/certs/ca-certificates.crt")
        image.file(BOOTSTRAP, "var/runtime/bootstrap", mode=0o755)
        for directory in ("opt", "var/task", "var/rapid"):
            image.directory(directory)
    return f"CPython of {python.executable}"


def _find_interpreter() -> Interpreter:
    """The installed CPython behind SAM's virtual environment, or the one on PATH."""
    for candidate in (SAM_PYTHON, f"python{PYTHON}"):
        try:
            answer = subprocess.run(
                [candidate, "-I", "-c", _ASK], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        version, *parts = json.loads(answer.stdout)
        if version == PYTHON:
            return Interpreter(*map(Path, parts))
    raise ImageError(
        f"there is no CPython {PYTHON} on PATH (`python{PYTHON}`), which the image runs functions on"
    )


def _install(directory: Path) -> None:
    # Wheels for the image's interpreter, whichever one runs uv.
    command = [
        _UV,
        "pip",
        "install",
        "--quiet",
        "--only-binary",
        ":all:",
        "--python-version",
        PYTHON,
    ]
    try:
        subprocess.run([*command, "--target", directory, *_PACKAGES], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ImageError(
            f"uv could not install {' and '.join(_PACKAGES)}; run `make env`"
        ) from error


def _left_out(path: PurePosixPath) -> bool:
    return (
        not _LEFT_OUT.isdisjoint(path.parts)
        or path.suffix == ".a"
        or path.name.startswith(("config-", "_test", "_tkinter"))
    )


def _is_left_out_native(path: Path) -> bool:
    return _left_out(PurePosixPath(path.name))
