"""Migrate: any number of runs, at any time, end with the current schema and the data as it was.

And whoever may invoke it gets into an empty installation.
"""

import json
from typing import Any

import pytest

from shared.errors import Invalid
from shared.store.connection import Database
from shared.store.migrations import MigrationError, load
from tests.support.lambda_events import FakeContext, http_api
from tests.support.lambdas import Lambdas, in_step
from tests.support.world import World

NAMES = [f"{migration.version:04}_{migration.name}" for migration in load()]


def with_key(lambdas: Lambdas, key: str, path: str, **headers: str) -> Any:
    event = http_api("GET", path, headers={"authorization": f"Bearer {key}", **headers})
    return lambdas.warm("api").invoke(event, FakeContext.lasting(30))


def test_an_empty_database_gets_every_migration_once(
    lambdas: Lambdas, empty_database_url: str
) -> None:
    lambdas.deploy(DATABASE_URL=empty_database_url)
    migrate = lambdas.warm("migrate")

    assert migrate.invoke() == {"applied": NAMES}
    assert migrate.invoke() == {"applied": []}


def test_after_it_the_other_functions_work(lambdas: Lambdas, empty_database_url: str) -> None:
    lambdas.deploy(DATABASE_URL=empty_database_url)
    lambdas.warm("migrate").invoke()
    database = Database(empty_database_url)
    key = World(database).key()
    database.close()

    assert lambdas.publish({"type": "a", "payload": 1}, key=key).status == 202
    assert lambdas.drain()["stopped"] == "idle"
    assert lambdas.maintain()["upkeep"]["complete"]


def test_many_at_once_all_succeed_and_each_migration_is_applied_by_one(
    lambdas: Lambdas, empty_database_url: str
) -> None:
    """WH-060."""
    lambdas.deploy(DATABASE_URL=empty_database_url)
    environments = [lambdas.cold("migrate") for _ in range(8)]

    results = in_step(8, lambda index: environments[index].invoke())

    assert sorted(name for result in results for name in result["applied"]) == NAMES


def test_data_survives_a_further_run(world: World, lambdas: Lambdas) -> None:
    world.endpoint()
    world.publish()
    assert lambdas.warm("migrate").invoke() == {"applied": []}
    assert world.statuses() == {"pending": 1}


def test_a_database_that_is_ahead_of_the_code_is_refused(world: World, lambdas: Lambdas) -> None:
    world.sql("insert into leasehook.migrations (version, name, checksum) values (9999, 'x', 'y')")
    with pytest.raises(MigrationError, match="deploy the newer code"):
        lambdas.warm("migrate").invoke()


def test_a_migration_whose_text_was_changed_is_refused(world: World, lambdas: Lambdas) -> None:
    world.sql("update leasehook.migrations set checksum = 'other' where version = 1")
    with pytest.raises(MigrationError, match="restore the file"):
        lambdas.warm("migrate").invoke()


def test_the_first_key_works_and_is_stored_as_a_hash(
    world: World, lambdas: Lambdas, capfd: pytest.CaptureFixture[str]
) -> None:
    key = lambdas.warm("migrate").invoke({"api_key": "first"})["api_key"]

    assert with_key(lambdas, key, "/v1/endpoints")["statusCode"] == 200
    [stored] = world.sql(
        "select k.name, k.scopes, t.name as tenant from leasehook.api_keys as k "
        "inner join leasehook.tenants as t on k.tenant_id = t.id where k.name = 'first'"
    )
    assert stored == {"name": "first", "scopes": ["publish", "read", "manage"], "tenant": "default"}
    assert key not in "".join(capfd.readouterr())


def test_an_operators_key_reaches_every_tenant(world: World, lambdas: Lambdas) -> None:
    key = lambdas.warm("migrate").invoke({"operator_key": "admin"})["operator_key"]
    tenants = json.loads(with_key(lambdas, key, "/v1/tenants")["body"])["data"]
    assert str(world.tenant_id) in {tenant["id"] for tenant in tenants}


@pytest.mark.parametrize("kind", ["api_key", "operator_key"])
@pytest.mark.parametrize("name", ["", 7, None, "a\x00b", "x" * 1000])
def test_a_name_that_is_none_makes_no_key(
    world: World, lambdas: Lambdas, kind: str, name: object
) -> None:
    before = world.one("select count(*) from leasehook.api_keys")
    with pytest.raises(Invalid, match=kind):
        lambdas.warm("migrate").invoke({kind: name})
    assert world.one("select count(*) from leasehook.api_keys") == before


def test_one_key_is_made_at_a_time(world: World, lambdas: Lambdas) -> None:
    with pytest.raises(Invalid, match="together"):
        lambdas.warm("migrate").invoke({"api_key": "first", "operator_key": "admin"})
    assert world.one("select count(*) from leasehook.api_keys")["count"] == 0


def test_nobody_is_given_a_key_over_http(world: World, lambdas: Lambdas) -> None:
    event = {**http_api("POST", "/"), "operator_key": "admin", "api_key": "admin"}
    assert lambdas.warm("migrate").invoke(event).keys() == {"refused"}
    assert world.one("select count(*) from leasehook.api_keys where name = 'admin'")["count"] == 0
