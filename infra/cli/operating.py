"""`leasehook dev`, `migrate`, `drain` and `maintain`: what runs the system."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.dispatch import Summary

_ORDERLY_ENDS = frozenset({"idle", "time", "bound", "interrupted"})


def dev(
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of the HTTP API; 0 takes a free one.")
    ] = 8080,
    data_dir: Annotated[
        Path, typer.Option(file_okay=False, help="Keeps the database and the keys.")
    ] = Path(".leasehook"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON when all is ready, and no more.")
    ] = False,
    no_drain: Annotated[
        bool, typer.Option("--no-drain", help="Deliver nothing; `leasehook drain` does.")
    ] = False,
    no_demo: Annotated[bool, typer.Option("--no-demo", help="Without the demo receiver.")] = False,
    allow_target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CIDR", help="A network to deliver to though it is not public; repeat it."
        ),
    ] = None,
) -> None:
    """Run everything on this machine until Ctrl-C: Postgres, the API, the drain, and a receiver to try it on."""
    import os

    from infra.cli.narrators import JsonNarrator, TerminalNarrator
    from infra.local import Options, run_dev
    from shared.domain.targets import parse_networks

    try:
        for network in allow_target or []:
            parse_networks(network)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--allow-target") from None
    options = Options(
        port=port,
        data_dir=data_dir,
        allow_targets=tuple(allow_target or ()),
        drain=not no_drain,
        demo=not no_demo,
        first_event=not as_json,
    )
    run_dev(options, os.environ, JsonNarrator() if as_json else TerminalNarrator())


def migrate(as_json: AsJson = False) -> None:
    """Bring the database's schema up to date. Harmless at any time."""
    from functions.migrate import handler
    from infra.cli.connection import connect
    from infra.cli.output import print_json, say

    connect()
    answer = handler({}, None)
    if as_json:
        print_json(answer)
        return
    for name in answer["applied"]:
        say(f"Applied {name}")
    say("The schema is up to date.")


def drain(
    once: Annotated[
        bool, typer.Option("--once", help="Only what is due now, instead of until interrupted.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Deliver what is due. One line per attempt goes to stderr."""
    from infra.cli.output import print_json, say

    summary = _drain_once() if once else _drain_on()
    if as_json:
        print_json(summary)
    else:
        say(_sentence(summary))
    if summary["stopped"] not in _ORDERLY_ENDS:
        say(f"leasehook: the drain ended early: {summary['stopped']}", stderr=True)
        sys.exit(1)


def maintain(as_json: AsJson = False) -> None:
    """Measure the queue, take bulk replays further, prune what is past its retention, disable what has failed for days."""
    from functions.maintain import handler
    from infra.cli.connection import connect
    from infra.cli.output import console, print_fields, print_json, say

    connect()
    with console(stderr=True).status("Maintaining"):
        answer = handler({}, None)
    if as_json:
        print_json(answer)
        return
    for title, part in (("Queue", "health"), ("Bulk replays", "replays"), ("Upkeep", "upkeep")):
        say(title)
        print_fields([(_words(name), value) for name, value in answer[part].items()])


def _drain_once() -> "Mapping[str, object]":
    from functions.drain import handler
    from infra.cli.connection import connect

    connect(LEASEHOOK_DRAIN_LINGER_SECONDS="0")
    return handler({}, None)


def _drain_on() -> "Mapping[str, object]":
    import asyncio
    import signal
    from dataclasses import asdict

    from infra.cli.connection import connect
    from infra.cli.output import say
    from infra.drainer import drain_until
    from shared.telemetry import attempt_log

    runtime = connect()

    async def run() -> "Summary":
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        return await drain_until(
            stop, runtime, attempt_log(sys.stderr), lambda trouble: say(trouble, stderr=True)
        )

    say("Draining until Ctrl-C.", stderr=True)
    return asdict(asyncio.run(run()))


def _sentence(summary: "Mapping[str, object]") -> str:
    parts = [
        f"{summary[name]} {word}"
        for name, word in (
            ("succeeded", "delivered"),
            ("retried", "to be retried"),
            ("dead", "dead"),
            ("released", "given back"),
            ("late", "too late to count"),
            ("unsettled", "not written down"),
        )
        if summary[name] or name == "succeeded"
    ]
    return f"Claimed {summary['claimed']}: {', '.join(parts)}."


def _words(name: str) -> str:
    return name.replace("_", " ")
