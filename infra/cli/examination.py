"""How `leasehook doctor` comes by its facts. Every look is bounded, or costs no more than what is unfinished."""

from collections.abc import Callable, Iterator
from typing import LiteralString
from uuid import uuid4

from infra.cli import diagnosis
from infra.cli.diagnosis import Check, Pulse, Secrets, Storage, Verdict, Wall
from shared.crypto import KeyMissing, Sealer, Unsealable
from shared.errors import ConfigurationError, DatabaseUnavailable, SchemaOutdated
from shared.maintenance import queue_health
from shared.runtime import Runtime
from shared.store.connection import Database, Row
from shared.store.migrations import MigrationError, check, load

_SECRETS_TRIED = 1000

_SERVER = "select current_setting('server_version_num')::integer as version"
_HAS_HISTORY = "select to_regclass('leasehook.migrations') is not null as found"
_HISTORY = "select version, checksum from leasehook.migrations"
_WALL = """
select
    to_regrole('leasehook_tenant') is not null as role_exists,
    coalesce(pg_has_role(to_regrole('leasehook_tenant'), 'member'), false) as is_member,
    array(
        select c.relname::text
        from pg_class as c
        inner join pg_attribute as a on c.oid = a.attrelid
        where c.relnamespace = 'leasehook'::regnamespace
            and c.relkind in ('r', 'p')
            and a.attname = 'tenant_id'
            and not c.relrowsecurity
        order by c.relname
    ) as unguarded
"""
_SEES_OTHERS = "select exists (select from leasehook.tenants) as found"
_SEALED = """
(
    select s.endpoint_id as owner_id, s.sealed
    from leasehook.endpoint_secrets as s
    where octet_length(s.sealed) > 0
        and (s.expires_at is null or s.expires_at > statement_timestamp())
    order by s.id desc
    limit %(limit)s
)
union all
(
    select e.id, e.headers_sealed
    from leasehook.endpoints as e
    where octet_length(e.headers_sealed) > 0
    order by e.id desc
    limit %(limit)s
)
union all
(
    select s.source_id, s.sealed
    from leasehook.source_secrets as s
    where octet_length(s.sealed) > 0
        and (s.expires_at is null or s.expires_at > statement_timestamp())
    order by s.id desc
    limit %(limit)s
)
"""
_PULSE = """
select
    extract(epoch from statement_timestamp() - greatest(
        (
            select max(a.started_at)
            from leasehook.endpoints as e
            cross join lateral (
                select own.started_at
                from leasehook.attempts as own
                where own.endpoint_id = e.id
                order by own.started_at desc
                limit 1
            ) as a
        ),
        (select max(d.claimed_at) from leasehook.deliveries as d where d.status = 'in_progress')
    ))::float8 as drain_seconds,
    extract(epoch from statement_timestamp() - (select max(m.updated_at) from leasehook.maintenance as m))::float8
        as upkeep_seconds,
    extract(epoch from statement_timestamp() - (select min(g.applied_at) from leasehook.migrations as g))::float8
        as installed_seconds
"""


def examine(open_runtime: Callable[[], Runtime]) -> Iterator[Check]:
    """All checks in turn; one that leaves the following ones without ground is the last."""
    try:
        runtime = open_runtime()
    except ConfigurationError as error:
        yield Check("configuration", Verdict.FAIL, str(error))
        return
    yield diagnosis.judge_settings(runtime.settings)
    try:
        yield from _examine_database(runtime)
    except ConfigurationError as error:
        yield Check("configuration", Verdict.FAIL, str(error))
    except SchemaOutdated as error:
        yield Check("database", Verdict.FAIL, str(error))
    except DatabaseUnavailable as error:
        yield Check(
            "database",
            Verdict.FAIL,
            str(error),
            "check DATABASE_URL, and that its server runs and lets you in",
        )
    except Exception as error:
        if getattr(error, "sqlstate", None) is None:
            raise
        yield Check(
            "database",
            Verdict.FAIL,
            str(error).partition("\n")[0],
            "work as the user who ran `leasehook migrate`",
        )


def _examine_database(runtime: Runtime) -> Iterator[Check]:
    database = runtime.database
    yield diagnosis.judge_server(_row(database, _SERVER)["version"])
    migrations = _migrations(database)
    yield migrations
    if migrations.verdict is Verdict.FAIL:
        return
    yield _wall(database)
    if runtime.settings.secret_keys:
        yield diagnosis.judge_secrets(_secrets(database, runtime.sealer))
    health = queue_health(database)
    pulse = Pulse(**_row(database, _PULSE))
    yield diagnosis.judge_queue(health)
    yield diagnosis.judge_drain(pulse, health)
    yield diagnosis.judge_upkeep(pulse)
    storage = _storage(database)
    yield diagnosis.judge_transactions(storage)
    yield diagnosis.judge_bloat(storage)


def _migrations(database: Database) -> Check:
    known = load()
    applied = {}
    if _row(database, _HAS_HISTORY)["found"]:
        with database.connection() as connection:
            rows = connection.execute(_HISTORY).fetchall()
        applied = {row["version"]: row["checksum"] for row in rows}
    try:
        check(applied, known)
    except MigrationError as error:
        return Check("migrations", Verdict.FAIL, str(error), "run the program of that release")
    pending = [f"{each.version:04}_{each.name}" for each in known if each.version not in applied]
    return diagnosis.judge_migrations(pending, len(applied))


def _wall(database: Database) -> Check:
    verdict = diagnosis.judge_wall(Wall(**_row(database, _WALL)))
    if verdict.verdict is not Verdict.OK:
        return verdict
    with database.as_tenant(uuid4()) as connection:
        [seen] = connection.execute(_SEES_OTHERS).fetchall()
    if seen["found"]:
        return Check(
            verdict.name,
            Verdict.FAIL,
            "a tenant sees the rows of others",
            "see who owns leasehook_tenant's memberships and whether it has BYPASSRLS",
        )
    return verdict


def _secrets(database: Database, sealer: Sealer) -> Secrets:
    with database.connection() as connection:
        rows = connection.execute(_SEALED, {"limit": _SECRETS_TRIED}).fetchall()
    key_missing = damaged = 0
    for row in rows:
        try:
            sealer.open(row["sealed"], row["owner_id"].bytes)
        except KeyMissing:
            key_missing += 1
        except Unsealable:
            damaged += 1
    return Secrets(len(rows) - key_missing - damaged, key_missing, damaged)


def _storage(database: Database) -> Storage:
    [row] = database.fetch("database_health", {})
    return Storage(row["oldest_transaction_age_seconds"], row["dead_tuples"], row["live_tuples"])


def _row(database: Database, statement: LiteralString) -> Row:
    with database.connection() as connection:
        [row] = connection.execute(statement).fetchall()
    return row
