"""Migrate: invoked after a deploy, it brings the schema up to date."""

import logging
from typing import Any

from shared.function_log import FunctionLog
from shared.runtime import process_runtime
from shared.store.migrations import migrate

_log = logging.getLogger(__name__)
_function_log = FunctionLog("migrate")


def handler(event: Any, context: Any) -> dict[str, Any]:  # noqa: ANN401, ARG001  # whatever Lambda is invoked with
    """Apply the migrations that are missing and answer their names. Harmless at any time, any number at once."""
    with _function_log.invocation(context):
        applied = migrate(process_runtime().database)
        _log.info("migrated", extra={"applied": applied})
        return {"applied": applied}
