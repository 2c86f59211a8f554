"""Migrate: invoked after a deploy, it brings the schema up to date; asked for one, it makes the first API key."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from shared.errors import Invalid
from shared.function_log import FunctionLog
from shared.invocations import is_http
from shared.keys import create_key, create_operator_key
from shared.rules import check_name
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

    Raises:
        Invalid: both keys are asked for, or one by something that is no name; nothing was done.
    """
    if is_http(event):
        return {
            "refused": "migrations and keys are asked for by invoking the function, not over HTTP"
        }
    with _function_log.invocation(context):
        wanted = _wanted_key(event)
        database = process_runtime().database
        applied = migrate(database)
        _log.info("migrated", extra={"applied": applied})
        if wanted is None:
            return {"applied": applied}
        kind, name = wanted
        row = _MAKERS[kind](database, name)
        _log.info("made a key", extra={"key_id": row["id"], "scopes": row["scopes"]})
        return {"applied": applied, kind: row["key"]}


def _wanted_key(event: object) -> tuple[str, str] | None:
    members = event if isinstance(event, dict) else {}
    wanted = [kind for kind in _MAKERS if kind in members]
    match wanted:
        case []:
            return None
        case [kind]:
            name = members[kind]
            if not isinstance(name, str):
                raise Invalid(kind, "must be the name of the key")
            check_name(kind, name)
            return kind, name
        case _:
            # If the second one failed, the first one's text would be lost.
            raise Invalid(wanted[1], f"must not be asked for together with {wanted[0]}")


def _make_tenants_key(database: Database, name: str) -> Row:
    return create_key(database, ensure_tenant(database, _FIRST_TENANT), name)


_MAKERS: Mapping[str, Callable[[Database, str], Row]] = {
    "api_key": _make_tenants_key,
    "operator_key": create_operator_key,
}
