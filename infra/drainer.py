"""Drains on and on, as the schedule does on Lambda, in one process and until told to stop.

One drain claims for a short while and then waits for what it has sent; the next one starts beside it meanwhile, so
that a receiver that hangs keeps nobody else waiting, and stopping never takes longer than claiming.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime

from shared.config import CLAIM_SECONDS
from shared.dispatch import AttemptLog, Summary, drain, make_tools
from shared.runtime import Runtime
from shared.sender.transport import Transport

_CLAIMING_SECONDS = 1.0
"""How long one drain claims before the next one takes over."""
_PATIENCE_SECONDS = 1.5
"""How long stopping waits for requests in flight; those of slower receivers come back when their lease lapses."""
_TROUBLE_PAUSE_SECONDS = 1.0


async def drain_until(
    stop: asyncio.Event, runtime: Runtime, log: AttemptLog, report_trouble: Callable[[str], None]
) -> Summary:
    """Drain until `stop` is set, and answer what all the drains did together.

    Trouble with the database ends a drain, not this: it is reported once, and the next drain tries again.

    Raises:
        ConfigurationError: there is no database URL or no sealing key.
    """
    settings = replace(runtime.settings, drain_linger_seconds=0.0)
    transport = Transport(settings.targets, body_cap_bytes=settings.response_bytes)
    tools = make_tools(runtime, transport, log, lambda: datetime.now(UTC))
    tools = replace(tools, settings=settings)
    budget_seconds = (
        _CLAIMING_SECONDS
        + settings.timeout_seconds
        + settings.settle_margin_seconds
        + CLAIM_SECONDS
    )
    total = Summary()
    trouble = ""
    drains: set[asyncio.Task[Summary]] = set()
    try:
        while not stop.is_set():
            latest = asyncio.create_task(drain(tools, budget_seconds))
            drains.add(latest)
            await asyncio.wait({latest}, timeout=_CLAIMING_SECONDS)
            done = {task for task in drains if task.done()}
            drains -= done
            for task in done:
                _add(total, task.result())
            match latest.result().stopped if latest in done else "claiming":
                case "idle":
                    trouble = ""
                    await _pause(stop, settings.drain_poll_seconds)
                case "claiming" | "time" | "bound":
                    pass
                case failure:
                    if failure != trouble:
                        report_trouble(failure)
                    trouble = failure
                    await _pause(stop, _TROUBLE_PAUSE_SECONDS)
        if drains:
            done, drains = await asyncio.wait(drains, timeout=_PATIENCE_SECONDS)
            for task in done:
                _add(total, task.result())
    finally:
        for task in drains:
            task.cancel()
        await asyncio.gather(*drains, return_exceptions=True)
        await transport.aclose()
    total.stopped = "interrupted"
    return total


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


def _add(total: Summary, summary: Summary) -> None:
    for name, value in asdict(summary).items():
        if name == "stopped":
            continue
        before = getattr(total, name)
        setattr(total, name, max(before, value) if name.endswith("_max") else before + value)
