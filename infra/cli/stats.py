"""`leasehook stats`: how a tenant's queue is doing."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

from datetime import UTC, datetime

from infra.cli.options import AsJson, Tenant

_SHOWN_MINUTES = 10


def stats(tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Show a tenant's queue now, and what became of the last hour's deliveries."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_fields, print_json, print_table, say
    from shared.statistics import tenant_statistics

    runtime = connect()
    row = tenant_statistics(runtime.database, find_tenant(runtime, tenant), datetime.now(UTC))
    if as_json:
        print_json(row)
        return
    queue, minutes = row["queue"], row["throughput"]["minutes"]
    age_seconds = queue["oldest_due_age_seconds"]
    print_fields(
        [
            ("due", queue["due"]),
            ("oldest due", None if age_seconds is None else f"for {age_seconds:.1f} s"),
            ("waiting", queue["waiting"]),
            ("in progress", queue["in_progress"]),
            ("parked", queue["parked"]),
            ("dead", queue["dead"]),
            ("note", "there are more than were counted" if queue["capped"] else None),
        ]
    )
    if minutes:
        say(f"\nThe last minutes with deliveries, {_SHOWN_MINUTES} at the most:")
        print_table(
            ["Minute (UTC)", "Made", "Succeeded", "Dead"],
            [
                [
                    f"{each['minute_at'].astimezone(UTC):%H:%M}",
                    each["made"],
                    each["succeeded"],
                    each["dead"],
                ]
                for each in minutes[-_SHOWN_MINUTES:]
            ],
            folded=(),
        )
