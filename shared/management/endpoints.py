"""Endpoints: URLs that receive webhooks."""

from datetime import datetime
from typing import Annotated, Any, Literal, cast
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, StringConstraints

from shared import endpoints
from shared.config import MAX_TIMEOUT_SECONDS
from shared.domain.circuit import Circuit as CircuitState
from shared.domain.headers import MAX_VALUE_LENGTH
from shared.domain.matching import MAX_EVENT_TYPE_LENGTH
from shared.domain.targets import URL_MAX_CHARACTERS
from shared.endpoint_rules import (
    MAX_DESCRIPTION_LENGTH,
    MAX_FILTERS,
    MAX_HEADERS,
    MAX_IN_FLIGHT,
    MAX_RATE_PER_SECOND,
    MAX_RETRIES,
    MAX_RETRY_DELAY_SECONDS,
)
from shared.endpoint_secrets import Signing
from shared.endpoints import (
    DEFAULT_OVERLAP_SECONDS,
    MAX_OVERLAP_SECONDS,
    EndpointChanges,
    NewEndpoint,
)
from shared.http.access import Manager, Reader, RuntimeOf
from shared.http.pages import DEFAULT_LIMIT, CursorText, Limit, Page, read_cursor, write_cursor
from shared.http.schemas import problem_responses
from shared.http.strict import StrictRoute
from shared.intake import MAX_CHANNELS
from shared.management.fields import STORABLE, ConsumerId, RequestModel
from shared.rules import CONSUMER_PATTERN

router = APIRouter(route_class=StrictRoute, prefix="/v1", tags=["endpoints"])

_Url = Annotated[
    str,
    Field(
        max_length=URL_MAX_CHARACTERS,
        description="http or https, without credentials or fragment, to a public address. Shown in its normal form.",
        examples=["https://example.com/webhooks"],
    ),
]
_Description = Annotated[
    str, StringConstraints(max_length=MAX_DESCRIPTION_LENGTH, pattern=STORABLE)
]
_Filter = Annotated[
    str,
    StringConstraints(
        max_length=MAX_EVENT_TYPE_LENGTH + len(".*"),
        pattern=r"^(\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(\.\*)?)$",
    ),
]
_EventTypes = Annotated[
    list[_Filter],
    Field(
        min_length=1,
        max_length=MAX_FILTERS,
        description="What it takes: event types, prefixes such as `order.*`, or `*` for everything.",
    ),
]
_Channels = Annotated[
    list[ConsumerId],
    Field(
        min_length=1,
        max_length=MAX_CHANNELS,
        description="With channels, only events in one of them get through.",
    ),
]
_HeaderValue = Annotated[str, StringConstraints(min_length=1, max_length=MAX_VALUE_LENGTH)]
_Headers = Annotated[
    dict[str, _HeaderValue],
    Field(
        max_length=MAX_HEADERS,
        description="Sent along with every request, such as credentials. Their values are never shown; a change "
        "replaces all of them. Names that Leasehook or HTTP itself sets are refused.",
    ),
]
_Timeout = Annotated[
    int,
    Field(
        ge=1,
        le=MAX_TIMEOUT_SECONDS,
        description="For a whole attempt, from DNS to the response's end.",
    ),
]
_RetryDelays = Annotated[
    list[Annotated[int, Field(ge=1, le=MAX_RETRY_DELAY_SECONDS)]],
    Field(
        max_length=MAX_RETRIES,
        description="Before the second, third, … attempt, each jittered by half; an empty list: one attempt only.",
    ),
]
_MaxInFlight = Annotated[
    int, Field(ge=1, le=MAX_IN_FLIGHT, description="Requests at the same time, over all drains.")
]
_Rate = Annotated[
    int, Field(ge=1, le=MAX_RATE_PER_SECOND, description="Requests per second, over all drains.")
]
_Ordered = Annotated[
    bool,
    Field(
        description="One at a time, in the order of publishing; a delivery that waits for its retry holds back the "
        "later ones."
    ),
]
_Secret = Annotated[
    str,
    Field(
        max_length=200,
        description="`whsec_` and the base64 of 24 to 64 bytes, or `whsk_` and that of an ed25519 seed of 32 bytes. "
        "Without it, a random one is made.",
    ),
]


class NewEndpointBody(RequestModel):
    """An endpoint to make. What is absent or null is the default."""

    url: _Url
    description: _Description | None = None
    consumer: ConsumerId | None = Field(
        None,
        description="Which of your customers it belongs to: it gets the events published for that one only. Made if it "
        "is not there yet. Without it: events without a consumer.",
    )
    event_types: _EventTypes = Field(["*"])
    channels: _Channels | None = None
    headers: _Headers | None = None
    timeout_seconds: _Timeout | None = None
    retry_delays_seconds: _RetryDelays | None = None
    max_in_flight: _MaxInFlight | None = None
    rate_per_second: _Rate | None = None
    ordered: _Ordered = False
    signing: Signing | None = Field(
        None,
        description="`v1`, the default: HMAC-SHA256 with a shared secret. `v1a`: ed25519, for receivers that shall "
        "verify and not sign.",
    )
    secret: _Secret | None = None


def _absent() -> Any:  # noqa: ANN401  # what pydantic.Field returns, too
    """No default that OpenAPI would show: only members that were sent are read."""
    return Field(default_factory=lambda: None)


class EndpointChangesBody(RequestModel):
    """What to change: what is absent stays, null is the default. Its consumer and its secret are not changed here."""

    url: _Url = _absent()
    description: _Description | None = _absent()
    event_types: _EventTypes = _absent()
    channels: _Channels | None = _absent()
    headers: _Headers | None = _absent()
    timeout_seconds: _Timeout | None = _absent()
    retry_delays_seconds: _RetryDelays | None = _absent()
    max_in_flight: _MaxInFlight | None = _absent()
    rate_per_second: _Rate | None = _absent()
    ordered: _Ordered = _absent()


class RotationBody(RequestModel):
    """How to rotate."""

    overlap_seconds: int = Field(
        DEFAULT_OVERLAP_SECONDS,
        ge=0,
        le=MAX_OVERLAP_SECONDS,
        description="How long the secrets so far sign beside the new one; 0: no longer.",
    )
    secret: _Secret | None = None
    signing: Signing | None = Field(None, description="Of a new secret; the default: as before.")


class CircuitBody(BaseModel):
    """Whether requests are sent, or held back because they kept failing."""

    state: CircuitState
    until: datetime | None = Field(
        description="While open: when one request tries it again. Null while closed."
    )
    consecutive_failures: int
    failing_since: datetime | None = Field(description="The first failure since the last success.")


class Endpoint(BaseModel):
    """A URL that receives webhooks."""

    id: UUID
    url: str
    description: str | None
    consumer: str | None
    event_types: list[str]
    channels: list[str] | None
    header_names: list[str] | None = Field(
        description="The custom headers, without their values. Null: sealed with a key that is configured no longer."
    )
    timeout_seconds: int | None = Field(description="Null: the installation's default.")
    retry_delays_seconds: list[int] | None = Field(description="Null: the installation's default.")
    max_in_flight: int | None
    rate_per_second: int | None
    ordered: bool
    signing: Signing | None = Field(
        description="How it is signed. Null: the secret is sealed with a key that is configured no longer; rotate it."
    )
    public_key: str | None = Field(
        description="With `v1a`: what receivers verify with, `whpk_` and base64."
    )
    circuit: CircuitBody
    disabled_at: datetime | None = Field(
        description="Since when nothing is sent to it; its deliveries wait, parked."
    )
    disabled_reason: Literal["gone", "failing", "operator"] | None = Field(
        description="`gone`: it answered 410. `failing`: it failed for days. `operator`: it was asked for."
    )
    created_at: datetime
    updated_at: datetime


class EndpointWithSecret(Endpoint):
    """An endpoint with the secret that was just made; keep it, it is shown this once."""

    secret: str


class TestEvent(BaseModel):
    """A test event on its way."""

    event_id: UUID = Field(description="Also its webhook-id.")
    delivery_id: UUID = Field(description="`GET /v1/deliveries/{id}` says what came of it.")


@router.post(
    "/endpoints",
    status_code=201,
    summary="Make an endpoint",
    responses=problem_responses(400, 401, 403, 404, 413, 422, 503),
)
def create_endpoint(
    runtime: RuntimeOf, caller: Manager, new: NewEndpointBody
) -> EndpointWithSecret:
    """It gets what is published from now on. Its signing secret is shown this once."""
    said: dict[str, Any] = new.model_dump()
    wanted = NewEndpoint(**said | {"headers": new.headers or {}})
    return EndpointWithSecret.model_validate(
        endpoints.create_endpoint(
            runtime.database, runtime.sealer, runtime.settings.targets, caller.tenant_id, wanted
        )
    )


@router.get(
    "/endpoints",
    summary="List endpoints, newest first",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def list_endpoints(
    runtime: RuntimeOf,
    caller: Reader,
    *,
    consumer: Annotated[
        str | None, Query(pattern=CONSUMER_PATTERN, description="Only this consumer's.")
    ] = None,
    disabled: Annotated[
        bool | None, Query(description="Only those that are disabled, or only those that are not.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: CursorText = None,
) -> Page[Endpoint]:
    """Deleted ones are not among them."""
    listing = endpoints.list_endpoints(
        runtime.database,
        runtime.sealer,
        caller.tenant_id,
        consumer=consumer,
        disabled=disabled,
        before=read_cursor(cursor),
        limit=limit,
    )
    return Page(
        data=[Endpoint.model_validate(row) for row in listing.rows],
        next_cursor=None if listing.next_key is None else write_cursor(listing.next_key),
    )


@router.get(
    "/endpoints/{endpoint_id}",
    summary="Get an endpoint",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def get_endpoint(runtime: RuntimeOf, caller: Reader, endpoint_id: UUID) -> Endpoint:
    """With its circuit, and without secrets."""
    return Endpoint.model_validate(
        endpoints.get_endpoint(runtime.database, runtime.sealer, caller.tenant_id, endpoint_id)
    )


@router.patch(
    "/endpoints/{endpoint_id}",
    summary="Change an endpoint",
    responses=problem_responses(400, 401, 403, 404, 413, 422, 503),
)
def change_endpoint(
    runtime: RuntimeOf, caller: Manager, endpoint_id: UUID, changes: EndpointChangesBody
) -> Endpoint:
    """Deliveries that wait are sent as the endpoint is when their turn comes: to its URL and with its secrets then.

    Another URL begins anew: a closed circuit, nothing counted against it, and enabled again if failures had disabled
    it. What an operator disabled stays so.
    """
    said = changes.model_dump(exclude_unset=True)
    if "headers" in said:
        said["headers"] = said["headers"] or {}
    return Endpoint.model_validate(
        endpoints.change_endpoint(
            runtime.database,
            runtime.sealer,
            runtime.settings.targets,
            caller.tenant_id,
            endpoint_id,
            changes=cast("EndpointChanges", said),
        )
    )


@router.delete(
    "/endpoints/{endpoint_id}",
    status_code=204,
    summary="Delete an endpoint",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def delete_endpoint(runtime: RuntimeOf, caller: Manager, endpoint_id: UUID) -> None:
    """Its waiting deliveries are cancelled, many at once and the rest by maintenance; its secrets are erased."""
    endpoints.delete_endpoint(runtime.database, caller.tenant_id, endpoint_id)


@router.post(
    "/endpoints/{endpoint_id}/rotate-secret",
    summary="Rotate the signing secret",
    responses=problem_responses(400, 401, 403, 404, 409, 413, 422, 503),
)
def rotate_secret(
    runtime: RuntimeOf, caller: Manager, endpoint_id: UUID, rotation: RotationBody
) -> EndpointWithSecret:
    """The new secret signs at once, the old ones beside it for the overlap, so that receivers may change in between."""
    return EndpointWithSecret.model_validate(
        endpoints.rotate_secret(
            runtime.database,
            runtime.sealer,
            caller.tenant_id,
            endpoint_id,
            secret=rotation.secret,
            signing=rotation.signing,
            overlap_seconds=rotation.overlap_seconds,
        )
    )


@router.post(
    "/endpoints/{endpoint_id}/enable",
    summary="Enable an endpoint",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def enable_endpoint(runtime: RuntimeOf, caller: Manager, endpoint_id: UUID) -> Endpoint:
    """Its circuit is closed, and what was parked goes out gently: one at a time at first, twice as many each second."""
    return Endpoint.model_validate(
        endpoints.enable_endpoint(runtime.database, runtime.sealer, caller.tenant_id, endpoint_id)
    )


@router.post(
    "/endpoints/{endpoint_id}/disable",
    summary="Disable an endpoint",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def disable_endpoint(runtime: RuntimeOf, caller: Manager, endpoint_id: UUID) -> Endpoint:
    """Nothing more is sent to it. Its deliveries, new ones too, are parked until it is enabled and use up no attempts."""
    return Endpoint.model_validate(
        endpoints.disable_endpoint(runtime.database, runtime.sealer, caller.tenant_id, endpoint_id)
    )


@router.post(
    "/endpoints/{endpoint_id}/test",
    status_code=202,
    summary="Send a test event",
    responses=problem_responses(401, 403, 404, 409, 422, 503),
)
def send_test_event(runtime: RuntimeOf, caller: Manager, endpoint_id: UUID) -> TestEvent:
    """An event of type `leasehook.test` for this endpoint alone, whatever it takes; signed and retried like any other."""
    return TestEvent.model_validate(
        endpoints.send_test_event(runtime.database, runtime.sealer, caller.tenant_id, endpoint_id)
    )
