"""What a JSON Schema can cost, found without running it: its subschemas, and where its references lead."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, assert_never
from urllib.parse import unquote

from shared.errors import Invalid
from shared.schema_faults import Path, place

MAX_DEPTH = 100
MAX_EXTENT = 2000
PATTERN_EXTENT = 20
"""A compiled pattern takes memory, so it counts as many subschemas."""

# To know what is left over, a validator goes through the neighbours twice more; nested, that multiplies.
_UNEVALUATED_FACTOR = 3

_UNEVALUATED = frozenset({"unevaluatedItems", "unevaluatedProperties"})
_SINGLE = _UNEVALUATED | {
    "not",
    "if",
    "then",
    "else",
    "items",
    "contains",
    "additionalProperties",
    "propertyNames",
}
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
_MAPS = _DEFINITIONS | {"properties", "patternProperties", "dependentSchemas", "dependencies"}
_SAME_VALUE = frozenset(
    {"not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"}
)

_Use = Literal["same value", "part", "definition"]
"""Whether a subschema is about the value itself, about a part of it, or about nothing until a reference leads there."""


def extent(schema: Mapping[str, Any], name: str) -> int:
    """How many subschemas a schema has once every reference is followed, patterns weighted; at most MAX_EXTENT.

    Raises:
        Invalid: it has more, is recursive, or refers to something outside; names the place, inside of `name`.
    """
    return _Measure(schema, name).of_root()


def moved(schema: Mapping[str, Any], to: str) -> dict[str, Any]:
    """The schema as a part of a larger document, at the JSON pointer `to` in it: its references lead there.

    The schema must have been compiled before.
    """
    root = {key: value for key, value in schema.items() if key not in ("$id", "$schema")}
    result: dict[str, Any] = json.loads(json.dumps(root))
    for path in _Measure(root, "schema").paths():
        node: Any = result
        for step in path:
            node = node[step]
        if isinstance(node.get("$ref"), str):
            node["$ref"] = f"#{to}{node['$ref'].removeprefix('#')}"
    return result


def _subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[Path, object, _Use]]:
    """Each direct subschema with its path and what it is for."""
    for key, value in schema.items():
        use = _use_of(key)
        if key in _SINGLE:
            yield (key,), value, use
        elif key in _LISTS and isinstance(value, list):
            yield from (((key, index), each, use) for index, each in enumerate(value))
        elif key in _MAPS and isinstance(value, dict):
            yield from (((key, name), each, use) for name, each in value.items())


def _use_of(key: str) -> _Use:
    if key in _SAME_VALUE:
        return "same value"
    return "definition" if key in _DEFINITIONS else "part"


@dataclass(frozen=True, slots=True)
class _Extent:
    size: int
    height: int


class _Measure:
    """How much work a schema can be, found without running it; refuses what cannot be bounded."""

    def __init__(self, root: Mapping[str, Any], name: str) -> None:
        self._root = root
        self._name = name
        self._known: dict[Path, _Extent] = {}
        self._open: set[Path] = set()

    def of_root(self) -> int:
        return self._of(self._root, ()).size

    def paths(self) -> list[Path]:
        self.of_root()
        return list(self._known)

    def _of(self, schema: object, path: Path) -> _Extent:
        """Definitions that nothing refers to are looked at too: they are shown like the others."""
        if not isinstance(schema, Mapping):
            return _Extent(1, 1)
        if path not in self._known:
            if len(self._open) >= MAX_DEPTH:
                raise self._invalid(
                    path, f"must not nest deeper than {MAX_DEPTH} subschemas, references followed"
                )
            self._open.add(path)
            self._known[path] = self._sum(schema, path)
            self._open.discard(path)
        return self._known[path]

    def _sum(self, schema: Mapping[str, Any], path: Path) -> _Extent:
        self._refuse_what_moves_references(schema, path)
        factor = _UNEVALUATED_FACTOR if not _UNEVALUATED.isdisjoint(schema) else 1
        size = 1 + PATTERN_EXTENT * _pattern_count(schema)
        height = 0
        for steps, child, use in _subschemas(schema):
            extent = self._of(child, path + steps)
            height = max(height, extent.height)
            match use:
                case "same value":
                    size += extent.size * factor
                case "part":
                    size += extent.size
                case "definition":
                    pass
                case _:
                    assert_never(use)
        if isinstance(schema.get("$ref"), str):
            extent = self._of_target(schema["$ref"], (*path, "$ref"))
            height = max(height, extent.height)
            size += extent.size * factor
        if height >= MAX_DEPTH:
            raise self._invalid(
                path, f"must not nest deeper than {MAX_DEPTH} subschemas, references followed"
            )
        if size > MAX_EXTENT:
            raise self._invalid(
                path,
                f"must have at most {MAX_EXTENT} subschemas once every reference is followed; a pattern counts as "
                f"{PATTERN_EXTENT}, and what stands beside unevaluated… as {_UNEVALUATED_FACTOR} times as many",
            )
        return _Extent(size, height + 1)

    def _of_target(self, reference: str, path: Path) -> _Extent:
        if not (reference == "#" or reference.startswith("#/")):
            raise self._invalid(
                path, "must be '#' and a JSON pointer, such as #/$defs/price: nothing is fetched"
            )
        target: object = self._root
        steps: list[str | int] = []
        for token in unquote(reference[1:]).split("/")[1:]:
            step: str | int = token.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and token.isascii() and token.isdecimal():
                step = int(token)
            try:
                target = target[step]  # type: ignore[index]  # what cannot be indexed raises TypeError
            except (KeyError, IndexError, TypeError):
                raise self._invalid(path, "leads nowhere in this schema") from None
            steps.append(step)
        if tuple(steps) in self._open:
            raise self._invalid(
                path, "must not lead back to where it stands: recursive schemas are not accepted"
            )
        return self._of(target, tuple(steps))

    def _refuse_what_moves_references(self, schema: Mapping[str, Any], path: Path) -> None:
        if path and "$id" in schema:
            raise self._invalid((*path, "$id"), "is accepted at the top only")
        for key in ("$dynamicRef", "$recursiveRef"):
            if key in schema:
                raise self._invalid((*path, key), "is not accepted: use $ref")

    def _invalid(self, path: Path, rule: str) -> Invalid:
        return Invalid(place(self._name, path), rule)


def _pattern_count(schema: Mapping[str, Any]) -> int:
    properties = schema.get("patternProperties")
    return ("pattern" in schema) + (len(properties) if isinstance(properties, dict) else 0)
