"""Row-level security: the second wall behind every query that names its tenant."""

import psycopg
import pytest

from shared.store.tenancy import ensure_tenant
from tests.support.world import World

TENANT_TABLES = [
    "api_keys",
    "attempts",
    "circuits",
    "consumers",
    "deliveries",
    "endpoint_secrets",
    "endpoints",
    "event_types",
    "events",
    "idempotency_keys",
    "received",
    "replay_jobs",
    "replay_requests",
    "source_refusals",
    "source_secrets",
    "sources",
]


def test_every_table_with_a_tenant_is_walled(world: World) -> None:
    rows = world.sql(
        """
        select c.relname as name, c.relrowsecurity as walled
        from pg_class as c
        where c.relnamespace = 'leasehook'::regnamespace
            and c.relkind = 'r'
            and exists (select 1 from pg_attribute as a where a.attrelid = c.oid and a.attname = 'tenant_id')
        order by c.relname
        """
    )
    assert [row["name"] for row in rows] == TENANT_TABLES
    assert all(row["walled"] for row in rows)


def test_a_query_that_forgets_its_tenant_sees_that_tenants_rows_only(world: World) -> None:
    other = ensure_tenant(world.database, "other")
    for tenant_id in (world.tenant_id, other):
        world.key(tenant_id=tenant_id)
        world.endpoint(tenant_id=tenant_id, consumer="acme")
        world.publish(tenant_id=tenant_id, consumer="acme", idempotency_key="k")
    world.settle(*[world.report(each) for each in world.claim().claimed])
    for table in [
        "api_keys",
        "consumers",
        "endpoints",
        "circuits",
        "endpoint_secrets",
        "events",
        "deliveries",
        "attempts",
    ]:
        with world.database.as_tenant(other) as connection:
            rows = connection.execute(
                f"select tenant_id from leasehook.{table}".encode()
            ).fetchall()
        assert [row["tenant_id"] for row in rows] == [other], table
    with world.database.as_tenant(other) as connection:
        rows = connection.execute("select id from leasehook.tenants").fetchall()
    assert [row["id"] for row in rows] == [other]


def test_another_tenants_rows_can_neither_be_changed_nor_made(world: World) -> None:
    other = ensure_tenant(world.database, "other")
    world.endpoint()
    with world.database.as_tenant(other) as connection:
        assert connection.execute("update leasehook.endpoints set description = 'x'").rowcount == 0
    with (
        pytest.raises(psycopg.errors.InsufficientPrivilege),
        world.database.as_tenant(other) as connection,
    ):
        connection.execute(
            "insert into leasehook.consumers (tenant_id, id) values (%s, 'x')", [world.tenant_id]
        )


def test_the_confinement_ends_with_its_transaction(world: World) -> None:
    world.endpoint()
    with world.database.as_tenant(ensure_tenant(world.database, "other")):
        pass
    assert len(world.sql("select 1 from leasehook.endpoints")) == 1
