"""The text format of Prometheus (version 0.0.4), as far as gauges need it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Gauge:
    """One metric: its name, what it means, and its values.

    `label` names the one label that tells the values apart; without it there is one value, under "".
    """

    name: str
    help: str
    values: Mapping[str, float]
    label: str | None = None


def gauge(name: str, help_text: str, value: float) -> Gauge:
    """A metric of one value."""
    return Gauge(name, help_text, {"": value})


def exposition(gauges: Iterable[Gauge]) -> str:
    """Metrics as a scrape reads them."""
    return "".join(line for each in gauges for line in _lines(each))


def _lines(each: Gauge) -> Iterable[str]:
    yield f"# HELP {each.name} {_escaped(each.help)}\n"
    yield f"# TYPE {each.name} gauge\n"
    for value_name, value in each.values.items():
        quoted = _escaped(value_name).replace('"', r"\"")
        labels = "" if each.label is None else f'{{{each.label}="{quoted}"}}'
        yield f"{each.name}{labels} {value:.17g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
