"""JSON Schema: which schemas are accepted, and what a fault says."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import Invalid
from shared.json_schema import DIALECT, MAX_SCHEMA_BYTES, compile_schema
from shared.schema_extent import MAX_DEPTH, MAX_EXTENT, extent, moved

CANARY = "canary-7f3a"


def refusal(schema: dict[str, Any]) -> Invalid:
    with pytest.raises(Invalid) as caught:
        compile_schema(schema)
    return caught.value


def fault(schema: dict[str, Any], value: object) -> tuple[str, str] | None:
    found = compile_schema(schema).fault_of_text(json.dumps(value).encode(), "payload")
    return None if found is None else (found.field, found.rule)


def chain(count: int) -> dict[str, Any]:
    links: dict[str, Any] = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(count)}
    return {"$defs": links | {f"a{count}": {}}, "$ref": "#/$defs/a0"}


def doubling(count: int) -> dict[str, Any]:
    links: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(count)
    }
    return {"$defs": links | {f"a{count}": {}}, "$ref": "#/$defs/a0"}


def nested(count: int, **beside: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(count):
        schema = {"allOf": [schema], **beside}
    return schema


@pytest.mark.parametrize(
    ("schema", "value", "field", "rule"),
    [
        ({"type": ["object", "null"]}, CANARY, "payload", "must be of type null or object"),
        ({"required": ["id"]}, {}, "payload.id", "is required"),
        ({"properties": {"a": {"minimum": 3}}}, {"a": 2}, "payload.a", "must be at least 3"),
        (
            {"items": {"maxLength": 3}},
            ["a", CANARY],
            "payload[1]",
            "must have at most 3 characters",
        ),
        ({"enum": ["a"]}, CANARY, "payload", "must be one of the values that the schema lists"),
        ({"const": "a"}, CANARY, "payload", "must be the value that the schema names"),
        ({"pattern": "^a+$"}, CANARY, "payload", "must match the pattern of the schema"),
        ({"format": "date-time"}, CANARY, "payload", "must be of the format 'date-time'"),
        ({"multipleOf": 0.01}, 1.005, "payload", "must be a multiple of 0.01"),
        ({"properties": {"a": False}}, {"a": CANARY}, "payload.a", "must not be there"),
        ({"not": {"const": CANARY}}, CANARY, "payload", "breaks the schema's 'not'"),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            {CANARY: 1},
            "payload",
            "must have no members but those that are described",
        ),
        (
            {"anyOf": [{"type": "null"}, {"type": "array"}]},
            CANARY,
            "payload",
            "must be one of the alternatives, and is none",
        ),
        (
            {"additionalProperties": {"items": {"type": "null"}}},
            {"a b": [None, 1]},
            'payload["a b"][1]',
            "must be of type null",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) and value else "",
)
def test_a_fault_names_the_place_and_the_rule_and_never_the_value(
    schema: dict[str, Any], value: object, field: str, rule: str
) -> None:
    found = fault(schema, value)
    assert found is not None
    assert found[0] == field
    assert set(found[1].split()) == set(rule.split())
    assert CANARY not in found[0] + found[1]


def test_a_name_that_is_long_is_cut_in_the_place() -> None:
    found = fault({"additionalProperties": {"type": "null"}}, {"x" * 5000: 1})
    assert found is not None
    assert found[0] == f'payload["{"x" * 64}…"]'


def test_numbers_are_judged_as_they_are_written() -> None:
    cents = {"multipleOf": 0.01}
    assert [fault(cents, price) for price in (19.99, 4.35, 0.07, 1e15)] == [None] * 4
    assert fault({"type": "integer"}, 2**200) is None
    assert fault({"maximum": 2**64}, 2**64 + 1) is not None
    for text in (b"1e400", b"1" * 5000):
        found = compile_schema({}).fault_of_text(text, "payload")
        assert found is not None
        assert found.rule == "must hold no number beyond the range of a 64-bit float"


@pytest.mark.parametrize(
    ("schema", "field", "words"),
    [
        ({"type": "strin"}, "schema.type", "alternatives"),
        ({"properties": {"a": {"minimum": "x"}}}, "schema.properties.a.minimum", "type number"),
        ({"properties": []}, "schema.properties", "type object"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "schema.$schema", DIALECT),
        ({"pattern": "("}, "schema.pattern", "format 'regex'"),
        ({"$ref": "#/$defs/no"}, "schema.$ref", "leads nowhere"),
        ({"$ref": "#/type/x", "type": "null"}, "schema.$ref", "leads nowhere"),
        ({"$ref": "#name"}, "schema.$ref", "JSON pointer"),
        ({"$dynamicRef": "#name"}, "schema.$dynamicRef", "not accepted"),
        ({"items": {"$id": "urn:x"}}, "schema.items.$id", "at the top only"),
        ({"items": {"$ref": "#"}}, "schema.items.$ref", "recursive"),
        (
            {"$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}},
            "schema.$defs.b.$ref",
            "recursive",
        ),
        ({"x": "y" * MAX_SCHEMA_BYTES}, "schema", f"{MAX_SCHEMA_BYTES} bytes"),
    ],
)
def test_what_is_no_schema_or_cannot_be_bounded_is_refused_by_its_place(
    schema: dict[str, Any], field: str, words: str
) -> None:
    fault = refusal(schema)
    assert fault.field == field
    assert words in fault.rule


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:9/x", "https://example.com/x#/a", "file:///etc/passwd", "x.json"]
)
def test_nothing_outside_of_the_schema_is_ever_fetched(target: str) -> None:
    for schema in ({"$ref": target}, {"definitions": {"a": {"items": [{}, {"$ref": target}]}}}):
        with pytest.raises(Invalid):
            compile_schema(schema)
    assert "nothing is fetched" in refusal({"not": {"$ref": target}}).rule
    assert fault({"enum": [{"$ref": target}]}, {"$ref": target}) is None
    assert fault({"properties": {"$ref": {"const": target}}}, {"$ref": target}) is None


def test_a_schema_that_bears_the_name_of_a_well_known_one_is_still_itself() -> None:
    schema = {"$id": DIALECT, "$schema": DIALECT, "$defs": {"a": {"const": 1}}, "$ref": "#/$defs/a"}
    assert fault(schema, 1) is None
    assert fault(schema, 2) is not None


@pytest.mark.parametrize("pattern", ["(?=a)b", "(?<!a)b", r"(a)\1", "(a{1000}){1000}"])
def test_patterns_that_could_take_for_ever_are_refused(pattern: str) -> None:
    assert refusal({"pattern": pattern}).field == "schema.pattern"
    assert refusal({"patternProperties": {pattern: {}}}).field.startswith(
        "schema.patternProperties"
    )


def test_a_pattern_takes_linear_time_and_its_classes_are_ascii() -> None:
    schema = compile_schema({"pattern": "^(a+)+$"})
    begun_at = time.process_time()
    assert schema.fault("a" * 1_000_000 + "b", "payload") is not None
    assert time.process_time() - begun_at < 5
    assert fault({"pattern": r"^\w\d$"}, "a1") is None
    for text in ("é1", "a٣", "a1\n"):
        assert fault({"pattern": r"^\w\d$"}, text) is not None


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        (doubling(40), "subschemas once every reference is followed"),
        (nested(20, unevaluatedProperties=False), "subschemas once every reference is followed"),
        ({"anyOf": [{"pattern": "a"}] * 100}, "subschemas once every reference is followed"),
        (chain(1500), "nest deeper"),
        ({"$defs": dict(reversed(list(chain(1500)["$defs"].items())))}, "nest deeper"),
        (nested(150), "nest deeper"),
    ],
    ids=["doubling", "unevaluated", "patterns", "chain", "chain backwards", "nested"],
)
def test_a_schema_whose_cost_explodes_is_refused_at_once(schema: dict[str, Any], word: str) -> None:
    begun_at = time.process_time()
    assert word in refusal(schema).rule
    assert time.process_time() - begun_at < 1


def test_the_largest_schemas_that_are_accepted_run_quickly() -> None:
    for schema in (
        nested(5, unevaluatedProperties=False),
        doubling(8),
        nested(MAX_DEPTH - 2),
        {"anyOf": [{"type": "null"}] * (MAX_EXTENT - 1)},
    ):
        compiled = compile_schema(schema)
        begun_at = time.process_time()
        compiled.fault([], "payload")
        assert time.process_time() - begun_at < 1
    with pytest.raises(Invalid):
        extent({"anyOf": [{}] * MAX_EXTENT}, "schema")


def test_a_fault_in_a_huge_payload_is_found_without_looking_for_all_of_them() -> None:
    compiled = compile_schema({"items": {"type": "string"}})
    begun_at = time.process_time()
    assert compiled.fault([1] * 400_000, "payload") is not None
    assert time.process_time() - begun_at < 1


def test_a_schema_inside_another_document_refers_to_its_own_parts() -> None:
    schema = {
        "$id": "https://example.com/order.json",
        "$defs": {"price": {"minimum": 0}},
        "x-parts": [{"$ref": "#/$defs/price"}],
        "properties": {
            "price": {"$ref": "#/$defs/price"},
            "first": {"$ref": "#/x-parts/0"},
            "$ref": {"const": {"$ref": "#kept"}},
        },
    }
    outer = {"components": {"order.paid": moved(schema, "/components/order.paid")}}
    outer_schema = {**outer, "$ref": "#/components/order.paid"}
    for value, fits in (
        ({"price": 1}, True),
        ({"price": -1}, False),
        ({"first": -1}, False),
        ({"$ref": {"$ref": "#kept"}}, True),
    ):
        assert (fault(schema, value) is None) is fits
        assert (fault(outer_schema, value) is None) is fits


_KEYWORDS = st.sampled_from(
    [
        "type",
        "items",
        "properties",
        "allOf",
        "not",
        "$ref",
        "$defs",
        "pattern",
        "minimum",
        "enum",
        "if",
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["#", "#/$defs/a", "string", "("]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYWORDS, inner, max_size=3),
    max_leaves=20,
)


@given(st.dictionaries(_KEYWORDS, _JSON, max_size=4), _JSON)
def test_any_object_compiles_and_judges_or_is_refused(schema: dict[str, Any], value: Any) -> None:
    try:
        compiled = compile_schema(schema)
    except Invalid:
        return
    assert 1 <= compiled.extent <= MAX_EXTENT
    found = compiled.fault(value, "payload")
    assert found is None or found.field.startswith("payload")
