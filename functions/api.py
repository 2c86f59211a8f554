"""API: everything that a tenant or an operator manages."""

from fastapi import FastAPI

from shared.http import problems
from shared.http.gateway import lambda_handler
from shared.management import health
from shared.runtime import Runtime, process_runtime

ROUTERS = (health.router,)


def create_app(runtime: Runtime) -> FastAPI:
    """The management application."""
    app = FastAPI(
        title="Leasehook",
        version="1",
        description="Webhooks that never drop, on AWS Lambda and Postgres.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.runtime = runtime
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    return app


handler = lambda_handler(lambda: create_app(process_runtime()))
