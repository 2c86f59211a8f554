"""What `sam build` makes, by the Makefile's own targets. Needs the package index, or uv's cache of it."""

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from infra.check_template import TEMPLATE, expand
from infra.stack import read_template

pytestmark = pytest.mark.build

ROOT = Path(__file__).parent.parent.parent
MAX_BYTES = 80_000_000
"""Lambda takes 250 MB. A third is cryptography and jsonschema-rs, which only load where they are needed."""

UNCHECKED_HASH = 0b01
VARIABLES_FROM_OUTSIDE = {"LAMBDA_PYTHON", "LAMBDA_PLATFORM", "LAMBDA_ARCHITECTURE"}


def build(target: str, artifacts: Path, **variables: str) -> Path:
    """Runs one target as `sam build` does."""
    kept = {key: value for key, value in os.environ.items() if key not in VARIABLES_FROM_OUTSIDE}
    interpreters = Path(sys.executable).parent
    environment = kept | {
        "ARTIFACTS_DIR": str(artifacts),
        "PATH": f"{interpreters}:{os.environ['PATH']}",
        **variables,
    }
    subprocess.run(
        ["make", target], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return artifacts


@pytest.fixture(scope="module")
def for_lambda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("build-DrainFunction", tmp_path_factory.mktemp("lambda"))


@pytest.fixture(scope="module")
def for_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for this interpreter, so that it can be run."""
    return build(
        "build-DrainFunction",
        tmp_path_factory.mktemp("host"),
        LAMBDA_PYTHON=f"{sys.version_info.major}.{sys.version_info.minor}",
        LAMBDA_ARCHITECTURE=platform.machine(),
    )


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_native_code_is_for_lambdas_platform_and_python(for_lambda: Path) -> None:
    natives = [path.name for path in for_lambda.rglob("*.so")]
    assert natives
    assert all(name.endswith((".cpython-313-aarch64-linux-gnu.so", ".abi3.so")) for name in natives)


def test_the_code_fits_its_budget(for_lambda: Path) -> None:
    assert sum(path.stat().st_size for path in for_lambda.rglob("*") if path.is_file()) < MAX_BYTES


def test_only_what_runs_is_shipped(for_lambda: Path) -> None:
    shipped = names(for_lambda)
    assert {"functions", "shared"} <= shipped
    assert not shipped & {"bin", "infra", "tests", "requirements.txt", ".lock", ".venv"}
    assert not shipped & {"pytest", "boto3", "botocore", "typer", "uvicorn", "uv", "pip"}
    assert {path.suffix for path in (for_lambda / "shared" / "store" / "queries").iterdir()} >= {
        ".sql"
    }


def test_nothing_is_compiled_for_another_python(for_this_machine: Path) -> None:
    tag = sys.implementation.cache_tag
    assert {path.name.split(".")[-2] for path in for_this_machine.rglob("*.pyc")} == {tag}


def test_every_module_is_compiled_and_stays_valid_when_file_times_change(
    for_this_machine: Path,
) -> None:
    for source in for_this_machine.rglob("*.py"):
        compiled = Path(importlib.util.cache_from_source(source))
        header = compiled.read_bytes()[:8]
        assert header[:4] == importlib.util.MAGIC_NUMBER
        assert int.from_bytes(header[4:], "little") == UNCHECKED_HASH


def test_every_handler_imports_from_the_artifacts_alone(for_this_machine: Path) -> None:
    handlers = [
        properties["Handler"] for _, properties in expand(read_template(TEMPLATE)).functions()
    ]
    code = (
        "import importlib, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "for path in sys.argv[2:]:\n"
        "    module, _, name = path.rpartition('.')\n"
        "    imported = importlib.import_module(module)\n"
        "    assert imported.__file__.startswith(sys.argv[1]), imported.__file__\n"
        "    assert callable(getattr(imported, name))\n"
    )
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(for_this_machine), *handlers], check=True
    )


def test_all_functions_get_the_same_files(
    for_this_machine: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = build(
        "build-IngestFunction",
        tmp_path_factory.mktemp("other"),
        LAMBDA_PYTHON=f"{sys.version_info.major}.{sys.version_info.minor}",
        LAMBDA_ARCHITECTURE=platform.machine(),
    )
    assert contents(other) == contents(for_this_machine)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }
