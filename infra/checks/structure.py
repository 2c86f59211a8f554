"""Whether the stack fits together: references, order, and code that can be imported."""

import graphlib
import importlib
from collections.abc import Iterator, Mapping

from infra.stack import Stack, references


def dangling_references(stack: Stack) -> Iterator[str]:
    """References to what does not exist: nowhere, or not in this shape."""
    template = stack.written
    conditions = template.get("Conditions", {})
    mappings = template.get("Mappings", {})
    known = {*stack.parameters, *conditions, *mappings, *template["Resources"]}
    yield from _dangling({**conditions, **template["Resources"]}, known)
    yield from _dangling(template.get("Outputs", {}), known)
    present = {*conditions, *stack.resources}
    yield from _dangling({name: each.body for name, each in stack.resources.items()}, present)
    yield from _dangling(stack.outputs, present)


def _dangling(places: Mapping[str, object], known: set[str]) -> Iterator[str]:
    for place, body in places.items():
        for name in sorted(set(references(body)) - known):
            if not name.startswith("AWS::"):
                yield f"{place}: refers to {name}, which does not exist"


def dependency_cycles(stack: Stack) -> Iterator[str]:
    """Resources that wait for each other, which CloudFormation refuses only when it deploys."""
    graph = {
        logical_id: set(references(resource.body)) & set(stack.resources)
        for logical_id, resource in stack.resources.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield f"resources depend on each other: {' -> '.join(error.args[1])}"


def missing_handlers(stack: Stack) -> Iterator[str]:
    """Functions whose handler cannot be imported."""
    for logical_id, properties in stack.functions():
        module, _, name = properties["Handler"].rpartition(".")
        try:
            handler = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            yield f"{logical_id}: handler {properties['Handler']}: {error}"
        else:
            if not callable(handler):
                yield f"{logical_id}: handler {properties['Handler']} is not callable"
