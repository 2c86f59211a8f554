"""Migrating: forward only, once, checked against what was applied."""

import psycopg
import pytest

from shared.domain.states import UNFINISHED, Status
from shared.store.connection import Database
from shared.store.migrations import Migration, MigrationError, check, load, migrate
from tests.support.world import World


def test_an_empty_database_gets_every_migration_and_a_current_one_none(
    empty_database_url: str,
) -> None:
    database = Database(empty_database_url)
    assert migrate(database) == [f"{each.version:04}_{each.name}" for each in load()]
    assert migrate(database) == []
    database.close()


def test_versions_are_numbered_without_a_gap() -> None:
    assert [each.version for each in load()] == list(range(1, len(load()) + 1))


def test_a_database_that_is_ahead_is_refused(world: World) -> None:
    world.sql(
        "insert into leasehook.migrations (version, name, checksum) values (9999, 'later', 'x')"
    )
    with pytest.raises(MigrationError, match=r"9999.*deploy the newer code"):
        migrate(world.database)


def test_a_changed_migration_is_refused(world: World) -> None:
    world.sql("update leasehook.migrations set checksum = 'x' where version = 1")
    with pytest.raises(MigrationError, match="0001 was applied with another text"):
        migrate(world.database)


def test_a_history_that_the_files_continue_is_fine() -> None:
    known = [Migration(1, "one", "select 1"), Migration(2, "two", "select 2")]
    check({1: known[0].checksum}, known)


def test_a_failing_migration_leaves_nothing(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(empty_database_url)
    broken = [Migration(1, "half", "create table leasehook.half (); select 1 / 0;")]
    monkeypatch.setattr("shared.store.migrations.load", lambda: broken)
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(database)
    with database.connection() as connection:
        row = connection.execute("select to_regnamespace('leasehook') as schema").fetchone()
    assert row == {"schema": None}
    database.close()


def test_the_states_of_the_code_are_the_states_of_the_database(world: World) -> None:
    rows = world.sql("select unnest(enum_range(null::leasehook.delivery_status))::text as status")
    assert [row["status"] for row in rows] == [status.value for status in Status]
    constraint = world.one(
        "select pg_get_constraintdef(oid) as text from pg_constraint "
        "where conname = 'deliveries_claimable_iff_unfinished'"
    )
    assert all((f"'{status}'" in constraint["text"]) == (status in UNFINISHED) for status in Status)


def test_every_foreign_key_has_an_index_for_its_deletes(world: World) -> None:
    """WH-059. The tenant's and the endpoint's rows are never deleted while anything refers to them."""
    rows = world.sql(
        """
        select c.conrelid::regclass::text as table_name, c.conname
        from pg_constraint as c
        where c.contype = 'f'
            and c.connamespace = 'leasehook'::regnamespace
            and c.confrelid in ('leasehook.events'::regclass, 'leasehook.deliveries'::regclass)
            and not exists (
                select 1
                from pg_index as i
                where i.indrelid = c.conrelid
                    and i.indpred is null
                    and i.indkey[0] = c.conkey[cardinality(c.conkey)]
            )
        """
    )
    assert rows == []
