"""Publishing: one implementation, in the caller's transaction, exactly once per idempotency key."""

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.crypto import hash_api_key
from shared.domain.matching import filters_matching
from shared.errors import Conflict, Forbidden, Unauthorized
from shared.store.publishing import NewEvent, Published, publish, publish_batch
from tests.support.world import World

EVENT = NewEvent("order.paid", b'{"n": 1}', "application/json")


def test_an_event_reaches_the_endpoints_whose_filter_lets_it_through(world: World) -> None:
    matching = {
        world.endpoint(event_types=filters)["id"]
        for filters in (["*"], ["order.*"], ["order.paid"], ["other", "order.paid"])
    }
    for filters in (["order"], ["order.paid.*"], ["paid.*"], ["orders.*"]):
        world.endpoint(event_types=filters)
    published = world.publish(event_type="order.paid")
    rows = world.sql("select endpoint_id from leasehook.deliveries")
    assert {row["endpoint_id"] for row in rows} == matching
    assert published.delivery_count == len(matching)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,5}", fullmatch=True), min_size=1, max_size=6))
def test_filters_are_the_same_in_sql_and_in_python(world: World, segments: list[str]) -> None:
    event_type = ".".join(segments)
    row = world.one("select leasehook.filters_matching(%s) as filters", event_type)
    assert set(row["filters"]) == set(filters_matching(event_type))


def test_an_event_for_a_consumer_reaches_that_consumers_endpoints_only(world: World) -> None:
    acme = world.endpoint(consumer="acme")["id"]
    nobody = world.endpoint()["id"]
    world.endpoint(consumer="other")
    for_acme = world.publish(consumer="acme")
    for_nobody = world.publish()
    rows = world.sql("select event_id, endpoint_id from leasehook.deliveries")
    assert {(row["event_id"], row["endpoint_id"]) for row in rows} == {
        (for_acme.event_id, acme),
        (for_nobody.event_id, nobody),
    }
    assert world.publish(consumer="unheard-of").delivery_count == 0


def test_fan_out_never_crosses_tenants(world: World) -> None:
    """WH-121."""
    from shared.store.tenancy import ensure_tenant

    other = ensure_tenant(world.database, "other")
    mine = world.endpoint()["id"]
    theirs = world.endpoint(tenant_id=other)["id"]
    event_id = world.publish().event_id
    rows = world.sql("select endpoint_id from leasehook.deliveries")
    assert [row["endpoint_id"] for row in rows] == [mine]
    for tenant_id in (world.tenant_id, other):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            world.sql(
                "insert into leasehook.deliveries (tenant_id, event_id, endpoint_id, claimable_at) "
                "values (%s, %s, %s, now())",
                tenant_id,
                event_id,
                theirs,
            )


def test_a_payload_is_stored_once_however_many_endpoints_it_goes_to(world: World) -> None:
    """WH-030."""
    for _ in range(50):
        world.endpoint()
    assert world.publish(secrets.token_bytes(100_000)).delivery_count == 50
    sizes = world.sql(
        "select sum(pg_total_relation_size('leasehook.' || name)) as bytes "
        "from unnest(array['events', 'deliveries']) as name"
    )
    assert sizes[0]["bytes"] < 600_000


def test_deliver_at_is_when_it_becomes_due_and_never_the_past(world: World) -> None:
    world.endpoint()
    later = datetime.now(UTC) + timedelta(hours=1)
    world.publish(deliver_at=later)
    world.publish(deliver_at=datetime(2001, 1, 1, tzinfo=UTC))
    due = [
        row["claimable_at"]
        for row in world.sql("select claimable_at from leasehook.deliveries order by id")
    ]
    assert due[0] == later
    assert abs((due[1] - world.now()).total_seconds()) < 5


def test_a_repeated_key_with_the_same_event_answers_the_first_result(world: World) -> None:
    world.endpoint()
    first = world.publish(idempotency_key="k")
    again = world.publish(idempotency_key="k")
    assert again == Published(first.event_id, first.tenant_id, 1, repeated=True)
    assert world.statuses() == {"pending": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b"{ }"},
        {"event_type": "order.sent"},
        {"consumer": "acme"},
        {"priority": 1},
        {"deliver_at": datetime(2001, 1, 1, tzinfo=UTC)},
        {"content_type": "text/plain"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_same_key_for_another_event_is_a_conflict(
    world: World, change: dict[str, object]
) -> None:
    """WH-107: white space counts, because the bytes do."""
    world.publish(idempotency_key="k")
    with pytest.raises(Conflict, match="was used for another event"):
        world.publish(**({"idempotency_key": "k"} | change))  # type: ignore[arg-type]
    assert world.one("select count(*) as n from leasehook.events")["n"] == 1


def test_keys_are_per_tenant_and_work_again_after_they_are_pruned(world: World) -> None:
    from shared.store.tenancy import ensure_tenant

    first = world.publish(idempotency_key="k")
    other = world.publish(
        b"[]", tenant_id=ensure_tenant(world.database, "other"), idempotency_key="k"
    )
    assert other.event_id != first.event_id
    world.sql("delete from leasehook.idempotency_keys")
    assert not world.publish(b"[]", idempotency_key="k").repeated


def test_one_key_at_the_same_moment_is_one_event_for_everybody(world: World) -> None:
    """WH-106."""
    world.endpoint()
    start = threading.Barrier(12)

    def publish_at_once(round_number: int) -> Published:
        start.wait()
        return world.publish(idempotency_key=f"round-{round_number}")

    with ThreadPoolExecutor(12) as pool:
        for round_number in range(20):
            results = list(pool.map(publish_at_once, [round_number] * 12))
            assert len({result.event_id for result in results}) == 1
            assert sum(not result.repeated for result in results) == 1
            assert {result.delivery_count for result in results} == {1}
    assert world.statuses() == {"pending": 20}


@pytest.mark.parametrize("commits", [True, False])
def test_a_second_publish_waits_for_what_becomes_of_the_first(world: World, commits: bool) -> None:
    """WH-106: when the winner rolls back, the loser stores it."""
    world.endpoint()
    with ThreadPoolExecutor(1) as pool:
        with psycopg.connect(**world.database._parameters) as winner:
            first = winner.execute(
                "select event_id from leasehook.publish(%s, 'order.paid', '{}'::json, idempotency_key => 'k')",
                [world.tenant_id],
            ).fetchone()
            assert first is not None
            waiting = pool.submit(world.publish, idempotency_key="k")
            world.until_somebody_waits_for_a_lock()
            winner.commit() if commits else winner.rollback()
        result = waiting.result(5)
    assert result.repeated is commits
    assert (result.event_id == first[0]) is commits
    assert world.statuses() == {"pending": 1}


def test_an_event_commits_and_rolls_back_with_its_callers_transaction(world: World) -> None:
    world.endpoint()
    with world.database.connection() as connection:
        for rolled_back in (True, False):
            with connection.transaction(force_rollback=rolled_back):
                connection.execute(
                    "select leasehook.publish(%s, 'order.paid', %s::json)",
                    [world.tenant_id, '{"a" : 1.10}'],
                )
    [claimed] = world.claim().claimed
    assert claimed.payload == b'{"a" : 1.10}'


def test_a_restricted_role_can_publish_and_nothing_else(world: World) -> None:
    world.endpoint()
    with world.database.connection() as connection, connection.transaction(force_rollback=True):
        connection.execute("create role app_under_test in role leasehook_publisher")
        connection.execute("set local role app_under_test")
        connection.execute(
            "select leasehook.publish(%s, 'order.paid', '{}'::json)", [world.tenant_id]
        )
        for statement in (
            "select * from leasehook.events",
            "insert into leasehook.tenants (name) values ('x')",
            "delete from leasehook.deliveries",
            "select key_hash from leasehook.api_keys",
            "select leasehook.uuid_v7()",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(statement.encode())


def test_a_publish_is_one_round_trip(world: World, tmp_path: Path) -> None:
    """Counted on the wire: the client asks the server to answer (Sync) once for key, event and deliveries."""
    world.endpoint()
    key_hash = hash_api_key(world.key())
    with (tmp_path / "wire").open("w+") as wire:
        with world.database.connection() as connection:
            connection.pgconn.trace(wire.fileno())
        publish(world.database, key_hash, EVENT)
        with world.database.connection() as connection:
            connection.pgconn.untrace()
        wire.seek(0)
        sent = [line.split("\t")[3] for line in wire.read().splitlines() if "\tF\t" in line]
    assert sent.count("Sync") == 1
    assert "Query" not in sent
    assert world.statuses() == {"pending": 1}


def test_a_key_that_is_unknown_revoked_or_lacks_the_scope_publishes_nothing(world: World) -> None:
    world.endpoint()
    reader, revoked = world.key(["read"]), world.key()
    world.sql(
        "update leasehook.api_keys set revoked_at = now() where key_hash = %s",
        hash_api_key(revoked),
    )
    for text, error in (("lh_unknown", Unauthorized), (revoked, Unauthorized), (reader, Forbidden)):
        with pytest.raises(error):
            publish(world.database, hash_api_key(text), EVENT)
        with pytest.raises(error):
            publish_batch(world.database, hash_api_key(text), [EVENT])
    assert world.one("select count(*) as n from leasehook.events")["n"] == 0


def test_a_batch_answers_in_its_order_and_is_stored_whole_or_not_at_all(world: World) -> None:
    world.endpoint()
    key_hash = hash_api_key(world.key())
    events = [
        NewEvent("a", b"1", "application/json", idempotency_key="z"),
        NewEvent("b", b"2", "application/json"),
        NewEvent("c", b"3", "application/json", idempotency_key="a"),
    ]
    results = publish_batch(world.database, key_hash, events)
    types = [
        world.one("select type from leasehook.events where id = %s", result.event_id)["type"]
        for result in results
    ]
    assert types == ["a", "b", "c"]

    again = publish_batch(
        world.database, key_hash, [events[2], NewEvent("d", b"4", "application/json")]
    )
    assert again[0] == Published(results[2].event_id, results[2].tenant_id, 1, repeated=True)
    with pytest.raises(Conflict):
        publish_batch(
            world.database,
            key_hash,
            [
                NewEvent("e", b"5", "application/json"),
                NewEvent("x", b"", "application/json", idempotency_key="z"),
            ],
        )
    assert world.one("select count(*) as n from leasehook.events")["n"] == 4


def test_batches_with_the_same_keys_in_another_order_do_not_deadlock(world: World) -> None:
    key_hash = hash_api_key(world.key())
    start = threading.Barrier(4)

    def batch(order: int) -> list[Published]:
        keys = [f"k{n}" for n in range(30)]
        events = [
            NewEvent("a", b"1", "application/json", idempotency_key=key)
            for key in keys[:: 1 - 2 * (order % 2)]
        ]
        start.wait()
        return publish_batch(world.database, key_hash, events)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(batch, range(4)))
    assert {frozenset(r.event_id for r in result) for result in results} == {
        frozenset(r.event_id for r in results[0])
    }


def test_publishing_races_with_deleting_an_endpoint_and_nobody_fails(world: World) -> None:
    """WH-016 (c): what comes too late is cancelled by maintenance."""
    from shared.config import Settings
    from shared.maintenance import maintain

    doomed, healthy = world.endpoint()["id"], world.endpoint()["id"]
    with ThreadPoolExecutor(2) as pool:
        publishing = pool.submit(lambda: [world.publish() for _ in range(100)])
        world.sql("update leasehook.endpoints set deleted_at = now() where id = %s", doomed)
        assert len(publishing.result()) == 100
    assert {claimed.endpoint_id for claimed in world.claim(limit=500).claimed} == {healthy}
    maintain(world.database, Settings(), lambda: False)
    left = world.sql(
        "select distinct status from leasehook.deliveries where endpoint_id = %s", doomed
    )
    assert [row["status"] for row in left] in ([], ["cancelled"])
