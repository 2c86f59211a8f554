"""The OpenAPI document, read as the list of what the API can be asked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from functions.api import create_app
from shared.runtime import Runtime

JSON = "application/json"
Document = dict[str, Any]


@dataclass(frozen=True)
class Operation:
    """A method of a path."""

    method: str
    path: str
    description: Mapping[str, Any]

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """Its operationId."""
        name: str = self.description["operationId"]
        return name

    @property
    def needs_a_key(self) -> bool:
        """Whether a request without an API key is refused."""
        return "security" in self.description

    @property
    def is_about_a_tenant(self) -> bool:
        """Whether an operator's key has to name one."""
        return "leasehook-tenant" in self.parameters("header")

    @property
    def takes_json(self) -> bool:
        """Whether it has a JSON body."""
        return JSON in self.description.get("requestBody", {}).get("content", {})

    def parameters(self, place: Literal["path", "query", "header"]) -> list[str]:
        """The names of its parameters in the path, the query or the headers."""
        return [
            each["name"] for each in self.description.get("parameters", []) if each["in"] == place
        ]


def document() -> Document:
    """The document of the whole API. Nothing is asked of a database for it."""
    return create_app(Runtime.read({})).openapi()


def operations() -> list[Operation]:
    """Everything in the document."""
    return [
        Operation(method.upper(), path, description)
        for path, methods in document()["paths"].items()
        for method, description in methods.items()
    ]
