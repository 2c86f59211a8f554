"""API keys: shown once, stored hashed, worthless as soon as they are revoked."""

import hashlib
from typing import Any
from uuid import uuid4

import pytest

from shared.keys import create_operator_key
from tests.management.conftest import Api, Client
from tests.support.world import World

NEW = {"name": "reader", "scopes": ["read"]}


@pytest.fixture
def operator(client: Client, world: World) -> Api:
    """The API with an operator's key."""
    return Api(client, create_operator_key(world.database, "operator")["key"])


def test_a_new_key_is_shown_once_and_works(api: Api, client: Client) -> None:
    answer = api.post("/v1/api-keys", NEW)

    assert answer.status_code == 201
    made = answer.json()
    assert made["key"].startswith(made["key_prefix"])
    listed = Api(client, made["key"]).get("/v1/api-keys").json()["data"]
    assert {name: value for name, value in made.items() if name != "key"} == listed[0]
    assert made["key"] not in api.get("/v1/api-keys").text


def test_only_a_hash_and_the_beginning_of_a_key_are_stored(api: Api, world: World) -> None:
    """WH-125."""
    made = api.post("/v1/api-keys", NEW).json()

    row = world.one("select * from leasehook.api_keys where id = %s", made["id"])

    assert row["key_hash"] == hashlib.sha256(made["key"].encode()).digest()
    assert len(made["key_prefix"]) == 9
    assert len(made["key"]) == len("lh_") + 32
    assert made["key"] not in str(row)


def test_no_two_keys_are_alike(api: Api) -> None:
    keys = {api.post("/v1/api-keys", NEW).json()["key"] for _ in range(20)}
    assert len(keys) == 20
    assert len({key[:9] for key in keys}) == 20


def test_a_key_does_what_its_scopes_say_and_no_more(api: Api, client: Client) -> None:
    reader = Api(client, api.post("/v1/api-keys", NEW).json()["key"])
    manager = Api(
        client, api.post("/v1/api-keys", {"name": "m", "scopes": ["manage"]}).json()["key"]
    )

    assert reader.get("/v1/api-keys").status_code == 200
    assert reader.post("/v1/api-keys", NEW).status_code == 403
    assert manager.get("/v1/api-keys").status_code == 403
    assert manager.post("/v1/api-keys", NEW).status_code == 201


def test_a_revoked_key_is_worthless_at_once_on_a_warm_function(api: Api, client: Client) -> None:
    """WH-125: between two requests to one process that has used the key."""
    made = api.post("/v1/api-keys", NEW).json()
    reader = Api(client, made["key"])
    assert reader.get("/v1/api-keys").status_code == 200

    assert api.delete(f"/v1/api-keys/{made['id']}").status_code == 204

    answer = reader.get("/v1/api-keys")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_revoking_again_changes_nothing_and_the_key_stays_listed(api: Api) -> None:
    key_id = api.post("/v1/api-keys", NEW).json()["id"]
    api.delete(f"/v1/api-keys/{key_id}")
    first = api.get("/v1/api-keys").json()["data"][0]

    assert api.delete(f"/v1/api-keys/{key_id}").status_code == 204

    assert first["revoked_at"] is not None
    assert api.get("/v1/api-keys").json()["data"][0] == first


def test_a_key_can_revoke_itself(api: Api) -> None:
    own_id = api.get("/v1/api-keys").json()["data"][0]["id"]
    assert api.delete(f"/v1/api-keys/{own_id}").status_code == 204
    assert api.get("/v1/api-keys").status_code == 401


def test_another_tenants_key_is_not_found_and_not_revoked(api: Api, other: Api) -> None:
    theirs = other.post("/v1/api-keys", NEW).json()["id"]

    assert api.delete(f"/v1/api-keys/{theirs}").status_code == 404

    assert api.delete(f"/v1/api-keys/{uuid4()}").status_code == 404
    assert api.delete("/v1/api-keys/x").status_code == 422
    assert other.get("/v1/api-keys").json()["data"][0]["revoked_at"] is None
    assert theirs not in api.get("/v1/api-keys").text


@pytest.mark.parametrize(
    "almost",
    ["{key} ", " {key}", "{upper}", "{prefix}", "lh_", "", "{key}{key}", "{key}" + "a" * 1_000_000],
)
def test_what_is_almost_a_key_is_none(api: Api, client: Client, almost: str) -> None:
    """WH-125."""
    spoilt = almost.format(key=api.key, upper=api.key.upper(), prefix=api.key[:9])
    assert Api(client, spoilt).get("/v1/api-keys").status_code == 401


@pytest.mark.parametrize("header", [b"Bearer \xc3\xa9", b"Basic bGg6", b"Bearer", b""])
def test_what_is_no_bearer_key_is_refused(client: Client, header: bytes) -> None:
    """WH-125."""
    answer = client.request("GET", "/v1/api-keys", headers={b"authorization": header})
    assert answer.status_code == 401


def test_pages_of_keys_hold_each_of_them_once(api: Api) -> None:
    made = [api.post("/v1/api-keys", NEW).json()["id"] for _ in range(4)]

    pages = api.pages("/v1/api-keys", limit=2)

    assert [len(page) for page in pages] == [2, 2, 1]
    assert [key["id"] for page in pages for key in page][:4] == made[::-1]


def test_a_key_among_ten_thousand_is_found_by_an_index(api: Api, world: World) -> None:
    """WH-125."""
    world.sql(
        """
        insert into leasehook.api_keys (tenant_id, name, key_hash, key_prefix, scopes)
        select %s, 'k', sha256(n::text::bytea), 'lh_', '{read}' from generate_series(1, 10000) as n
        """,
        world.tenant_id,
    )
    world.sql("analyze leasehook.api_keys")
    plan = world.sql(
        "explain select 1 from leasehook.api_keys where key_hash = %s and revoked_at is null", b"x"
    )
    assert "Index Scan using api_keys_hash_unique" in str(plan)
    assert len(api.get("/v1/api-keys?limit=200").json()["data"]) == 200


@pytest.mark.parametrize(
    "body",
    [
        {"name": "a"},
        {"scopes": ["read"]},
        {"name": "", "scopes": ["read"]},
        {"name": "n" * 201, "scopes": ["read"]},
        {"name": "a\0", "scopes": ["read"]},
        {"name": "a", "scopes": []},
        {"name": "a", "scopes": ["admin"]},
        {"name": "a", "scopes": "read"},
        {"name": "a", "scopes": ["read"], "tenant_id": str(uuid4())},
    ],
)
def test_a_key_without_a_storable_name_or_known_scopes_is_refused(api: Api, body: Any) -> None:
    """WH-041."""
    assert api.post("/v1/api-keys", body).status_code == 422
    assert len(api.get("/v1/api-keys").json()["data"]) == 1


def test_a_tenants_key_makes_no_operators_key(api: Api, world: World) -> None:
    """WH-125."""
    assert api.post("/v1/api-keys", {"name": "a", "scopes": ["operate"]}).status_code == 422
    assert api.post("/v1/operator-keys", {"name": "a"}).status_code == 403
    assert api.get("/v1/operator-keys").status_code == 403
    assert world.sql("select 1 from leasehook.api_keys where tenant_id is null") == []


def test_operators_keys_are_made_listed_and_revoked_by_operators(
    operator: Api, api: Api, client: Client
) -> None:
    answer = operator.post("/v1/operator-keys", {"name": "second"})
    assert answer.status_code == 201
    second = Api(client, answer.json()["key"])
    listed = second.get("/v1/operator-keys").json()["data"]
    assert [(key["name"], key["scopes"]) for key in listed] == [
        ("second", ["operate"]),
        ("operator", ["operate"]),
    ]
    assert "second" not in api.get("/v1/api-keys").text

    path = f"/v1/operator-keys/{answer.json()['id']}"
    assert api.delete(path).status_code == 403
    assert api.delete(path.replace("operator", "api")).status_code == 404
    assert operator.delete(path).status_code == 204

    assert second.get("/v1/operator-keys").status_code == 401
    assert operator.delete(f"/v1/operator-keys/{uuid4()}").status_code == 404


def test_a_tenants_key_is_not_revoked_as_an_operators(operator: Api, api: Api) -> None:
    tenants_key = api.get("/v1/api-keys").json()["data"][0]["id"]
    assert operator.delete(f"/v1/operator-keys/{tenants_key}").status_code == 404
    assert api.get("/v1/api-keys").status_code == 200
