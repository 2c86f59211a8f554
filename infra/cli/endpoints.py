"""`leasehook endpoints`: who receives what."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.options import AsJson, Tenant

if TYPE_CHECKING:
    from shared.store.connection import Row

_PAGE = 200

app = typer.Typer(no_args_is_help=True, help="Endpoints: URLs that receive webhooks.")


@app.command()
def create(
    *,
    url: Annotated[str, typer.Option(help="Where to POST, http or https.")],
    event_types: Annotated[
        str, typer.Option(help="What it takes, such as 'order.*,user.created'.")
    ] = "*",
    consumer: Annotated[
        str | None, typer.Option(help="One of the tenant's customers; gets that one's events only.")
    ] = None,
    description: Annotated[str | None, typer.Option()] = None,
    secret: Annotated[
        str | None, typer.Option(help="Signs requests: whsec_… or whsk_…. Default: a new one.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="'NAME: VALUE'", help="Sent along; repeat it.")
    ] = None,
    timeout_seconds: Annotated[
        int | None, typer.Option(help="For a whole attempt, 1 to 30.")
    ] = None,
    max_in_flight: Annotated[int | None, typer.Option(help="Requests at the same time.")] = None,
    rate_per_second: Annotated[int | None, typer.Option(help="Requests per second.")] = None,
    retry_delays_seconds: Annotated[
        str | None, typer.Option(metavar="10,60,…", help="Before each retry; '' for no retries.")
    ] = None,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Make an endpoint; its signing secret is shown this once. The tenant is made if there is none of that name."""
    from infra.cli.connection import connect
    from infra.cli.output import print_fields, print_json, say
    from shared.endpoints import NewEndpoint, create_endpoint
    from shared.store.tenancy import ensure_tenant

    new = NewEndpoint(
        url=url,
        event_types=_items(event_types),
        consumer=consumer,
        description=description,
        secret=secret,
        headers=_headers(header or []),
        timeout_seconds=timeout_seconds,
        retry_delays_seconds=None
        if retry_delays_seconds is None
        else _delays(retry_delays_seconds),
        max_in_flight=max_in_flight,
        rate_per_second=rate_per_second,
    )
    runtime = connect()
    sealer = runtime.sealer
    tenant_id = ensure_tenant(runtime.database, tenant)
    row = create_endpoint(runtime.database, sealer, runtime.settings.targets, tenant_id, new)
    if as_json:
        print_json(row)
        return
    say("The endpoint is ready. Keep its secret: it is not shown again.")
    print_fields(
        [
            ("id", row["id"]),
            ("url", row["url"]),
            ("takes", ", ".join(row["event_types"])),
            ("consumer", row["consumer"]),
            ("secret", row["secret"]),
        ]
    )


@app.command("list")
def list_(tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """List a tenant's endpoints, the newest first."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, print_table, say
    from shared.endpoints import list_endpoints

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    rows, before = [], None
    while True:
        listed = list_endpoints(
            runtime.database, runtime.sealer, tenant_id, before=before, limit=_PAGE
        )
        rows += listed.rows
        before = listed.next_key
        if before is None:
            break
    if as_json:
        print_json({"endpoints": rows})
    elif rows:
        print_table(
            ["Endpoint", "URL", "Takes", "State"],
            [[row["id"], row["url"], ", ".join(row["event_types"]), _state(row)] for row in rows],
            folded=("URL", "Takes", "State"),
        )
    else:
        say("There are none: `leasehook endpoints create --url URL` makes one.")


def _state(row: "Row") -> str:
    if row["disabled_at"] is not None:
        return f"disabled: {row['disabled_reason']}"
    state: str = row["circuit"]["state"]
    return "ok" if state == "closed" else f"circuit {state.replace('_', ' ')}"


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text.strip() else []


def _headers(lines: Sequence[str]) -> dict[str, str]:
    """The values often are credentials, so no message repeats them."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise typer.BadParameter("write a header as 'Name: value'")
        if name.strip() in headers:
            raise typer.BadParameter(f"the header {name.strip()} is given twice")
        headers[name.strip()] = value.strip()
    return headers


def _delays(text: str) -> list[int]:
    items = _items(text)
    if not all(item.isascii() and item.isdigit() and len(item) <= len("86400") for item in items):
        raise typer.BadParameter(
            "write the delays as whole seconds from 1 to 86400, separated by commas"
        )
    return [int(item) for item in items]
