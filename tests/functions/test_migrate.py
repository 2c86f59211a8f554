"""Migrate: any number of runs, at any time, end with the current schema and the data as it was."""

import pytest

from shared.store.connection import Database
from shared.store.migrations import MigrationError, load
from tests.support.lambdas import Lambdas, in_step
from tests.support.world import World

NAMES = [f"{migration.version:04}_{migration.name}" for migration in load()]


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
