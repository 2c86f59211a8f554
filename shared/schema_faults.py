"""Faults that a JSON Schema finds, in words: the place and the rule, never what stands there."""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from shared.errors import Invalid

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

Path = tuple[str | int, ...]
"""The way to a value inside a JSON document: names of members and indices of items."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_$-]{1,64}", re.ASCII)
_SHOWN_NAME_LENGTH = 64

# By keyword; `{}` is the keyword's value in the schema.
_RULES: Mapping[str, str] = MappingProxyType(
    {
        "additionalProperties": "must have no members but those that are described",
        "anyOf": "must be one of the alternatives, and is none",
        "const": "must be the value that the schema names",
        "enum": "must be one of the values that the schema lists",
        "exclusiveMaximum": "must be less than {}",
        "exclusiveMinimum": "must be more than {}",
        "falseSchema": "must not be there",
        "format": "must be of the format '{}'",
        "maxItems": "must have at most {} items",
        "maxLength": "must have at most {} characters",
        "maxProperties": "must have at most {} members",
        "maximum": "must be at most {}",
        "minItems": "must have at least {} items",
        "minLength": "must have at least {} characters",
        "minProperties": "must have at least {} members",
        "minimum": "must be at least {}",
        "multipleOf": "must be a multiple of {}",
        "oneOf": "must be exactly one of the alternatives, and is none or several",
        "pattern": "must match the pattern of the schema",
        "required": "is required",
        "unevaluatedProperties": "must have no members but those that are described",
        "uniqueItems": "must not have the same item twice",
    }
)


def described(error: "ValidationError", name: str) -> Invalid:
    """A validator's error; `name` is what the whole value is called in the request."""
    keyword, limit = error.kind.name, error.kind.value
    path: Path = tuple(error.instance_path)
    match keyword:
        case "required":
            path, rule = (*path, str(limit)), _RULES[keyword]
        case "type":
            rule = f"must be of type {' or '.join(limit)}"
        case _:
            rule = _RULES.get(keyword, f"breaks the schema's '{keyword}'").format(limit)
    return Invalid(place(name, path), rule)


def place(name: str, path: Path) -> str:
    """Such as `payload.items[0].price`. Names that are not plain are quoted, and cut where they are long."""
    parts = [name]
    for step in path:
        match step:
            case int():
                parts.append(f"[{step}]")
            case _ if _PLAIN_NAME.fullmatch(step):
                parts.append(f".{step}")
            case _:
                short = step if len(step) <= _SHOWN_NAME_LENGTH else f"{step[:_SHOWN_NAME_LENGTH]}…"
                parts.append(f"[{json.dumps(short, ensure_ascii=False)}]")
    return "".join(parts)
