"""Migrate: invoked after a deploy, it brings the schema up to date; asked for one, it makes the first API key."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from shared.errors import Invalid
from shared.function_log import FunctionLog
from shared.keys import create_key, create_operator_key
from shared.runtime import process_runtime
from shared.store.connection import Database, Row
from shared.store.migrations import migrate
from shared.store.tenancy import ensure_tenant

_log = logging.getLogger(__name__)
_function_log = FunctionLog("migrate")
_FIRST_TENANT = "default"


def handler(event: Any, context: Any) -> dict[str, Any]:  # noqa: ANN401  # whatever Lambda is invoked with
    """Apply the migrations that are missing and answer their names. Harmless at any time, any number at once.

    `{"api_key": "a name"}` also makes a key of the tenant `default` with all scopes, `{"operator_key": "a name"}` an
    operator's, and the answer holds it, this once: who may invoke this function needs no other way to the database.
    An HTTP request is refused: nobody's URL may make keys.
    """
    if isinstance(event, dict) and "requestContext" in event:
        return {
            "refused": "migrations and keys are asked for by invoking the function, not over HTTP"
        }
    with _function_log.invocation(context):
        database = process_runtime().database
        applied = migrate(database)
        _log.info("migrated", extra={"applied": applied})
        return {"applied": applied, **_keys(database, event if isinstance(event, dict) else {})}


def _keys(database: Database, event: Mapping[str, Any]) -> dict[str, str]:
    makers: Mapping[str, Callable[[str], Row]] = {
        "api_key": lambda name: create_key(database, ensure_tenant(database, _FIRST_TENANT), name),
        "operator_key": lambda name: create_operator_key(database, name),
    }
    made = {}
    for member, make in makers.items():
        if member in event:
            name = event[member]
            if not isinstance(name, str):
                raise Invalid(member, "must be the name of the key")
            row = make(name)
            _log.info("made a key", extra={"key_id": row["id"], "scopes": row["scopes"]})
            made[member] = row["key"]
    return made
