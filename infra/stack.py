"""What CloudFormation would make of a template and a set of parameter values, worked out without it.

A template goes through the real SAM transform. Then parameters, mappings and conditions get their values, so that what is
left is one shape of the stack: resources whose condition is false are gone, and so are branches not taken. What is only
known in an account (names, ARNs, the region) stays as it is written.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import boto3
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse

Template = Mapping[str, Any]

_REGION = "us-east-1"
"""The transform asks for one, and uses it for the partition."""

_NOTHING: Final = object()
"""What `AWS::NoValue` comes to."""

_NO_IMPORTS: Mapping[str, str] = MappingProxyType({})

_PLACEHOLDER = re.compile(r"\$\{(?!!)([^}]+)\}")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource: its type, its properties, and all that is written about it."""

    type: str
    properties: Mapping[str, Any]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stack:
    """A template after the transform. `written` is all of it, `resources` and `outputs` are this shape of it."""

    written: Template
    parameters: Mapping[str, Any]
    resources: Mapping[str, Resource]
    outputs: Mapping[str, Any]

    def of_type(self, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Logical ids and properties of the resources of one type."""
        for logical_id, resource in self.resources.items():
            if resource.type == name:
                yield logical_id, resource.properties

    def functions(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Logical ids and properties of the Lambda functions."""
        return self.of_type("AWS::Lambda::Function")

    def environment(self, logical_id: str) -> dict[str, str]:
        """The environment variables of a function."""
        properties = self.resources[logical_id].properties
        variables = properties.get("Environment", {}).get("Variables", {})
        return {key: text_of(value) for key, value in variables.items()}


def read_template(path: Path) -> dict[str, Any]:
    """The template as it is written, CloudFormation's short forms (`!Ref`) spelled out."""
    template: dict[str, Any] = yaml_parse(path.read_text())
    return template


def transform(template: Template, parameters: Mapping[str, str]) -> dict[str, Any]:
    """The template after the SAM transform, which sees the values of the parameters, too.

    Raises:
        samtranslator.model.exceptions.InvalidDocumentException: the transform refuses the template.
    """
    packaged = deepcopy(dict(template))
    # `sam package` puts the place of the uploaded code here, and the transform insists on one.
    packaged["Globals"]["Function"]["CodeUri"] = "s3://bucket/key"
    session = boto3.Session(region_name=_REGION)
    expanded: dict[str, Any] = Translator(None, Parser(), boto_session=session).translate(
        packaged, parameter_values=dict(parameters), get_managed_policy_map=dict
    )
    return expanded


def evaluate(
    template: Template, parameters: Mapping[str, str], imports: Mapping[str, str] = _NO_IMPORTS
) -> Stack:
    """One shape of a template that has gone through the transform, or needs none.

    `imports` are the exports of other stacks by name; those that are missing stay as they are written.
    """
    values = _Values(template, parameters, imports)
    resources = {
        logical_id: values.of(body)
        for logical_id, body in template["Resources"].items()
        if "Condition" not in body or values.condition(body["Condition"])
    }
    return Stack(
        written=template,
        parameters=values.parameters,
        resources={
            logical_id: Resource(body["Type"], body.get("Properties", {}), body)
            for logical_id, body in resources.items()
        },
        outputs={
            name: values.of(output)
            for name, output in template.get("Outputs", {}).items()
            if "Condition" not in output or values.condition(output["Condition"])
        },
    )


def refusals(template: Template, parameters: Mapping[str, str]) -> Iterator[str]:
    """Why CloudFormation would refuse these values before it changes anything: patterns, lists of values, and rules."""
    for name in parameters.keys() - template["Parameters"].keys():
        yield f"{name}: there is no such parameter"
    for name, parameter in template["Parameters"].items():
        value = str(parameters.get(name, parameter.get("Default", "")))
        pattern = parameter.get("AllowedPattern")
        if pattern is not None and not re.fullmatch(pattern, value):
            yield f"{name}: {parameter.get('ConstraintDescription', f'must match {pattern}')}"
        if value not in map(str, parameter.get("AllowedValues", [value])):
            yield f"{name}: must be one of {parameter['AllowedValues']}"
    values = _Values(template, parameters)
    for rule in template.get("Rules", {}).values():
        if values.truth(rule.get("RuleCondition", True)):
            for assertion in rule["Assertions"]:
                if not values.truth(assertion["Assert"]):
                    yield assertion["AssertDescription"]


def text_of(node: object) -> str:
    """A value as one text: what is known in an account only is `${Name}`, whichever function it was written with."""
    match node:
        case str():
            return node
        case {"Ref": str(name)}:
            return f"${{{name}}}"
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return f"${{{name}.{attribute}}}"
        case {"Fn::Sub": str(text)}:
            return text
        case {"Fn::Sub": [str(text), dict(local)]}:
            return _substitute(text, {name: text_of(value) for name, value in local.items()})
        case {"Fn::Join": [str(separator), list(parts)]}:
            return separator.join(text_of(part) for part in parts)
        case _:
            return json.dumps(node)


def _is_text(node: object) -> bool:
    """Whether `text_of` can say it, so that it can be part of a longer text."""
    match node:
        case str() | {"Ref": str()} | {"Fn::GetAtt": [str(), str()]} | {"Fn::Sub": str()}:
            return True
        case _:
            return False


def _substitute(text: str, known: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: known.get(found[1], found[0]), text)


class _Values:
    """The values of parameters, mappings and conditions."""

    def __init__(
        self,
        template: Template,
        parameters: Mapping[str, str],
        imports: Mapping[str, str] = _NO_IMPORTS,
    ) -> None:
        self.parameters = {
            name: _parsed(parameter["Type"], parameters.get(name, parameter.get("Default", "")))
            for name, parameter in template.get("Parameters", {}).items()
        }
        self._conditions = template.get("Conditions", {})
        self._imports = imports
        self._mappings = template.get("Mappings", {})
        self._functions: Mapping[str, Callable[[Any], object]] = {
            "Ref": self._ref,
            "Fn::If": self._if,
            "Fn::Sub": self._sub,
            "Fn::Join": self._join,
            "Fn::Split": self._split,
            "Fn::Select": self._select,
            "Fn::FindInMap": self._find_in_map,
            "Fn::ImportValue": self._import,
        }

    def condition(self, name: str) -> bool:
        # One that does not exist is false here; that it does not is for a check to say.
        return name in self._conditions and self.truth(self._conditions[name])

    def truth(self, expression: object) -> bool:
        match expression:
            case bool():
                return expression
            case {"Condition": str(name)}:
                return self.condition(name)
            case {"Fn::Not": [inner]}:
                return not self.truth(inner)
            case {"Fn::And": list(parts)}:
                return all(self.truth(part) for part in parts)
            case {"Fn::Or": list(parts)}:
                return any(self.truth(part) for part in parts)
            case {"Fn::Equals": [left, right]}:
                return str(self.of(left)) == str(self.of(right))
            case {"Fn::Contains": [list(values), value]}:
                return self.of(value) in values
            case _:
                raise ValueError(f"expected a condition, got {expression!r}")

    def of(self, node: object) -> Any:  # noqa: ANN401  # any part of a template
        match node:
            case list():
                return [value for value in map(self.of, node) if value is not _NOTHING]
            case dict():
                if len(node) == 1:
                    [(name, argument)] = node.items()
                    if name in self._functions:
                        return self._functions[name](argument)
                values = {key: self.of(value) for key, value in node.items()}
                return {key: value for key, value in values.items() if value is not _NOTHING}
            case _:
                return node

    def _ref(self, name: str) -> object:
        if name == "AWS::NoValue":
            return _NOTHING
        return self.parameters.get(name, {"Ref": name})

    def _if(self, argument: list[Any]) -> object:
        condition, then, otherwise = argument
        return self.of(then if self.condition(condition) else otherwise)

    def _sub(self, argument: str | list[Any]) -> object:
        text, written = (argument, {}) if isinstance(argument, str) else argument
        local = {name: self.of(value) for name, value in written.items()}
        known = {
            **self.parameters,
            **{name: local[name] for name in local if _is_text(local[name])},
        }
        text = _substitute(text, {name: text_of(known[name]) for name in known if name in text})
        unknown = {name: value for name, value in local.items() if name not in known}
        if unknown:
            return {"Fn::Sub": [text, unknown]}
        return {"Fn::Sub": text} if _PLACEHOLDER.search(text) else text

    def _join(self, argument: list[Any]) -> object:
        separator, parts = argument
        values = self.of(parts)
        if isinstance(values, list) and all(isinstance(value, str) for value in values):
            return separator.join(values)
        return {"Fn::Join": [separator, values]}

    def _split(self, argument: list[Any]) -> object:
        separator, text = self.of(argument)
        if isinstance(text, str):
            return text.split(separator)
        return {"Fn::Split": [separator, text]}

    def _select(self, argument: list[Any]) -> object:
        index, values = argument[0], self.of(argument[1])
        if isinstance(values, list):
            return values[int(index)]
        return {"Fn::Select": [index, values]}

    def _find_in_map(self, argument: list[Any]) -> object:
        table, *keys = self.of(argument)
        value = self._mappings[table]
        for key in keys:
            if not isinstance(key, str):
                return {"Fn::FindInMap": [table, *keys]}
            value = value[key]
        return value

    def _import(self, argument: object) -> object:
        name = self.of(argument)
        return self._imports.get(text_of(name), {"Fn::ImportValue": name})


def _parsed(kind: str, value: object) -> object:
    if kind == "CommaDelimitedList" or kind.startswith("List<"):
        return [item.strip() for item in str(value).split(",")]
    return value


def references(node: object) -> Iterator[str]:
    """The names that a part of a template refers to: parameters, resources and conditions."""
    match node:
        case list():
            for item in node:
                yield from references(item)
        case dict():
            for key, value in node.items():
                yield from _REFERRING.get(key, references)(value)


def _named(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list() if all(isinstance(name, str) for name in value):
            yield from value
        case _:  # the `Condition` of a policy statement
            yield from references(value)


def _owner(value: object) -> Iterator[str]:
    match value:
        case str(path) | [str(path), *_]:
            yield path.partition(".")[0]


def _substituted(value: object) -> Iterator[str]:
    match value:
        case str(text):
            yield from (name.partition(".")[0] for name in _PLACEHOLDER.findall(text))
        case [str(text), dict(local)]:
            yield from (name for name in _substituted(text) if name not in local)
            yield from references(list(local.values()))


def _chosen(value: object) -> Iterator[str]:
    match value:
        case [str(condition), *branches]:
            yield condition
            yield from references(branches)


_REFERRING: Mapping[str, Callable[[object], Iterator[str]]] = {
    "Ref": _named,
    "Condition": _named,
    "DependsOn": _named,
    "Fn::GetAtt": _owner,
    "Fn::Sub": _substituted,
    "Fn::If": _chosen,
}
