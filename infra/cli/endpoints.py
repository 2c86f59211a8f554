"""`leasehook endpoints`: who receives what."""

# ruff: noqa: PLC0415 - a command imports what it needs, so that the others start quickly

from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli import endpoint_actions
from infra.cli.endpoint_fields import (
    Channels,
    Description,
    Headers,
    MaxInFlight,
    RatePerSecond,
    RetryDelaysSeconds,
    Secret,
    Signing,
    TimeoutSeconds,
    Unsettable,
    default_of,
    print_endpoint,
    read_delays,
    read_headers,
    state_words,
)
from infra.cli.options import AsJson, Id, Limit, OfConsumer, Tenant, items

if TYPE_CHECKING:
    from shared.endpoints import EndpointChanges

app = typer.Typer(no_args_is_help=True, help="Endpoints: URLs that receive webhooks.")


@app.command()
def create(
    *,
    url: Annotated[str, typer.Option(help="Where to POST, http or https.")],
    event_types: Annotated[
        str, typer.Option(help="What it takes, such as 'order.*,user.created'.")
    ] = "*",
    channels: Channels = None,
    consumer: Annotated[
        str | None, typer.Option(help="One of the tenant's customers; gets that one's events only.")
    ] = None,
    description: Description = None,
    secret: Secret = None,
    signing: Signing = None,
    header: Headers = None,
    timeout_seconds: TimeoutSeconds = None,
    max_in_flight: MaxInFlight = None,
    rate_per_second: RatePerSecond = None,
    retry_delays_seconds: RetryDelaysSeconds = None,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="One at a time, in the order of publishing.")
    ] = False,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Make an endpoint; its signing secret is shown this once. The tenant is made if there is none of that name."""
    from infra.cli.connection import connect
    from infra.cli.output import say
    from shared.endpoints import NewEndpoint, create_endpoint
    from shared.store.tenancy import ensure_tenant

    new = NewEndpoint(
        url=url,
        event_types=items(event_types),
        channels=None if channels is None else items(channels),
        consumer=consumer,
        description=description,
        secret=secret,
        signing=None if signing is None else signing.value,
        headers=read_headers(header or []),
        timeout_seconds=timeout_seconds,
        retry_delays_seconds=None
        if retry_delays_seconds is None
        else read_delays(retry_delays_seconds),
        max_in_flight=max_in_flight,
        rate_per_second=rate_per_second,
        ordered=ordered,
    )
    runtime = connect()
    sealer = runtime.sealer
    tenant_id = ensure_tenant(runtime.database, tenant)
    row = create_endpoint(runtime.database, sealer, runtime.settings.targets, tenant_id, new)
    if not as_json:
        say("The endpoint is ready. Keep its secret: it is not shown again.")
    print_endpoint(row, as_json)


@app.command("list")
def list_(
    consumer: OfConsumer = None,
    disabled: Annotated[
        bool | None, typer.Option("--disabled/--enabled", help="Only these. Default: both.")
    ] = None,
    limit: Limit = 1000,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """List a tenant's endpoints, the newest first."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, print_table, say
    from infra.cli.paging import first_rows
    from shared.endpoints import list_endpoints

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    rows = first_rows(
        limit,
        lambda before, most: list_endpoints(
            runtime.database,
            runtime.sealer,
            tenant_id,
            consumer=consumer,
            disabled=disabled,
            before=before,
            limit=most,
        ),
    )
    if as_json:
        print_json({"endpoints": rows})
    elif rows:
        print_table(
            ["Endpoint", "URL", "Takes", "State"],
            [
                [row["id"], row["url"], ", ".join(row["event_types"]), state_words(row)]
                for row in rows
            ],
            folded=("URL", "Takes", "State"),
        )
    else:
        say("There are none: `leasehook endpoints create --url URL` makes one.")


@app.command()
def show(endpoint_id: Id, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Show an endpoint, without its secret and its headers' values."""
    from infra.cli.connection import connect, find_tenant
    from shared.endpoints import get_endpoint

    runtime = connect()
    tenant_id = find_tenant(runtime, tenant)
    print_endpoint(get_endpoint(runtime.database, runtime.sealer, tenant_id, endpoint_id), as_json)


@app.command()
def update(
    endpoint_id: Id,
    *,
    url: Annotated[str | None, typer.Option(help="Begins with a closed circuit.")] = None,
    event_types: Annotated[str | None, typer.Option(help="Such as 'order.*'.")] = None,
    channels: Channels = None,
    description: Description = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="'NAME: VALUE'", help="Repeat it; these replace all there were."),
    ] = None,
    timeout_seconds: TimeoutSeconds = None,
    max_in_flight: MaxInFlight = None,
    rate_per_second: RatePerSecond = None,
    retry_delays_seconds: RetryDelaysSeconds = None,
    ordered: Annotated[bool | None, typer.Option("--ordered/--unordered")] = None,
    unset: Annotated[
        list[Unsettable] | None, typer.Option(help="Back to the default; repeat it.")
    ] = None,
    tenant: Tenant = "default",
    as_json: AsJson = False,
) -> None:
    """Change an endpoint; what is not given stays as it is."""
    from infra.cli.connection import connect, find_tenant
    from shared.endpoints import change_endpoint

    given = {
        "url": url,
        "event_types": None if event_types is None else items(event_types),
        "channels": None if channels is None else items(channels),
        "description": description,
        "headers": None if header is None else read_headers(header),
        "timeout_seconds": timeout_seconds,
        "max_in_flight": max_in_flight,
        "rate_per_second": rate_per_second,
        "retry_delays_seconds": None
        if retry_delays_seconds is None
        else read_delays(retry_delays_seconds),
        "ordered": ordered,
    }
    changes = _changes({name: value for name, value in given.items() if value is not None}, unset)
    runtime = connect()
    row = change_endpoint(
        runtime.database,
        runtime.sealer,
        runtime.settings.targets,
        find_tenant(runtime, tenant),
        endpoint_id,
        changes=changes,
    )
    print_endpoint(row, as_json)


@app.command()
def delete(endpoint_id: Id, tenant: Tenant = "default", as_json: AsJson = False) -> None:
    """Delete an endpoint: what waits for it is cancelled, its secrets are erased."""
    from infra.cli.connection import connect, find_tenant
    from infra.cli.output import print_json, say
    from shared.endpoints import delete_endpoint

    runtime = connect()
    delete_endpoint(runtime.database, find_tenant(runtime, tenant), endpoint_id)
    if as_json:
        print_json({"id": endpoint_id, "deleted": True})
        return
    say(f"Endpoint {endpoint_id} is deleted.")


app.command()(endpoint_actions.enable)
app.command()(endpoint_actions.disable)
app.command()(endpoint_actions.rotate)
app.command("test")(endpoint_actions.send_test)
app.command()(endpoint_actions.stats)


def _changes(given: dict[str, object], unset: list[Unsettable] | None) -> "EndpointChanges":
    changes = dict(given)
    for field in unset or []:
        name = field.value.replace("-", "_")
        if name in changes:
            raise typer.BadParameter(f"{field.value} is given and unset")
        changes[name] = default_of(field)
    if not changes:
        raise typer.BadParameter("say what to change: --help lists the options")
    return changes  # type: ignore[return-value]  # the keys are those of the type
