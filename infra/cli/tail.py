"""`leasehook tail`: attempts as they happen."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.options import OfEndpoint, Tenant

if TYPE_CHECKING:
    from shared.store.connection import Row

_POLL_SECONDS = 0.5


def tail(
    endpoint: OfEndpoint = None,
    tenant: Tenant = "default",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per attempt.")
    ] = False,
) -> None:
    """Follow a tenant's attempts as they happen, until Ctrl-C."""
    import time

    from infra.cli.attempt_feed import AttemptFeed
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, say
    from shared.errors import DatabaseUnavailable

    runtime = connect()
    feed = AttemptFeed(runtime.database, find_tenant(runtime, tenant), endpoint)
    trouble = ""
    try:
        say(f"Following the attempts of tenant '{tenant}' until Ctrl-C.", stderr=True)
        while True:
            try:
                rows = feed.news()
                trouble = ""
            except DatabaseUnavailable as error:
                rows = []
                if str(error) != trouble:
                    trouble = str(error)
                    say(f"leasehook: {trouble}; trying again", stderr=True)
            for row in rows:
                if as_json:
                    print_json(row)
                else:
                    say(_sentence(row))
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        return


def _sentence(row: "Row") -> str:
    result = row["status_code"] or row["error_kind"]
    late = ", too late to count" if row["late"] else ""
    return (
        f"{row['started_at'].astimezone():%H:%M:%S}  {result} in {row['duration_ms']} ms  {row['event_type']}  "
        f"delivery {row['delivery_id']}, attempt {row['attempt']}{late}: {row['delivery_status'].replace('_', ' ')}"
    )
