"""The import rules of the layout, held by looking at the source."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from shared.store import queries

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "functions", "infra")


@dataclass(frozen=True, slots=True)
class Module:
    """A module by its dotted name, with its syntax tree."""

    name: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return (ROOT / self.name.replace(".", "/")).is_dir()

    def within(self, *packages: str) -> bool:
        return any(self.name == each or self.name.startswith(f"{each}.") for each in packages)

    def imports(self) -> set[str]:
        """The dotted names of all it imports (modules, or what is in them), wherever in the file."""
        return {name for node in ast.walk(self.tree) for name in _imported(node, self)}

    def strings(self) -> set[str]:
        return {
            node.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }


def _imported(node: ast.AST, module: Module) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=source, names=names, level=level):
            prefix = source or ""
            if level:
                here = module.name.split(".") + ([""] if module.is_package else [])
                prefix = ".".join([*here[:-level], *filter(None, [source])])
            yield from (f"{prefix}.{alias.name}" for alias in names)
        case _:
            pass


@cache
def modules() -> dict[str, Module]:
    found = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            found[name] = Module(name, ast.parse(file.read_text(encoding="utf-8"), str(file)))
    return found


def offences(allowed: Callable[[Module, str], bool]) -> list[str]:
    """Every import that the rule does not allow."""
    return [
        f"{module.name} imports {imported}"
        for module in modules().values()
        for imported in sorted(module.imports())
        if not allowed(module, imported)
    ]


def root_of(imported: str) -> str:
    return imported.partition(".")[0]


def test_the_source_was_found() -> None:
    for name in ("shared", "shared.domain.retry", "shared.store.queries", "functions.drain"):
        assert name in modules()
    assert "shared.domain.decision" in _own_imports(modules()["shared.dispatch"])


def test_the_domain_imports_the_standard_library_and_itself_only() -> None:
    def allowed(module: Module, imported: str) -> bool:
        return (
            not module.within("shared.domain")
            or root_of(imported) in sys.stdlib_module_names
            or imported.startswith("shared.domain.")
        )

    assert offences(allowed) == []


@pytest.mark.parametrize(
    "effect", ["asyncio", "os", "random", "secrets", "socket", "threading", "time"]
)
def test_the_domain_has_no_effects(effect: str) -> None:
    assert (
        offences(lambda module, used: not module.within("shared.domain") or root_of(used) != effect)
        == []
    )


def test_what_the_domain_says_is_not_changed_afterwards() -> None:
    decorators = [
        ast.unparse(decorator)
        for module in modules().values()
        if module.within("shared.domain")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        if ast.unparse(decorator).startswith("dataclass")
    ]
    assert decorators
    assert all("frozen=True, slots=True" in decorator for decorator in decorators)


def test_the_core_imports_neither_the_edge_nor_what_is_around_it() -> None:
    def allowed(module: Module, imported: str) -> bool:
        return not module.within("shared") or root_of(imported) not in {"functions", "infra"}

    assert offences(allowed) == []


def test_functions_import_the_core_and_never_each_other() -> None:
    def allowed(module: Module, imported: str) -> bool:
        return not module.within("functions") or root_of(imported) not in {"functions", "infra"}

    assert offences(allowed) == []


@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("psycopg", ["shared.store"]),
        ("httpx", ["shared.sender.httpx_face"]),
        ("httptools", ["shared.sender"]),
        ("cryptography", ["shared.crypto"]),
        ("fastapi", ["shared.http", "shared.management"]),
        ("jsonschema_rs", ["shared.json_schema", "shared.schema_faults"]),
        ("mangum", ["shared.http.gateway"]),
    ],
)
def test_a_library_is_the_business_of_one_part_of_the_core(library: str, homes: list[str]) -> None:
    def allowed(module: Module, imported: str) -> bool:
        return (
            not module.within("shared")
            or root_of(imported) != library
            or any(module.within(home) for home in homes)
        )

    assert offences(allowed) == []
    assert any(
        root_of(imported) == library
        for module in modules().values()
        if any(module.within(home) for home in homes)
        for imported in module.imports()
    )


def test_functions_hold_no_sql_and_speak_to_no_network_themselves() -> None:
    def allowed(module: Module, imported: str) -> bool:
        return not module.within("functions") or root_of(imported) not in {
            "psycopg",
            "httpx",
            "httptools",
            "socket",
        }

    assert offences(allowed) == []


@pytest.mark.parametrize("library", ["aws_lambda_powertools", "boto3", "httpx"])
def test_no_lambda_imports_at_its_start_what_is_slow_and_rarely_needed(library: str) -> None:
    at_start = [
        module.name
        for module in modules().values()
        if module.within("shared", "functions") and module.name != "shared.sender.httpx_face"
        for statement in module.tree.body
        if any(root_of(imported) == library for imported in _imported(statement, module))
    ]
    assert at_start == []


def _own_imports(module: Module) -> set[str]:
    """Those of our modules that a module imports, or imports something from."""
    named = {
        imported if imported in modules() else imported.rpartition(".")[0]
        for imported in module.imports()
    }
    return named & modules().keys() - {module.name}


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module.name: _own_imports(module) for module in modules().values()}
    order = list(TopologicalSorter(graph).static_order())
    assert set(order) == set(modules())


def _reads_environment(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "environb" | "getenv"):
            return True
        case ast.ImportFrom(module="os", names=names):
            return any(alias.name in {"environ", "environb", "getenv"} for alias in names)
        case _:
            return False


def test_only_the_composition_root_and_local_tools_read_the_environment() -> None:
    readers = {
        module.name
        for module in modules().values()
        if not module.within("infra") and any(map(_reads_environment, ast.walk(module.tree)))
    }
    # The log has to work when the settings are wrong, so its own are beside them, as Powertools' are.
    assert readers == {"shared.runtime", "shared.function_log"}


def test_the_handlers_import_without_a_usable_environment() -> None:
    """A setting that is wrong is reported by the invocation that needs it, not by a crash at start."""
    handlers = sorted(name for name in modules() if name.startswith("functions."))
    broken = {
        "LEASEHOOK_TIMEOUT_SECONDS": "broken",
        "LEASEHOOK_SECRET_KEY": "broken",
        "DATABASE_URL": "broken",
        "PATH": os.environ["PATH"],
    }
    source = "\n".join([f"import {name}" for name in handlers] + ["print('imported')"])
    finished = subprocess.run(
        [sys.executable, "-c", source],
        env=broken,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.stdout, finished.stderr) == ("imported\n", "")


def _asked_for() -> dict[str, str]:
    """The queries that are named in calls of `fetch` and `query`, with the module that does."""
    asked = {}
    for module in modules().values():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call):
                continue
            match node.func, node.args:
                case (
                    (ast.Name(id="query"), [ast.Constant(value=str(name)), *_])
                    | (ast.Attribute(attr="fetch"), [ast.Constant(value=str(name)), *_])
                    | (ast.Name(id="fetch"), [_, ast.Constant(value=str(name)), *_])
                ):
                    asked[name] = module.name
                case _:
                    pass
    return asked


def test_every_query_that_is_asked_for_exists() -> None:
    asked = _asked_for()
    assert len(asked) > 10
    assert {name: where for name, where in asked.items() if name not in queries.names()} == {}


def test_every_query_is_asked_for() -> None:
    named = {text for module in modules().values() for text in module.strings()}
    assert [name for name in queries.names() if name not in named] == []
