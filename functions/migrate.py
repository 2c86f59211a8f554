"""Migrate: invoked after a deploy, it brings the schema up to date."""

from typing import Any

from shared.runtime import process_runtime
from shared.store.migrations import migrate


def handler(event: Any, context: Any) -> dict[str, Any]:  # noqa: ANN401, ARG001  # whatever Lambda is invoked with
    """Apply the migrations that are missing and answer their names. Harmless at any time, any number at once."""
    return {"applied": migrate(process_runtime().database)}
