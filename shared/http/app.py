"""An application over a runtime: its routers, with our problem documents and limits."""

import time
from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from shared.enforcement import KnownSchemas
from shared.http import document, limits, problems
from shared.inbound import RefusalCounts
from shared.runtime import Runtime


def make_app(runtime: Runtime, routers: Sequence[APIRouter]) -> FastAPI:
    """An application that serves `routers`; they find the runtime in its state."""
    app = FastAPI(
        title="Leasehook",
        version="1",
        description="Webhooks that never drop, on AWS Lambda and Postgres.",
        docs_url=None,
        redoc_url=None,
        # It would redirect to the Host header's word, and without the stage.
        redirect_slashes=False,
        generate_unique_id_function=document.operation_id,
    )
    app.state.runtime = runtime
    app.state.known_schemas = KnownSchemas()
    app.state.refusals = RefusalCounts(time.monotonic)
    problems.install(
        app, [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    )
    limits.install(app)
    document.install(app)
    for router in routers:
        app.include_router(router)
    return app
