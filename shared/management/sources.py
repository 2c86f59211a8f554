"""Sources: addresses that receive other people's webhooks."""

from datetime import date, datetime
from typing import Annotated, Any, Literal, cast
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, StringConstraints

from shared import sources
from shared.domain.inbound.generic import (
    MAX_POINTER_LENGTH,
    MAX_PREFIX_LENGTH,
    MAX_TEMPLATE_LENGTH,
)
from shared.domain.inbound.schemes import MAX_TOLERANCE_SECONDS
from shared.http.access import Manager, Reader, RuntimeOf
from shared.http.pages import DEFAULT_LIMIT, CursorText, Limit, Page, read_cursor, write_cursor
from shared.http.schemas import problem_responses
from shared.http.strict import StrictRoute
from shared.listing import Listing
from shared.management.fields import STORABLE, ConsumerId, RequestModel
from shared.sources import (
    DEFAULT_OVERLAP_SECONDS,
    MAX_DESCRIPTION_LENGTH,
    MAX_OVERLAP_SECONDS,
    MAX_REFUSAL_DAYS,
    SLUG_PATTERN,
    NewSource,
    SourceChanges,
    Verdict,
)

router = APIRouter(route_class=StrictRoute, prefix="/v1", tags=["sources"])

Provider = Literal["stripe", "github", "shopify", "slack", "standard_webhooks", "hmac"]

_HeaderName = Annotated[
    str, StringConstraints(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
]
_Pointer = Annotated[
    str, StringConstraints(max_length=MAX_POINTER_LENGTH, pattern=r"^(/([^~/]|~[01])*)+$")
]
_Prefix = Annotated[str, StringConstraints(max_length=MAX_PREFIX_LENGTH)]
_Description = Annotated[
    str, StringConstraints(max_length=MAX_DESCRIPTION_LENGTH, pattern=STORABLE)
]
_EventTypePrefix = Annotated[
    str,
    StringConstraints(
        max_length=sources.MAX_PREFIX_LENGTH, pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
    ),
]
_Tolerance = Annotated[
    int,
    Field(
        ge=1,
        le=MAX_TOLERANCE_SECONDS,
        description="How far a signed timestamp may be from now, either way. For providers that sign one.",
    ),
]
_Secret = Annotated[
    str,
    Field(
        max_length=1000,
        description="As the provider shows it. `github`, `standard_webhooks` and `hmac` may go without: then a random "
        "one is made, to be entered there.",
    ),
]


class SignatureConfiguration(RequestModel):
    """How the provider `hmac` signs."""

    signature_header: _HeaderName = Field(examples=["X-Signature"])
    encoding: Literal["hex", "base64"]
    prefix: _Prefix | None = Field(
        None, description="What stands before the signature.", examples=["sha256="]
    )
    separator: Literal[" ", ",", ";"] | None = Field(
        None, description="Between several entries of the header; without it, it holds one."
    )
    signed: (
        Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEMPLATE_LENGTH)] | None
    ) = Field(
        None,
        description="What is signed: a template of `{body}`, `{timestamp}` and `{id}`. By default the body alone.",
        examples=["{timestamp}.{body}"],
    )
    algorithm: Literal["sha256", "sha512"] | None = Field(None, description="By default `sha256`.")
    secret: Literal["text", "base64"] | None = Field(
        None,
        description="Whether the key is the secret's text (the default), or what its base64 stands for.",
    )
    timestamp_header: _HeaderName | None = Field(
        None, description="Where the signed timestamp is, in whole seconds since 1970."
    )
    timestamp_prefix: _Prefix | None = Field(
        None,
        description="Instead of a header: what the entry of the signature header begins with that holds it.",
        examples=["t="],
    )
    id_header: _HeaderName | None = Field(
        None,
        description="Where the id is that a retry repeats. Without one, nothing is a duplicate.",
    )
    id_pointer: _Pointer | None = Field(
        None, description="Instead of a header: a JSON Pointer into the body.", examples=["/id"]
    )
    type_header: _HeaderName | None = Field(
        None, description="Where the event's type is. Without one: `received`."
    )
    type_pointer: _Pointer | None = Field(
        None, description="Instead of a header: a JSON Pointer into the body.", examples=["/type"]
    )


class NewSourceBody(RequestModel):
    """A source to make. What is absent or null is the default."""

    provider: Provider
    slug: Annotated[str, StringConstraints(pattern=SLUG_PATTERN)] | None = Field(
        None, description="Its address is `/in/{slug}`. Without it, a random one is made."
    )
    secret: _Secret | None = None
    configuration: SignatureConfiguration | None = Field(
        None, description="For the provider `hmac`, and for no other."
    )
    description: _Description | None = None
    consumer: ConsumerId | None = Field(
        None,
        description="Whose events these are: they reach that consumer's endpoints only. Without it, endpoints without "
        "a consumer.",
    )
    event_type_prefix: _EventTypePrefix | None = Field(
        None,
        description="Stands before the provider's own event types: with `github`, a push is `github.push`.",
        examples=["github"],
    )
    tolerance_seconds: _Tolerance | None = None


def _absent() -> Any:  # noqa: ANN401  # what pydantic.Field returns, too
    """No default that OpenAPI would show: only members that were sent are read."""
    return Field(default_factory=lambda: None)


class SourceChangesBody(RequestModel):
    """What to change: what is absent stays, null is the default. Slug, provider and how it signs stay as they are."""

    description: _Description | None = _absent()
    consumer: ConsumerId | None = _absent()
    event_type_prefix: _EventTypePrefix | None = _absent()
    tolerance_seconds: _Tolerance | None = _absent()


class SourceRotationBody(RequestModel):
    """How to rotate."""

    overlap_seconds: int = Field(
        DEFAULT_OVERLAP_SECONDS,
        ge=0,
        le=MAX_OVERLAP_SECONDS,
        description="How long the secrets so far are accepted beside the new one; 0: no longer.",
    )
    secret: _Secret | None = None


class Source(BaseModel):
    """An address that receives a provider's webhooks."""

    id: UUID
    slug: str
    path: str = Field(description="What to append to this installation's address.")
    provider: Provider
    configuration: dict[str, Any] | None = Field(description="Of the provider `hmac`, else null.")
    description: str | None
    consumer: str | None
    event_type_prefix: str | None
    tolerance_seconds: int | None = Field(description="Null: the provider's default.")
    disabled_at: datetime | None = Field(description="Since when nothing is accepted.")
    created_at: datetime
    updated_at: datetime


class SourceWithSecret(Source):
    """A source with the secret that was just made or given; it is shown this once."""

    secret: str


class Received(BaseModel):
    """A webhook that was accepted, or that came again."""

    id: UUID
    verdict: Verdict = Field(description="`duplicate`: it came before, and nothing was done.")
    event_id: UUID = Field(
        description="The event that it became, or had become: `GET /v1/events/{id}`, and its deliveries can be replayed."
    )
    event_type: str
    content_type: str
    payload_bytes: int
    dedupe_id: str | None = Field(description="The provider's own id of it.")
    headers: dict[str, str] = Field(description="Some that say more, none with credentials.")
    received_at: datetime
    last_received_at: datetime
    times: int = Field(description="How often: repetitions are counted, not listed.")


class Refusals(BaseModel):
    """How often requests were refused on a day, for a reason. Their bodies are not kept."""

    day: date = Field(description="In UTC.")
    reason: str = Field(examples=["bad_signature"])
    count: int
    last_at: datetime


class RefusalList(BaseModel):
    """The newest day first."""

    data: list[Refusals]


@router.post(
    "/sources",
    status_code=201,
    summary="Make a source",
    responses=problem_responses(400, 401, 403, 404, 409, 413, 422, 503),
)
def create_source(runtime: RuntimeOf, caller: Manager, new: NewSourceBody) -> SourceWithSecret:
    """What its provider signs and sends to its address becomes an event. Its secret is shown this once."""
    said = new.model_dump(exclude={"configuration"})
    configuration = (
        None if new.configuration is None else new.configuration.model_dump(exclude_none=True)
    )
    return SourceWithSecret.model_validate(
        sources.create_source(
            runtime.database,
            runtime.sealer,
            caller.tenant_id,
            NewSource(**said, configuration=configuration),
        )
    )


@router.get(
    "/sources",
    summary="List sources, newest first",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def list_sources(
    runtime: RuntimeOf, caller: Reader, limit: Limit = DEFAULT_LIMIT, cursor: CursorText = None
) -> Page[Source]:
    """Deleted ones are not among them."""
    listing = sources.list_sources(
        runtime.database, caller.tenant_id, before=read_cursor(cursor), limit=limit
    )
    return Page(
        data=[Source.model_validate(row) for row in listing.rows], next_cursor=_next(listing)
    )


@router.get(
    "/sources/{source_id}",
    summary="Get a source",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def get_source(runtime: RuntimeOf, caller: Reader, source_id: UUID) -> Source:
    """Without secrets."""
    return Source.model_validate(sources.get_source(runtime.database, caller.tenant_id, source_id))


@router.patch(
    "/sources/{source_id}",
    summary="Change a source",
    responses=problem_responses(400, 401, 403, 404, 413, 422, 503),
)
def change_source(
    runtime: RuntimeOf, caller: Manager, source_id: UUID, changes: SourceChangesBody
) -> Source:
    """For what comes from now on."""
    said = cast("SourceChanges", changes.model_dump(exclude_unset=True))
    return Source.model_validate(
        sources.change_source(runtime.database, caller.tenant_id, source_id, said)
    )


@router.delete(
    "/sources/{source_id}",
    status_code=204,
    summary="Delete a source",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def delete_source(runtime: RuntimeOf, caller: Manager, source_id: UUID) -> None:
    """Nothing more is accepted, and its secrets are erased. Its events and their deliveries stay."""
    sources.delete_source(runtime.database, caller.tenant_id, source_id)


@router.post(
    "/sources/{source_id}/enable",
    summary="Enable a source",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def enable_source(runtime: RuntimeOf, caller: Manager, source_id: UUID) -> Source:
    """It accepts webhooks again."""
    return Source.model_validate(
        sources.switch_source(runtime.database, caller.tenant_id, source_id, disabled=False)
    )


@router.post(
    "/sources/{source_id}/disable",
    summary="Disable a source",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def disable_source(runtime: RuntimeOf, caller: Manager, source_id: UUID) -> Source:
    """Everything is refused, as if there were no such address; the provider may retry, or give up."""
    return Source.model_validate(
        sources.switch_source(runtime.database, caller.tenant_id, source_id, disabled=True)
    )


@router.post(
    "/sources/{source_id}/rotate-secret",
    summary="Rotate a source's secret",
    responses=problem_responses(400, 401, 403, 404, 409, 413, 422, 503),
)
def rotate_source_secret(
    runtime: RuntimeOf, caller: Manager, source_id: UUID, rotation: SourceRotationBody
) -> SourceWithSecret:
    """The new secret is accepted at once, the old ones beside it for the overlap, so that the provider can change."""
    return SourceWithSecret.model_validate(
        sources.rotate_source_secret(
            runtime.database,
            runtime.sealer,
            caller.tenant_id,
            source_id,
            secret=rotation.secret,
            overlap_seconds=rotation.overlap_seconds,
        )
    )


@router.get(
    "/sources/{source_id}/received",
    summary="List what a source received, newest first",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def list_received(
    runtime: RuntimeOf,
    caller: Reader,
    source_id: UUID,
    *,
    verdict: Annotated[Verdict | None, Query(description="Only these.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: CursorText = None,
) -> Page[Received]:
    """As long as the events are kept."""
    listing = sources.list_received(
        runtime.database,
        caller.tenant_id,
        source_id,
        verdict=verdict,
        before=read_cursor(cursor),
        limit=limit,
    )
    return Page(
        data=[Received.model_validate(row) for row in listing.rows], next_cursor=_next(listing)
    )


@router.get(
    "/sources/{source_id}/refusals",
    summary="Count what was refused, by day and reason",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def list_refusals(
    runtime: RuntimeOf,
    caller: Reader,
    source_id: UUID,
    days: Annotated[
        int, Query(ge=1, le=MAX_REFUSAL_DAYS, description="How many days, today among them.")
    ] = 30,
) -> RefusalList:
    """Under a flood, counts may be a little late, and a process that dies loses its last ones."""
    rows = sources.refusals(runtime.database, caller.tenant_id, source_id, days)
    return RefusalList(data=[Refusals.model_validate(row) for row in rows])


def _next(listing: Listing) -> str | None:
    return None if listing.next_key is None else write_cursor(listing.next_key)
