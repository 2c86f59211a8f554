"""What a cold start pays for imports: each function in fresh interpreters, with compiled files, the best of N.

    python -m tests.bench.bench_imports [--rounds N] [--heaviest N]

Only Python's part of a cold start is measured, on this machine; Lambda adds the start of its environment.
"""

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FUNCTIONS = ("ingest", "api", "drain", "maintain", "migrate")

TIMED = """
import importlib, sys, time
started = time.perf_counter()
importlib.import_module(sys.argv[1])
print(1000 * (time.perf_counter() - started), len(sys.modules))
"""
LINE = re.compile(r"import time:\s*(\d+) \|\s*\d+ \| \s*(\S+)$")


@dataclass(frozen=True, slots=True)
class Start:
    """How long an import took and how many modules were loaded in the end, Python's own included."""

    milliseconds: float
    modules: int


def start(module: str) -> Start:
    """One import in a fresh interpreter."""
    milliseconds, modules = _run("-c", TIMED, module).stdout.split()
    return Start(float(milliseconds), int(modules))


def shares(module: str) -> dict[str, float]:
    """Milliseconds that each library and package of ours takes for its own modules, as Python's profiler sees it."""
    found: dict[str, float] = {}
    for line in _run("-X", "importtime", "-c", f"import {module}").stderr.splitlines():
        match = LINE.match(line)
        if match:
            root = match[2].partition(".")[0]
            name = "the standard library" if root in sys.stdlib_module_names else root
            found[name] = found.get(name, 0.0) + int(match[1]) / 1000
    return found


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )


def main() -> None:
    """Print a line for each function: time, modules, and what is heaviest in it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--heaviest", type=int, default=6)
    options = parser.parse_args()

    for function in FUNCTIONS:
        start(f"functions.{function}")  # compiles what is not compiled yet
    best = {name: start(f"functions.{name}") for name in FUNCTIONS}
    for _ in range(options.rounds - 1):
        for name in FUNCTIONS:
            best[name] = min(
                best[name], start(f"functions.{name}"), key=lambda each: each.milliseconds
            )
    print(f"Import of each function, best of {options.rounds} fresh interpreters, with .pyc:")
    for name in FUNCTIONS:
        # The profiler's times are longer than those above; what counts are the shares.
        parts = sorted(shares(f"functions.{name}").items(), key=lambda part: -part[1])
        total = sum(milliseconds for _, milliseconds in parts)
        heaviest = ", ".join(
            f"{library} {100 * milliseconds / total:.0f} %"
            for library, milliseconds in parts[: options.heaviest]
        )
        print(
            f"  {name:9}{best[name].milliseconds:6.0f} ms {best[name].modules:5} modules: {heaviest}"
        )


if __name__ == "__main__":
    main()
