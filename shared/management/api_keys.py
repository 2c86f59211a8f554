"""API keys: a tenant's own, and the operators'."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from shared import keys
from shared.http.access import Manager, Operator, Reader, RuntimeOf
from shared.http.pages import DEFAULT_LIMIT, CursorText, Limit, Page, page, read_cursor
from shared.http.schemas import problem_responses
from shared.http.strict import StrictRoute
from shared.management.fields import Name, RequestModel

router = APIRouter(route_class=StrictRoute, prefix="/v1", tags=["API keys"])

_Scope = Literal["publish", "read", "manage"]


class NewKey(RequestModel):
    """A tenant's key to make."""

    name: Name = Field(description="To tell it from others.")
    scopes: Annotated[list[_Scope], Field(min_length=1, max_length=len(keys.SCOPES))] = Field(
        description="`publish` events, `read` what is stored, `manage` it (`manage` does not include the others)."
    )


class NewOperatorKey(RequestModel):
    """An operator's key to make."""

    name: Name = Field(description="To tell it from others.")


class Key(BaseModel):
    """An API key, without the key itself: that is not stored."""

    id: UUID
    name: str
    key_prefix: str = Field(description="How the key begins.")
    scopes: list[_Scope | Literal["operate"]]
    created_at: datetime
    revoked_at: datetime | None = Field(None, description="Since when it is worthless.")


class CreatedKey(Key):
    """A new API key; keep `key`, it is shown this once."""

    key: str = Field(description="Send it as `Authorization: Bearer lh_…`.")


@router.post(
    "/api-keys",
    status_code=201,
    summary="Make an API key",
    responses=problem_responses(400, 401, 403, 404, 413, 422, 503),
)
def create_api_key(runtime: RuntimeOf, caller: Manager, new: NewKey) -> CreatedKey:
    """The key is random and stored as a hash only, so it is shown this once."""
    return CreatedKey.model_validate(
        keys.create_key(runtime.database, caller.tenant_id, new.name, new.scopes)
    )


@router.get(
    "/api-keys",
    summary="List API keys, newest first",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def list_api_keys(
    runtime: RuntimeOf, caller: Reader, limit: Limit = DEFAULT_LIMIT, cursor: CursorText = None
) -> Page[Key]:
    """Revoked ones too."""
    rows = keys.list_keys(runtime.database, caller.tenant_id, read_cursor(cursor), limit + 1)
    return Page[Key].model_validate(page(rows, limit))


@router.delete(
    "/api-keys/{key_id}",
    status_code=204,
    summary="Revoke an API key",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def revoke_api_key(runtime: RuntimeOf, caller: Manager, key_id: UUID) -> None:
    """Effective at once: every request looks its key up. The key stays in the list, as revoked."""
    keys.revoke_key(runtime.database, caller.tenant_id, key_id)


@router.post(
    "/operator-keys",
    status_code=201,
    summary="Make an operator's key",
    responses=problem_responses(400, 401, 403, 413, 422, 503),
)
def create_operator_key(runtime: RuntimeOf, _operator: Operator, new: NewOperatorKey) -> CreatedKey:
    """It may do everything for every tenant. Only with an operator's key; the first one is made on the command line."""
    return CreatedKey.model_validate(keys.create_operator_key(runtime.database, new.name))


@router.get(
    "/operator-keys",
    summary="List operators' keys, newest first",
    responses=problem_responses(401, 403, 422, 503),
)
def list_operator_keys(
    runtime: RuntimeOf,
    _operator: Operator,
    limit: Limit = DEFAULT_LIMIT,
    cursor: CursorText = None,
) -> Page[Key]:
    """Revoked ones too. Only with an operator's key."""
    rows = keys.list_operator_keys(runtime.database, read_cursor(cursor), limit + 1)
    return Page[Key].model_validate(page(rows, limit))


@router.delete(
    "/operator-keys/{key_id}",
    status_code=204,
    summary="Revoke an operator's key",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def revoke_operator_key(runtime: RuntimeOf, _operator: Operator, key_id: UUID) -> None:
    """Effective at once; also for the key that asks for it. Only with an operator's key."""
    keys.revoke_operator_key(runtime.database, key_id)
