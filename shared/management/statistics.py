"""Statistics: an endpoint's attempts, a tenant's queue, and the operator's metrics."""

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from shared import statistics
from shared.http.access import Operator, Reader, RuntimeOf
from shared.http.schemas import problem_responses
from shared.http.strict import StrictRoute
from shared.prometheus import MEDIA_TYPE, exposition

router = APIRouter(route_class=StrictRoute, prefix="/v1", tags=["statistics"])
metrics_router = APIRouter(tags=["health"])


class Latency(BaseModel):
    """Percentiles, in milliseconds."""

    p50: float
    p95: float
    p99: float


class LastError(BaseModel):
    """The newest attempt that was no success."""

    at: datetime
    kind: str
    status_code: int | None
    detail: str | None


class EndpointStatistics(BaseModel):
    """What became of an endpoint's attempts within a window that ends now."""

    endpoint_id: UUID
    window_seconds: int
    attempts: int
    successes: int
    success_rate: float | None = Field(description="0 to 1; null without attempts.")
    latency_ms: Latency | None = Field(description="Of the attempts that were answered.")
    last_error: LastError | None
    sampled: bool = Field(
        description=f"There were more than {statistics.MOST_ATTEMPTS} attempts; all of this is about the newest of them."
    )


class Queue(BaseModel):
    """A tenant's deliveries that are not finished, and the dead ones."""

    due: int = Field(description="May be sent now.")
    waiting: int = Field(description="Due later.")
    in_progress: int
    parked: int = Field(description="Wait until their endpoint is enabled.")
    dead: int
    oldest_due_age_seconds: float | None
    capped: bool = Field(description="There are more than were counted.")


class Minute(BaseModel):
    """The deliveries that were made within a minute, and what has become of them by now."""

    minute_at: datetime = Field(description="Its beginning.")
    made: int
    succeeded: int
    dead: int


class Throughput(BaseModel):
    """The last hour, minute by minute; minutes without deliveries are left out."""

    minutes: list[Minute]
    capped: bool = Field(description="There were too many: the hour is not covered as a whole.")
    complete_from: datetime = Field(description="Since when all minutes are here.")


class TenantStatistics(BaseModel):
    """How a tenant's queue is doing."""

    queue: Queue
    throughput: Throughput


@router.get(
    "/endpoints/{endpoint_id}/statistics",
    summary="An endpoint's success rate, latency and last error",
    response_model=EndpointStatistics,
    responses=problem_responses(401, 403, 404, 422, 503),
)
def endpoint_statistics(
    runtime: RuntimeOf,
    caller: Reader,
    endpoint_id: UUID,
    window_seconds: Annotated[
        int, Query(alias="window", ge=60, le=604_800, description="In seconds; it ends now.")
    ] = 3600,
) -> dict[str, Any]:
    """See the route's summary."""
    return statistics.endpoint_statistics(
        runtime.database, caller.tenant_id, endpoint_id, window_seconds
    )


@router.get(
    "/statistics",
    summary="The queue now, and the last hour",
    response_model=TenantStatistics,
    responses=problem_responses(401, 403, 404, 422, 503),
)
def tenant_statistics(runtime: RuntimeOf, caller: Reader) -> dict[str, Any]:
    """See the route's summary."""
    return statistics.tenant_statistics(runtime.database, caller.tenant_id, datetime.now(UTC))


@metrics_router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    description="Text format 0.0.4; needs an operator's key.",
    response_class=Response,
    responses={
        200: {
            "description": "The metrics.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **problem_responses(401, 403, 503),
    },
)
def metrics(runtime: RuntimeOf, _operator: Operator) -> Response:
    """See the route's description."""
    return Response(exposition(statistics.gateway_gauges(runtime.database)), media_type=MEDIA_TYPE)
