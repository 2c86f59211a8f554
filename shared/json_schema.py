r"""JSON Schema 2020-12, as far as it is safe to run what a tenant wrote where everybody's requests run.

Three things differ from the standard. `format` is checked, not only noted. A pattern is an expression of Rust's `regex`,
which takes linear time whatever the text, and therefore knows neither look-around nor back references; `\d` and `\w`
are ASCII, as in ECMAScript. And a schema is one document without recursion, of bounded extent: what a payload costs is
then at most its size times the schema's extent, and nothing is ever fetched.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from shared.errors import Invalid
from shared.schema_extent import extent
from shared.schema_faults import described

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

MAX_SCHEMA_BYTES = 65_536
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_MAX_PATTERN_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Schema:
    """A compiled schema. `extent` is how many subschemas it has once every reference is followed, patterns weighted."""

    extent: int
    _validator: "Draft202012Validator" = field(repr=False)

    def fault(self, value: object, name: str) -> Invalid | None:
        """What is wrong with a JSON value, if anything; `name` is what the value is called in the request.

        The first fault only: looking for all of them takes seconds for a large value. It names the failing place and
        the rule, never what stands there.
        """
        from jsonschema_rs import ValidationError  # noqa: PLC0415 - only who has schemas pays for it

        try:
            self._validator.validate(value)
        except ValidationError as error:
            return described(error, name)
        return None

    def fault_of_text(self, text: bytes, name: str) -> Invalid | None:
        """Like `fault`, for a JSON text. Of a member that is repeated, the last one counts."""
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return Invalid(name, "must hold no number beyond the range of a 64-bit float")
        return self.fault(value, name)


def compile_schema(schema: Mapping[str, Any], name: str = "schema") -> Schema:
    """Compile a schema; `name` is what it is called in the request.

    Raises:
        Invalid: it is no JSON Schema 2020-12, or one that is not accepted; names the place.
    """
    from jsonschema_rs import (  # noqa: PLC0415 - only who has schemas pays for it
        Draft202012Validator,
        RegexOptions,
        ValidationError,
    )

    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        raise Invalid(name, f"must be at most {MAX_SCHEMA_BYTES} bytes of JSON")
    if schema.get("$schema", DIALECT) not in (DIALECT, f"{DIALECT}#"):
        raise Invalid(f"{name}.$schema", f"must be {DIALECT}, or left out")
    size = extent(schema, name)
    # Under its own name it could stand for, or refer to, a document that the validator brings along.
    nameless = {key: value for key, value in schema.items() if key not in ("$id", "$schema")}
    try:
        validator = Draft202012Validator(
            nameless,
            validate_formats=True,
            offline=True,
            pattern_options=RegexOptions(
                size_limit=_MAX_PATTERN_BYTES, dfa_size_limit=_MAX_PATTERN_BYTES
            ),
        )
    except ValidationError as error:
        raise described(error, name) from None
    except ValueError:
        raise Invalid(name, "must be a JSON Schema 2020-12") from None
    return Schema(size, validator)
