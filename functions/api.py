"""API: everything that a tenant or an operator manages."""

from fastapi import FastAPI

from shared.http import inbound, publishing
from shared.http.app import make_app
from shared.http.gateway import lambda_handler, observed
from shared.management import (
    api_keys,
    consumers,
    deliveries,
    endpoints,
    event_types,
    events,
    health,
    replays,
    sources,
    statistics,
    tenants,
)
from shared.runtime import Runtime, process_runtime

ROUTERS = (
    publishing.router,
    inbound.router,
    health.router,
    tenants.router,
    api_keys.router,
    consumers.router,
    endpoints.router,
    event_types.router,
    sources.router,
    replays.router,
    events.router,
    deliveries.router,
    statistics.router,
    statistics.metrics_router,
)


def create_app(runtime: Runtime) -> FastAPI:
    """The whole API. The gateway sends what publishes to the ingest function; here it completes the OpenAPI document."""
    return make_app(runtime, ROUTERS)


handler = observed("api", lambda_handler(lambda: create_app(process_runtime())))
