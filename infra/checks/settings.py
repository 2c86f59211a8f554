"""Whether each function gets the settings that it reads, and times that fit into each other."""

from collections.abc import Iterator

from infra.checks.schedules import period_seconds, schedules_of
from infra.stack import Stack
from shared.config import CLAIM_SECONDS, Settings, describe
from shared.errors import ConfigurationError
from shared.function_log import RELEASE_VARIABLE
from shared.store.connector import CONNECT_SECONDS
from shared.store.deadline import CANCEL_SECONDS

API_TIMEOUT_SECONDS = 30
"""An HTTP API gives up on a function after this; it cannot be raised."""

SEALING = ("functions.ingest.handler", "functions.api.handler", "functions.drain.handler")
"""The handlers that seal signing secrets or open them."""

LOG_VARIABLES = {"POWERTOOLS_LOG_LEVEL", RELEASE_VARIABLE}
"""What the log reads itself, beside our settings."""


def unknown_variables(stack: Stack) -> Iterator[str]:
    """Environment variables that nothing reads."""
    known = {key for key, _, _ in describe()} | LOG_VARIABLES
    for logical_id, _ in stack.functions():
        for key in sorted(stack.environment(logical_id).keys() - known):
            yield f"{logical_id}: {key} is not a setting of shared/config.py"


def wrong_settings(stack: Stack) -> Iterator[str]:
    """Values that the function would refuse at its first invocation, or that it needs and does not get."""
    for logical_id, properties in stack.functions():
        environment = stack.environment(logical_id)
        try:
            settings = Settings.read(environment)
            settings.require_database_url()
            if properties["Handler"] in SEALING:
                settings.require_secret_keys()
        except ConfigurationError as error:
            yield f"{logical_id}: {error}"
        if properties["Handler"] not in SEALING and "LEASEHOOK_SECRET_KEY" in environment:
            yield f"{logical_id}: holds LEASEHOOK_SECRET_KEY, which it does not need"


def wrong_times(stack: Stack) -> Iterator[str]:
    """Time limits that do not fit into each other."""
    for logical_id, properties in stack.functions():
        settings = _settings(stack, logical_id)
        if settings is None:
            continue
        timeout_seconds = properties["Timeout"]
        match properties["Handler"]:
            case "functions.drain.handler":
                yield from _wrong_drain_times(stack, logical_id, timeout_seconds, settings)
            case "functions.maintain.handler":
                if settings.maintain_budget_seconds >= timeout_seconds:
                    yield f"{logical_id}: LEASEHOOK_MAINTAIN_BUDGET_SECONDS must be below its Timeout"
            case "functions.ingest.handler" | "functions.api.handler":
                if timeout_seconds >= API_TIMEOUT_SECONDS:
                    yield f"{logical_id}: Timeout must be below the API's {API_TIMEOUT_SECONDS} seconds"
                longest_seconds = (
                    CONNECT_SECONDS + settings.statement_timeout_seconds + CANCEL_SECONDS
                )
                if timeout_seconds <= longest_seconds:
                    yield (
                        f"{logical_id}: Timeout must be above the {longest_seconds:g} seconds after which it can "
                        "answer that the database does not"
                    )
            case _:
                pass


def _wrong_drain_times(
    stack: Stack, logical_id: str, timeout_seconds: int, settings: Settings
) -> Iterator[str]:
    if settings.drain_budget_seconds >= timeout_seconds:
        yield f"{logical_id}: LEASEHOOK_DRAIN_BUDGET_SECONDS must be below its Timeout"
    attempt_seconds = settings.timeout_seconds + settings.settle_margin_seconds + CLAIM_SECONDS
    polling_seconds = min(
        settings.drain_budget_seconds - attempt_seconds, settings.drain_linger_seconds
    )
    schedules = list(schedules_of(stack, logical_id))
    if not schedules:
        yield f"{logical_id}: no schedule starts it"
    for schedule_id, schedule in schedules:
        every_seconds = period_seconds(schedule["ScheduleExpression"])
        if polling_seconds <= every_seconds:
            yield (
                f"{logical_id}: polls for {polling_seconds:g} seconds, {schedule_id} starts the next one after "
                f"{every_seconds}: nothing looks at the queue in between"
            )
    reserved = stack.resources[logical_id].properties.get("ReservedConcurrentExecutions")
    if reserved is not None and int(reserved) < 2 * len(schedules):
        yield (
            f"{logical_id}: {len(schedules)} start each minute and overlap with the next ones, so its reserved "
            f"concurrency must be {2 * len(schedules)} or more, not {reserved}"
        )


def _settings(stack: Stack, logical_id: str) -> Settings | None:
    """None if they are wrong, which is another check's finding."""
    try:
        return Settings.read(stack.environment(logical_id))
    except ConfigurationError:
        return None
