"""Tenants, which operators make and look at."""

from typing import Any
from uuid import uuid4

import pytest

from shared.keys import create_operator_key
from tests.management.conftest import Api, Client
from tests.support.world import World


@pytest.fixture
def operator(client: Client, world: World) -> Api:
    """The API with an operator's key."""
    return Api(client, create_operator_key(world.database, "operator")["key"])


def test_an_operator_makes_finds_and_lists_tenants(operator: Api, world: World) -> None:
    answer = operator.post("/v1/tenants", {"name": "Acme & Söhne"})

    assert answer.status_code == 201
    made = answer.json()
    assert made["name"] == "Acme & Söhne"
    assert operator.get(f"/v1/tenants/{made['id']}").json() == made
    listed = operator.get("/v1/tenants").json()
    assert [tenant["id"] for tenant in listed["data"]] == [made["id"], str(world.tenant_id)]
    assert listed["next_cursor"] is None


def test_pages_of_tenants_hold_each_of_them_once(operator: Api) -> None:
    made = [operator.post("/v1/tenants", {"name": f"t{n}"}).json()["id"] for n in range(4)]

    pages = operator.pages("/v1/tenants", limit=2)

    assert [len(page) for page in pages] == [2, 2, 1]
    assert [tenant["id"] for page in pages for tenant in page][:4] == made[::-1]


def test_two_tenants_cannot_have_one_name(operator: Api) -> None:
    answer = operator.post("/v1/tenants", {"name": "default"})
    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:leasehook:problem:conflict"


@pytest.mark.parametrize(
    "body", [{}, {"name": ""}, {"name": "n" * 201}, {"name": "a\0b"}, {"name": 1}, {"nam": "x"}]
)
def test_a_tenant_without_a_storable_name_is_refused(operator: Api, body: Any) -> None:
    """WH-041."""
    assert operator.post("/v1/tenants", body).status_code == 422
    assert len(operator.get("/v1/tenants").json()["data"]) == 1


def test_a_tenant_that_is_not_there_is_not_found(operator: Api) -> None:
    assert operator.get(f"/v1/tenants/{uuid4()}").status_code == 404
    assert operator.get("/v1/tenants/default").status_code == 422


def test_a_tenants_key_sees_no_tenants_and_makes_none(api: Api, world: World) -> None:
    """WH-125."""
    assert api.get("/v1/tenants").status_code == 403
    assert api.get(f"/v1/tenants/{world.tenant_id}").status_code == 403
    assert api.post("/v1/tenants", {"name": "mine"}).status_code == 403
    assert len(world.sql("select 1 from leasehook.tenants")) == 1


def test_an_operator_onboards_a_tenant_and_works_for_it(operator: Api, client: Client) -> None:
    tenant = operator.post("/v1/tenants", {"name": "acme"}).json()["id"]
    meant = {"leasehook-tenant": tenant}
    made = operator.post(
        "/v1/api-keys", {"name": "first", "scopes": ["manage", "read"]}, **meant
    ).json()
    acme = Api(client, made["key"])

    endpoint = acme.post("/v1/endpoints", {"url": "https://example.com/"}).json()

    assert operator.get(f"/v1/endpoints/{endpoint['id']}", **meant).json()["id"] == endpoint["id"]
    assert operator.get(f"/v1/endpoints/{endpoint['id']}").status_code == 422
    nobody = {"leasehook-tenant": str(uuid4())}
    assert operator.get(f"/v1/endpoints/{endpoint['id']}", **nobody).status_code == 404
