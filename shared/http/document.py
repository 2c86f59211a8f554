"""The OpenAPI document, where it says what no single route knows."""

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from shared.http import schemas

_FOREIGN_PROBLEMS = ("HTTPValidationError", "ValidationError")


def operation_id(route: APIRoute) -> str:
    """The name of the route's function: generated clients name their methods by it."""
    return route.name


def install(app: FastAPI) -> None:
    """Complete the document that the framework generates."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        for path in document["paths"].values():
            for operation in path.values():
                _drop_foreign_problem(operation["responses"])
                for parameter in operation.get("parameters", []):
                    parameter["schema"] = _without_null(parameter["schema"])
        known = document.setdefault("components", {}).setdefault("schemas", {})
        for name in _FOREIGN_PROBLEMS:
            known.pop(name, None)
        known["Problem"] = schemas.PROBLEM
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # the framework's documented way to extend it


def _drop_foreign_problem(responses: dict[str, Any]) -> None:
    """It is added to every route with a parameter, also where there is no value that could be wrong."""
    if "application/json" in responses.get("422", {}).get("content", {}):
        del responses["422"]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query or header has no null: what looks like one is a text."""
    alternatives: list[dict[str, Any]] = [
        each for each in schema.get("anyOf", []) if each != {"type": "null"}
    ]
    if len(alternatives) != 1:
        return schema
    return {name: value for name, value in schema.items() if name != "anyOf"} | alternatives[0]
