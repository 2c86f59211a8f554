"""The program: its commands, and how failures end it (0 done, 1 failed, 2 used wrongly)."""

import sys
from typing import NoReturn

import typer

from infra.cli import (
    consumers,
    deliveries,
    doctor,
    endpoints,
    event_types,
    events,
    keys,
    operating,
    replays,
    sources,
    stats,
    tail,
    tenants,
)
from shared.errors import DatabaseUnavailable, LeasehookError, SchemaOutdated

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Webhooks that never drop, on AWS Lambda and Postgres. Commands work on DATABASE_URL or, without it, "
    "on the running `leasehook dev`.",
)
app.command()(operating.dev)
app.command()(operating.migrate)
app.command()(doctor.doctor)
app.add_typer(tenants.app, name="tenants")
app.add_typer(keys.app, name="keys")
app.add_typer(consumers.app, name="consumers")
app.add_typer(endpoints.app, name="endpoints")
app.add_typer(event_types.app, name="event-types")
app.add_typer(sources.app, name="sources")
app.command()(events.publish)
app.add_typer(events.app, name="events")
app.add_typer(deliveries.app, name="deliveries")
app.command()(deliveries.replay)
app.add_typer(replays.app, name="replays")
app.command()(replays.recover)
app.command()(tail.tail)
app.command()(stats.stats)
app.command()(operating.drain)
app.command()(operating.maintain)


def main() -> None:
    """Run the command that the process's arguments name."""
    try:
        app(prog_name="leasehook")
    except SchemaOutdated as error:
        _fail(str(error))
    except DatabaseUnavailable as error:
        _fail(f"{error}: check DATABASE_URL, and that its server runs and lets you in")
    except LeasehookError as error:
        _fail(str(error))
    except UnicodeEncodeError:
        _fail("an argument is not UTF-8: give text, or the payload with --file")


def _fail(message: str) -> NoReturn:
    print(f"leasehook: {message}", file=sys.stderr)  # noqa: T201 - this is the program's voice
    sys.exit(1)
