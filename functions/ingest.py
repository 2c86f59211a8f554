"""Ingest: events in over HTTP, answered after their commit."""

from fastapi import FastAPI

from shared.http import inbound, publishing
from shared.http.app import make_app
from shared.http.gateway import lambda_handler, observed
from shared.management import health
from shared.runtime import Runtime, process_runtime

ROUTERS = (publishing.router, inbound.router, health.router)


def create_app(runtime: Runtime) -> FastAPI:
    """The ingest application."""
    return make_app(runtime, ROUTERS)


handler = observed("ingest", lambda_handler(lambda: create_app(process_runtime())))
