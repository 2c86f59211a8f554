"""The OpenAPI document is valid, complete, and pleasant to generate a client from."""

import re
from collections import Counter
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.contract.operations import Operation, document, operations

PROBLEM = "application/problem+json"
EVERY_OPERATION = pytest.mark.parametrize("operation", operations(), ids=str)


def answers(operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = operation.description["responses"]
    return responses


def test_the_document_is_valid_openapi() -> None:
    assert document()["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(document()).validate()


def test_operations_are_named_as_a_programmer_would_name_them() -> None:
    names = [operation.name for operation in operations()]
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names), names
    assert [name for name, count in Counter(names).items() if count > 1] == []


@EVERY_OPERATION
def test_an_operation_says_what_it_does_and_where_it_belongs(operation: Operation) -> None:
    assert re.fullmatch(r"[A-Z].{5,60}[^.]", operation.description["summary"])
    assert len(operation.description["tags"]) == 1
    assert operation.description["description"]


def test_who_needs_no_key_is_known_by_name() -> None:
    assert {each.name for each in operations() if not each.needs_a_key} == {
        "healthz",
        "readyz",
        "receive_webhook",
    }
    assert document()["components"]["securitySchemes"]["apiKey"]["scheme"] == "bearer"


@EVERY_OPERATION
def test_an_operation_lists_the_answers_that_follow_from_what_it_takes(
    operation: Operation,
) -> None:
    expected = set()
    if operation.name != "healthz":
        expected |= {"503"}
    if operation.needs_a_key:
        expected |= {"401", "403"}
        if "publish" not in operation.description["tags"]:
            expected |= {"429"}
    if operation.is_about_a_tenant:
        expected |= {"404", "422"}
    if operation.takes_json:
        expected |= {"413", "422"}
    if operation.needs_a_key and operation.parameters("query"):
        expected |= {"422"}
    if operation.needs_a_key and operation.parameters("path"):
        expected |= {"404", "422"}
    assert expected <= set(answers(operation))


@EVERY_OPERATION
def test_every_refusal_is_a_problem_document(operation: Operation) -> None:
    refusals = {status: each for status, each in answers(operation).items() if status >= "400"}
    for status, refusal in refusals.items():
        schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
        assert refusal["content"] == {PROBLEM: schema}, status
        told = refusal.get("headers", {})
        assert ("Retry-After" in told) == (status in ("429", "503"))
        assert ("WWW-Authenticate" in told) == (status == "401")


@EVERY_OPERATION
def test_a_success_has_a_schema_unless_it_is_empty(operation: Operation) -> None:
    successes = {status: each for status, each in answers(operation).items() if status < "300"}
    assert successes
    for status, success in successes.items():
        if status != "204" and operation.name != "receive_webhook":
            assert all(content["schema"] for content in success["content"].values()), status
            assert success["content"]


def test_the_limit_is_told_where_it_holds() -> None:
    for operation in operations():
        limited = "429" in answers(operation)
        told = "RateLimit-Remaining" in answers(operation).get("200", {}).get("headers", {})
        if "200" in answers(operation):
            assert told == limited, operation.name


@EVERY_OPERATION
def test_no_parameter_claims_to_take_null(operation: Operation) -> None:
    """A query has no null: a client that believed it would send the text `null`."""
    for parameter in operation.description.get("parameters", []):
        assert {"type": "null"} not in parameter["schema"].get("anyOf", []), parameter["name"]
