"""Who is calling, and what they may do."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Header, Request

from shared.errors import Forbidden, Invalid, NotFound
from shared.http.limits import admitted_key
from shared.http.requests import api_key_hash
from shared.runtime import Runtime

OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of an API key. `tenant_id` is whose data this request is about."""

    key_id: UUID
    tenant_id: UUID


def runtime_of(request: Request) -> Runtime:
    """The runtime that the application was made with."""
    runtime: Runtime = request.app.state.runtime
    return runtime


RuntimeOf = Annotated[Runtime, Depends(runtime_of)]


def tenant_caller(scope: str) -> Callable[..., Caller]:
    """A dependency: the caller, whose key has `scope` for the tenant the request is about.

    A tenant's key is about its own tenant. An operator's key may do everything for every tenant, and names the one it
    means in the header `Leasehook-Tenant`.
    """

    def dependency(
        request: Request,
        runtime: RuntimeOf,
        key_hash: Annotated[bytes, Depends(api_key_hash)],
        leasehook_tenant: Annotated[
            UUID | None,
            Header(description="Which tenant an operator's key means; other keys do without."),
        ] = None,
    ) -> Caller:
        key = admitted_key(request, runtime, key_hash)
        if key["tenant_id"] is None:
            return Caller(key["id"], _named_tenant(runtime, leasehook_tenant))
        if scope not in key["scopes"]:
            raise Forbidden(f"the API key lacks the scope '{scope}'")
        if leasehook_tenant not in (None, key["tenant_id"]):
            raise NotFound("there is no such tenant, or the key is not for it")
        return Caller(key["id"], key["tenant_id"])

    return dependency


def operator_caller(
    request: Request, runtime: RuntimeOf, key_hash: Annotated[bytes, Depends(api_key_hash)]
) -> UUID:
    """A dependency: the id of an operator's key."""
    key = admitted_key(request, runtime, key_hash)
    if OPERATE not in key["scopes"]:
        raise Forbidden(f"the API key lacks the scope '{OPERATE}'")
    key_id: UUID = key["id"]
    return key_id


def _named_tenant(runtime: Runtime, tenant_id: UUID | None) -> UUID:
    if tenant_id is None:
        raise Invalid(
            "leasehook-tenant", "an operator's key needs this header: the id of the tenant it means"
        )
    if not runtime.database.fetch("get_tenant", {"tenant_id": tenant_id}):
        raise NotFound("there is no such tenant, or the key is not for it")
    return tenant_id


Reader = Annotated[Caller, Depends(tenant_caller("read"))]
Manager = Annotated[Caller, Depends(tenant_caller("manage"))]
Operator = Annotated[UUID, Depends(operator_caller)]
