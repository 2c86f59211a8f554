"""`leasehook replays` and `recover`: many deliveries asked for again, as a job."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from infra.cli.options import (
    AsJson,
    CreatedAfter,
    CreatedBefore,
    Id,
    Limit,
    OfConsumer,
    OfEndpoint,
    OfErrorKind,
    OfType,
    Since,
    Tenant,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.replay import ReplayFilter
    from shared.store.connection import Database, Row

_OTHERS_STEP_SECONDS = 0.1
"""How long to wait when someone else is taking a step of the same job."""

app = typer.Typer(no_args_is_help=True, help="Bulk replays: many deliveries asked for again.")

Wait = Annotated[
    bool, typer.Option("--wait", help="Take all its steps here and now, and show how far it is.")
]


class Replayable(StrEnum):
    """What a bulk replay may ask for again."""

    DEAD = "dead"
    CANCELLED = "cancelled"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@app.command()
def start(
    *,
    status: Annotated[
        list[Replayable] | None,
        typer.Option(help="Repeat it; failed ones wait for a retry. Default: dead."),
    ] = None,
    endpoint: OfEndpoint = None,
    consumer: OfConsumer = None,
    event_type: OfType = None,
    error_kind: OfErrorKind = None,
    created_after: CreatedAfter = None,
    created_before: CreatedBefore = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what it would replay.")
    ] = False,
    wait: Wait = False,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Replay all deliveries that match, each once at most; `maintain` goes on with what is not done at once."""
    from shared.replay import ReplayFilter

    wanted = ReplayFilter(
        statuses=[each.value for each in status or [Replayable.DEAD]],
        endpoint_id=endpoint,
        consumer=consumer,
        event_type=event_type,
        created_after=created_after,
        created_before=created_before,
        error_kind=None if error_kind is None else error_kind.value,
    )
    if dry_run:
        _estimate(wanted, tenant, as_json)
    else:
        _start(wanted, tenant, wait=wait, as_json=as_json)


def recover(
    endpoint_id: Id,
    *,
    since: Since,
    wait: Wait = False,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Replay an endpoint's dead deliveries that were made since an outage began."""
    from shared.replay import ReplayFilter

    wanted = ReplayFilter(endpoint_id=endpoint_id, created_after=since)
    _start(wanted, tenant, wait=wait, as_json=as_json)


@app.command("list")
def list_(limit: Limit = 20, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """List bulk replays, the newest first."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import age, print_json, print_table, say
    from shared.replay import list_jobs

    runtime = connect()
    rows = list_jobs(runtime.database, find_tenant(runtime, tenant), None, limit)
    if as_json:
        print_json({"replays": rows})
    elif rows:
        print_table(
            ["Replay", "State", "Replayed", "Age"],
            [[row["id"], row["state"], _done_words(row), age(row["created_at"])] for row in rows],
            folded=["Replayed"],
        )
    else:
        say("There are none: `leasehook replays start` makes one.")


@app.command()
def show(replay_id: Id, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Show a bulk replay and how far it is."""
    from shared.replay import get

    _act(get, replay_id, tenant, as_json)


@app.command()
def pause(replay_id: Id, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Replay nothing more until it is resumed."""
    from shared.replay import pause

    _act(pause, replay_id, tenant, as_json)


@app.command()
def resume(replay_id: Id, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Let a paused replay go on."""
    from shared.replay import resume

    _act(resume, replay_id, tenant, as_json)


@app.command()
def cancel(replay_id: Id, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """End a replay; what it has replayed stays replayed."""
    from shared.replay import cancel

    _act(cancel, replay_id, tenant, as_json)


def _act(
    act: "Callable[[Database, UUID, UUID], Row]", replay_id: UUID, tenant: str, as_json: bool
) -> None:
    from infra.cli.connection import connect, find_tenant

    runtime = connect()
    _print(act(runtime.database, find_tenant(runtime, tenant), replay_id), as_json)


def _estimate(wanted: "ReplayFilter", tenant: str, as_json: bool) -> None:
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, say
    from shared.replay import estimate

    runtime = connect()
    found = estimate(runtime.database, find_tenant(runtime, tenant), wanted)
    if as_json:
        print_json(found)
        return
    least = "" if found.matched_exactly else "at least "
    say(f"It would replay {least}{found.matched_count} deliveries. Nothing was replayed.")


def _start(wanted: "ReplayFilter", tenant: str, *, wait: bool, as_json: bool) -> None:
    from infra.cli.connection import connect, find_tenant
    from shared import replay

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    run = _run_to_the_end if wait else replay.start
    _print(run(runtime.database, tenant_id, wanted), as_json)


def _run_to_the_end(database: "Database", tenant_id: UUID, wanted: "ReplayFilter") -> "Row":
    """Make a job and take its steps, side by side with whoever else takes some, until it is over or paused."""
    import sys
    import time

    from infra.cli.output import console, say
    from infra.cli.progress import counted_progress
    from shared import replay

    job = replay.create(database, tenant_id, wanted)
    total = job["matched_count"] if job["matched_exactly"] else None
    try:
        with counted_progress(console(stderr=True), "Replaying", total) as show_done:
            while job["state"] == "running":
                if replay.step(database, job["id"]) is None:
                    time.sleep(_OTHERS_STEP_SECONDS)
                job = replay.get(database, tenant_id, job["id"])
                show_done(job["replayed_count"])
    except KeyboardInterrupt:
        say(
            f"leasehook: no longer waiting; `leasehook maintain` goes on with the replay, and "
            f"`leasehook replays cancel {job['id']}` ends it",
            stderr=True,
        )
        sys.exit(1)
    return job


def _print(row: "Row", as_json: bool) -> None:
    from infra.cli.output import instant_text, print_fields, print_json

    if as_json:
        print_json(row)
        return
    print_fields(
        [
            ("replay", row["id"]),
            ("state", row["state"]),
            ("replayed", _done_words(row)),
            ("statuses", ", ".join(row["statuses"])),
            ("endpoint", row["endpoint_id"]),
            ("consumer", row["consumer"]),
            ("type", row["event_type"]),
            ("error", row["error_kind"]),
            ("made since", instant_text(row["created_after"])),
            ("made before", instant_text(row["created_before"])),
            ("started", instant_text(row["created_at"])),
            ("finished", instant_text(row["finished_at"])),
        ]
    )


def _done_words(row: "Row") -> str:
    least = "" if row["matched_exactly"] else "at least "
    return f"{row['replayed_count']} of {least}{row['matched_count']}"
