"""Bulk replay: ask for many deliveries again, as a job that survives whoever started it."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from shared import replay
from shared.domain.outcome import ErrorKind
from shared.http.access import Manager, Reader, RuntimeOf
from shared.http.filters import Instant
from shared.http.pages import DEFAULT_LIMIT, CursorText, Limit, Page, page, read_cursor
from shared.http.schemas import problem_responses
from shared.http.strict import StrictRoute
from shared.management.fields import ConsumerId
from shared.replay import ReplayFilter
from shared.store.connection import Row

router = APIRouter(route_class=StrictRoute, prefix="/v1", tags=["replays"])


def _text(value: object) -> object:
    """The parser behind it would also take numbers, as seconds."""
    if not isinstance(value, str | datetime):
        raise ValueError("must be text")  # noqa: TRY004  # pydantic answers only ValueError with 422
    return value


_Instant = Annotated[Instant, BeforeValidator(_text)]
_Status = Literal["dead", "cancelled", "succeeded", "failed"]


class Filter(BaseModel):
    """Which deliveries; all conditions must hold, and one that is absent or null lets everything through."""

    model_config = ConfigDict(extra="forbid")

    statuses: list[_Status] = Field(
        default=["dead"],
        min_length=1,
        max_length=10,
        description="`failed` means waiting for a retry. What is pending or in progress is never replayed.",
    )
    endpoint_id: UUID | None = None
    consumer: ConsumerId | None = None
    event_type: str | None = Field(
        default=None,
        max_length=130,
        pattern=r"^(\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(\.\*)?)$",
        description="An event type, or a prefix such as `order.*`.",
    )
    created_after: _Instant | None = Field(
        default=None, description="Deliveries that were made at this instant or later."
    )
    created_before: _Instant | None = Field(
        default=None, description="Deliveries that were made before this instant."
    )
    error_kind: ErrorKind | None = Field(default=None, description="How the last attempt failed.")


class NewReplay(BaseModel):
    """A bulk replay to make, or (`dry_run`) to size up."""

    model_config = ConfigDict(extra="forbid")

    filter: Filter = Field(default_factory=Filter)
    dry_run: bool = Field(
        default=False, strict=True, description="Only count what it would replay: answers 200."
    )


class Recovery(BaseModel):
    """What an endpoint missed."""

    model_config = ConfigDict(extra="forbid")

    since: _Instant = Field(description="When the outage began.")


class Matches(BaseModel):
    """What a replay would match."""

    matched_count: int
    matched_exactly: bool = Field(
        description=f"False: at least so many; only the first {replay.COUNTED} deliveries were looked at."
    )


class Replay(Matches):
    """A bulk replay and how far it is."""

    id: UUID
    state: Literal["running", "paused", "cancelled", "finished"]
    filter: Filter
    looked_at_count: int = Field(description="How many deliveries it has come by.")
    replayed_count: int
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None


@router.post(
    "/replays",
    status_code=202,
    summary="Replay all deliveries that match a filter",
    response_model=Replay,
    responses={
        200: {"model": Matches, "description": "Dry run: nothing was replayed."},
        **problem_responses(400, 401, 403, 404, 409, 413, 422, 503),
    },
)
def start_replay(runtime: RuntimeOf, caller: Manager, new: NewReplay) -> Replay | JSONResponse:
    """A job over what matches at this moment. It goes on by itself; small ones are finished at once.

    Each delivery is replayed once at most: due at once, with a fresh retry schedule and its history kept, behind what
    is published meanwhile and within the endpoint's ordinary limits. Deliveries of deleted endpoints are left alone.
    """
    wanted = ReplayFilter(**new.filter.model_dump())
    if new.dry_run:
        found = replay.estimate(runtime.database, caller.tenant_id, wanted)
        matches = Matches(matched_count=found.matched_count, matched_exactly=found.matched_exactly)
        return JSONResponse(matches.model_dump())
    return _shown(replay.start(runtime.database, caller.tenant_id, wanted))


@router.post(
    "/endpoints/{endpoint_id}/recover",
    status_code=202,
    summary="Replay what an endpoint missed",
    responses=problem_responses(400, 401, 403, 404, 409, 413, 422, 503),
)
def recover_endpoint(
    runtime: RuntimeOf, caller: Manager, endpoint_id: UUID, recovery: Recovery
) -> Replay:
    """A replay of the endpoint's dead deliveries that were made since an instant."""
    wanted = ReplayFilter(endpoint_id=endpoint_id, created_after=recovery.since)
    return _shown(replay.start(runtime.database, caller.tenant_id, wanted))


@router.get(
    "/replays",
    summary="List replays, newest first",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def list_replays(
    runtime: RuntimeOf, caller: Reader, limit: Limit = DEFAULT_LIMIT, cursor: CursorText = None
) -> Page[Replay]:
    """Finished ones too."""
    rows = replay.list_jobs(runtime.database, caller.tenant_id, read_cursor(cursor), limit + 1)
    found = page(rows, limit)
    return Page(data=[_shown(row) for row in found["data"]], next_cursor=found["next_cursor"])


@router.get(
    "/replays/{replay_id}",
    summary="Get a replay and its progress",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def get_replay(runtime: RuntimeOf, caller: Reader, replay_id: UUID) -> Replay:
    """`replayed_count` of `matched_count` is the progress."""
    return _shown(replay.get(runtime.database, caller.tenant_id, replay_id))


@router.post(
    "/replays/{replay_id}/pause",
    summary="Pause a replay",
    responses=problem_responses(401, 403, 404, 409, 422, 503),
)
def pause_replay(runtime: RuntimeOf, caller: Manager, replay_id: UUID) -> Replay:
    """Nothing more is replayed once this has answered. What was replayed before is on its way."""
    return _shown(replay.pause(runtime.database, caller.tenant_id, replay_id))


@router.post(
    "/replays/{replay_id}/resume",
    summary="Let a paused replay go on",
    responses=problem_responses(401, 403, 404, 409, 422, 503),
)
def resume_replay(runtime: RuntimeOf, caller: Manager, replay_id: UUID) -> Replay:
    """It goes on within a minute, from where it was."""
    return _shown(replay.resume(runtime.database, caller.tenant_id, replay_id))


@router.post(
    "/replays/{replay_id}/cancel",
    summary="Cancel a replay",
    responses=problem_responses(401, 403, 404, 409, 422, 503),
)
def cancel_replay(runtime: RuntimeOf, caller: Manager, replay_id: UUID) -> Replay:
    """It replays nothing more and cannot be resumed. What was replayed before is on its way."""
    return _shown(replay.cancel(runtime.database, caller.tenant_id, replay_id))


def _shown(job: Row) -> Replay:
    conditions = {name: job[name] for name in Filter.model_fields}
    return Replay.model_validate({**job, "filter": conditions})
