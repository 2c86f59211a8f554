"""Tenants, for operators."""

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel

from shared import tenants
from shared.http.access import Operator, RuntimeOf
from shared.http.pages import DEFAULT_LIMIT, CursorText, Limit, Page, page, read_cursor
from shared.http.schemas import problem_responses
from shared.http.strict import StrictRoute
from shared.management.fields import Name, RequestModel

router = APIRouter(route_class=StrictRoute, prefix="/v1", tags=["tenants"])


class NewTenant(RequestModel):
    """A tenant to make."""

    name: Name


class Tenant(BaseModel):
    """An owner of endpoints, events and keys; nobody sees another's."""

    id: UUID
    name: str
    created_at: datetime


@router.post(
    "/tenants",
    status_code=201,
    summary="Make a tenant",
    responses=problem_responses(400, 401, 403, 409, 413, 422, 503),
)
def create_tenant(runtime: RuntimeOf, _operator: Operator, new: NewTenant) -> Tenant:
    """Only with an operator's key, which then makes the tenant's own: see `POST /v1/api-keys`."""
    return Tenant.model_validate(tenants.create_tenant(runtime.database, new.name))


@router.get(
    "/tenants",
    summary="List tenants, newest first",
    responses=problem_responses(401, 403, 422, 503),
)
def list_tenants(
    runtime: RuntimeOf,
    _operator: Operator,
    limit: Limit = DEFAULT_LIMIT,
    cursor: CursorText = None,
) -> Page[Tenant]:
    """Only with an operator's key."""
    rows = tenants.list_tenants(runtime.database, read_cursor(cursor), limit + 1)
    return Page[Tenant].model_validate(page(rows, limit))


@router.get(
    "/tenants/{tenant_id}",
    summary="Get a tenant",
    responses=problem_responses(401, 403, 404, 422, 503),
)
def get_tenant(runtime: RuntimeOf, _operator: Operator, tenant_id: UUID) -> Tenant:
    """Only with an operator's key."""
    return Tenant.model_validate(tenants.get_tenant(runtime.database, tenant_id))
