"""What is done with an endpoint, and how it does."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

from typing import Annotated

import typer

from infra.cli.endpoint_fields import Secret, Signing, print_endpoint
from infra.cli.options import AsJson, Id, Tenant


def enable(endpoint_id: Id, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Send to an endpoint again; what was parked goes out, gently at first."""
    from infra.cli.connection import connect, find_tenant
    from shared.endpoints import enable_endpoint

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    print_endpoint(
        enable_endpoint(runtime.database, runtime.sealer, tenant_id, endpoint_id), as_json
    )


def disable(endpoint_id: Id, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Send nothing to an endpoint until it is enabled; its deliveries are parked."""
    from infra.cli.connection import connect, find_tenant
    from shared.endpoints import disable_endpoint

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    print_endpoint(
        disable_endpoint(runtime.database, runtime.sealer, tenant_id, endpoint_id), as_json
    )


def rotate(
    endpoint_id: Id,
    *,
    overlap_seconds: Annotated[
        int, typer.Option(help="How long the old secret signs beside the new one.")
    ] = 86400,
    secret: Secret = None,
    signing: Signing = None,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Sign with a new secret, which is shown this once; the old one signs too for a while."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_fields, print_json, say
    from shared.endpoints import rotate_secret

    runtime = connect()
    row = rotate_secret(
        runtime.database,
        runtime.sealer,
        find_tenant(runtime, tenant),
        endpoint_id,
        secret=secret,
        signing=None if signing is None else signing.value,
        overlap_seconds=overlap_seconds,
    )
    if as_json:
        print_json(row)
        return
    old = f"with the old one too for {overlap_seconds} s" if overlap_seconds else "no other"
    say(f"Requests are signed with this secret from now on, and {old}. It is not shown again.")
    print_fields([("secret", row["secret"]), ("public key", row["public_key"])])


def send_test(endpoint_id: Id, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Send an endpoint, and it alone, a test event."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, say
    from shared.endpoints import send_test_event

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    row = send_test_event(runtime.database, runtime.sealer, tenant_id, endpoint_id)
    if as_json:
        print_json(row)
        return
    delivery_id = row["delivery_id"]
    say(f"A test event is on its way: `leasehook deliveries show {delivery_id}` tells how it went.")


def stats(
    endpoint_id: Id,
    window_seconds: Annotated[
        int, typer.Option(min=60, max=7 * 86400, help="How far back to look.")
    ] = 3600,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Show how an endpoint's attempts went lately."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import age, print_fields, print_json, say
    from shared.statistics import endpoint_statistics

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    row = endpoint_statistics(runtime.database, tenant_id, endpoint_id, window_seconds)
    if as_json:
        print_json(row)
        return
    if not row["attempts"]:
        say(f"There were no attempts in the last {window_seconds} s.")
        return
    latency, error = row["latency_ms"], row["last_error"]
    print_fields(
        [
            ("attempts", f"{row['attempts']}{' (the newest of more)' if row['sampled'] else ''}"),
            ("succeeded", f"{row['successes']} ({row['success_rate']:.1%})"),
            ("latency", latency and _percentiles(latency)),
            (
                "last error",
                error and f"{error['status_code'] or error['kind']}, {age(error['at'])} ago",
            ),
            ("detail", error and error["detail"]),
        ]
    )


def _percentiles(latency: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.0f} ms" for name, value in latency.items())
