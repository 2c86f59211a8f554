"""What the commands print: JSON for scripts, sentences and tables for people."""

import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_json(document: object) -> None:
    """One JSON document on one line of stdout: ids as strings, instants as in RFC 3339."""
    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    sys.stdout.flush()


def json_text(document: object) -> str:
    """JSON for people, on several lines."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def console(*, stderr: bool = False) -> Console:
    """Prints text as it is: what looks like markup in a URL or a payload is no markup."""
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def say(text: str, *, stderr: bool = False) -> None:
    """Print a sentence. Lines break where the text says and nowhere else, so that they can be copied."""
    console(stderr=stderr).print(text, soft_wrap=True)


def print_fields(fields: Sequence[tuple[str, Any]]) -> None:
    """Names and values in two columns; None is left out."""
    width = max(len(name) for name, _ in fields) + 2
    for name, value in fields:
        if value is not None:
            console().print(Text(f"  {name:<{width}}", style="dim") + str(value), soft_wrap=True)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, folded: Collection[str]
) -> None:
    """A table; the `folded` columns share the width that is left, all others stay whole."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, no_wrap=name not in folded, overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console().print(table)


def age(instant: datetime | None) -> str:
    """How long ago an instant was, such as `12 s`; with a minus if it is to come; a dash for none."""
    if instant is None:
        return "-"
    seconds = (datetime.now(UTC) - instant).total_seconds()
    size, unit = abs(seconds), "s"
    for length, name in ((60, "min"), (60, "h"), (24, "d")):
        if size < length:
            break
        size, unit = size / length, name
    return f"{'-' if seconds < 0 else ''}{size:.0f} {unit}"


def instant_text(instant: datetime | None) -> str | None:
    """An instant with its distance from now, such as `2030-01-31 09:00:00 UTC (in 3 h)`; None for none."""
    if instant is None:
        return None
    distance = age(instant)
    told = f"in {distance[1:]}" if distance.startswith("-") else f"{distance} ago"
    return f"{instant:%Y-%m-%d %H:%M:%S %Z} ({told})"
