"""Migrate: the schema comes up to date, and whoever may invoke it gets into an empty installation."""

import json
from typing import Any

import pytest

from shared.errors import Invalid
from shared.store.migrations import load
from tests.support.lambda_events import FakeContext, http_api
from tests.support.lambdas import Lambdas
from tests.support.world import World


def migrate(lambdas: Lambdas, event: object = None) -> Any:
    return lambdas.warm("migrate").invoke(event, FakeContext.lasting(60))


def with_key(lambdas: Lambdas, key: str, path: str, **headers: str) -> Any:
    event = http_api("GET", path, headers={"authorization": f"Bearer {key}", **headers})
    return lambdas.warm("api").invoke(event, FakeContext.lasting(30))


def test_an_empty_database_comes_up_to_date_and_stays_so(
    empty_database_url: str, lambdas: Lambdas
) -> None:
    lambdas.deploy(DATABASE_URL=empty_database_url)
    assert migrate(lambdas) == {"applied": [f"{each.version:04}_{each.name}" for each in load()]}
    assert migrate(lambdas, {}) == {"applied": []}


def test_the_first_key_works_and_is_stored_as_a_hash(
    world: World, lambdas: Lambdas, capfd: pytest.CaptureFixture[str]
) -> None:
    key = migrate(lambdas, {"api_key": "first"})["api_key"]

    assert with_key(lambdas, key, "/v1/endpoints")["statusCode"] == 200
    [stored] = world.sql(
        "select k.name, k.scopes, t.name as tenant from leasehook.api_keys as k "
        "inner join leasehook.tenants as t on k.tenant_id = t.id where k.name = 'first'"
    )
    assert stored == {"name": "first", "scopes": ["publish", "read", "manage"], "tenant": "default"}
    assert key not in "".join(capfd.readouterr())


def test_an_operators_key_reaches_every_tenant(world: World, lambdas: Lambdas) -> None:
    key = migrate(lambdas, {"operator_key": "admin"})["operator_key"]
    tenants = json.loads(with_key(lambdas, key, "/v1/tenants")["body"])["data"]
    assert str(world.tenant_id) in {tenant["id"] for tenant in tenants}


@pytest.mark.parametrize("kind", ["api_key", "operator_key"])
@pytest.mark.parametrize("name", ["", 7, None, "a\x00b", "x" * 1000])
def test_a_name_that_is_none_makes_no_key(
    world: World, lambdas: Lambdas, kind: str, name: object
) -> None:
    before = world.one("select count(*) from leasehook.api_keys")
    with pytest.raises(Invalid, match=kind):
        migrate(lambdas, {kind: name})
    assert world.one("select count(*) from leasehook.api_keys") == before


def test_one_key_is_made_at_a_time(world: World, lambdas: Lambdas) -> None:
    with pytest.raises(Invalid, match="together"):
        migrate(lambdas, {"api_key": "first", "operator_key": "admin"})
    assert world.one("select count(*) from leasehook.api_keys")["count"] == 0


def test_nobody_is_given_a_key_over_http(world: World, lambdas: Lambdas) -> None:
    event = {**http_api("POST", "/"), "operator_key": "admin", "api_key": "admin"}
    assert migrate(lambdas, event).keys() == {"refused"}
    assert world.one("select count(*) from leasehook.api_keys where name = 'admin'")["count"] == 0
