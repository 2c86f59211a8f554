"""Claiming: who gets what, and that nobody gets too much."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest

from shared.store import queue
from tests.support.world import World


def test_a_claim_takes_what_is_due_and_returns_all_that_sending_needs(world: World) -> None:
    endpoint = world.endpoint(
        "https://example.com/hook", headers={"x-token": "t"}, timeout_seconds=7
    )
    published = world.publish(b'{"n": 1.10}')

    [claimed] = world.claim().claimed

    assert claimed.event_id == published.event_id
    assert claimed.endpoint_id == endpoint["id"]
    assert claimed.payload == b'{"n": 1.10}'
    assert claimed.content_type == "application/json"
    assert claimed.url == "https://example.com/hook"
    assert claimed.timeout_seconds == 7
    assert claimed.attempt_count == 1
    assert [
        world.sealer.open(sealed, endpoint["id"].bytes).decode()
        for sealed in claimed.secrets_sealed
    ] == [endpoint["secret"]]
    assert claimed.headers_sealed is not None
    row = world.row(claimed.delivery_id)
    assert row["status"] == "in_progress"
    assert (row["claimable_at"] - row["claimed_at"]).total_seconds() == 60


def test_a_row_that_is_not_due_yet_or_claimed_is_left_alone(world: World) -> None:
    world.endpoint()
    world.publish()
    world.publish(deliver_at=world.now().replace(year=world.now().year + 1))

    assert len(world.claim().claimed) == 1
    assert world.claim().claimed == []


def test_a_lapsed_lease_is_simply_due_again_under_a_new_token(world: World) -> None:
    world.endpoint()
    world.publish()
    [first] = world.claim().claimed
    token = world.row(first.delivery_id)["lease_token"]

    world.pass_time(59)
    assert world.claim().claimed == []
    world.pass_time(2)
    [second] = world.claim().claimed

    assert second.delivery_id == first.delivery_id
    assert second.attempt_count == 2
    assert world.row(first.delivery_id)["lease_token"] != token


def test_a_fresh_lease_is_measured_from_the_statement_not_from_its_transaction(
    world: World,
) -> None:
    """WH-054: now() stands still inside a transaction."""
    world.endpoint()
    world.publish()
    with world.database.transaction() as connection:
        connection.execute("select pg_sleep(0.3)")
        request = queue.ClaimRequest(uuid4(), 10, 60.0, queue.START, 100, 100, [], [], 15, 100.0)
        [claimed] = queue.claim(connection, request).claimed
        left = connection.execute(
            "select extract(epoch from claimable_at - clock_timestamp()) as seconds from leasehook.deliveries"
        ).fetchone()
    assert left is not None
    assert left["seconds"] > 59.8
    assert claimed.attempt_count == 1


def test_concurrent_claims_share_the_queue_without_overlap(world: World) -> None:
    for _ in range(7):
        world.endpoint()
    world.publish_many(100)
    start = threading.Barrier(6)

    def take() -> list[UUID]:
        start.wait()
        taken: list[UUID] = []
        while harvest := world.claim(limit=37).claimed:
            taken += [claimed.delivery_id for claimed in harvest]
        return taken

    with ThreadPoolExecutor(6) as pool:
        shares = [future.result() for future in [pool.submit(take) for _ in range(6)]]

    everything = [delivery_id for share in shares for delivery_id in share]
    assert len(everything) == len(set(everything)) == 700


@pytest.mark.parametrize(
    "setting",
    [
        "hashjoin",
        "mergejoin",
        "hashagg",
        "sort",
        "nestloop",
        "indexscan",
        "tidscan",
        "bitmapscan",
        "material",
    ],
)
def test_a_claim_never_takes_more_than_its_limit_under_any_plan(world: World, setting: str) -> None:
    """WH-047: statistics that say almost nothing is pending, and plans that go wrong with them."""
    world.endpoint()
    world.publish_many(500)
    world.sql(
        "update leasehook.deliveries set status = 'succeeded', claimable_at = null, finished_at = now()"
    )
    world.sql("alter table leasehook.deliveries set (autovacuum_enabled = off)")
    world.sql("analyze leasehook.deliveries")
    world.publish_many(300)
    with world.database.connection() as connection:
        connection.execute(f"set enable_{setting} = off".encode())
        request = queue.ClaimRequest(uuid4(), 5, 60.0, queue.START, 100, 100, [], [], 15, 100.0)
        harvest = queue.claim(connection, request)
        connection.execute(f"reset enable_{setting}".encode())

    assert len(harvest.claimed) == 5
    assert world.statuses() == {"succeeded": 500, "in_progress": 5, "pending": 295}


def test_a_huge_backlog_starves_nobody_and_a_lone_endpoint_fills_the_batch(world: World) -> None:
    """WH-095."""
    big = world.endpoint(event_types=["big"])["id"]
    world.sql(
        "select leasehook.publish(%s, 'big', '{}'::json) from generate_series(1, 1000)",
        world.tenant_id,
    )
    assert Counter(c.endpoint_id for c in world.claim(limit=100).claimed) == {big: 100}

    small = [world.endpoint(event_types=["small"])["id"] for _ in range(9)]
    world.publish(event_type="small")
    shares = Counter(c.endpoint_id for c in world.claim(limit=100).claimed)

    assert all(shares[endpoint_id] == 1 for endpoint_id in small)
    assert shares[big] == 10
    assert len(world.claim(limit=100).claimed) == 100


def test_with_more_endpoints_than_slots_the_walk_goes_on_where_it_stopped(world: World) -> None:
    endpoints = {world.endpoint()["id"] for _ in range(10)}
    world.publish()
    world.publish()
    first = world.claim(limit=4).claimed
    second = world.claim(limit=4, after=max(c.endpoint_id for c in first)).claimed
    third = world.claim(limit=4, after=max(c.endpoint_id for c in second)).claimed

    seen = [c.endpoint_id for c in first + second + third]
    assert set(seen) == endpoints
    assert len(first) == len(second) == 4
    assert len(third) == 4, "the share grows when few endpoints are left"


def test_a_bounded_walk_says_where_it_stopped(world: World) -> None:
    ids = sorted(world.endpoint()["id"] for _ in range(5))
    world.publish()
    harvest = world.claim(visit_limit=2)
    assert {c.endpoint_id for c in harvest.claimed} == set(ids[:2])
    assert harvest.swept_to == ids[1]

    rest = world.claim(after=ids[1])
    assert {c.endpoint_id for c in rest.claimed} == set(ids[2:])
    assert rest.swept_to is None


def test_a_higher_priority_goes_first_within_an_endpoint(world: World) -> None:
    world.endpoint()
    order = [world.publish(priority=priority).event_id for priority in (0, -5, 10, 0, 100)]

    taken = [world.claim(limit=1).claimed[0].event_id for _ in order]

    assert taken == [order[4], order[2], order[0], order[3], order[1]]


def test_due_rows_of_a_low_priority_are_found_behind_waiting_rows_of_a_high_one(
    world: World,
) -> None:
    world.endpoint()
    world.publish(priority=10, deliver_at=world.now().replace(year=world.now().year + 1))
    low = world.publish(priority=-10)

    assert [c.event_id for c in world.claim().claimed] == [low.event_id]


def test_rows_of_a_disabled_deleted_or_held_endpoint_are_passed_over_untouched(
    world: World,
) -> None:
    """WH-101, WH-102: parked rows burn no attempts."""
    disabled, deleted, held, healthy = (world.endpoint()["id"] for _ in range(4))
    world.publish()
    world.sql(
        "update leasehook.endpoints set disabled_at = now(), disabled_reason = 'operator' where id = %s",
        disabled,
    )
    world.sql("update leasehook.endpoints set deleted_at = now() where id = %s", deleted)
    world.sql(
        "update leasehook.circuits set held_until = now() + interval '1 minute' where endpoint_id = %s",
        held,
    )
    before = world.sql(
        "select ctid, * from leasehook.deliveries where endpoint_id <> %s order by id", healthy
    )

    assert [c.endpoint_id for c in world.claim().claimed] == [healthy]
    assert before == world.sql(
        "select ctid, * from leasehook.deliveries where endpoint_id <> %s order by id", healthy
    )

    world.sql("update leasehook.endpoints set disabled_at = null, disabled_reason = null")
    assert [c.endpoint_id for c in world.claim().claimed] == [disabled]


def test_endpoints_whose_attempts_would_outlast_the_invocation_are_left_alone(world: World) -> None:
    quick = world.endpoint(timeout_seconds=3)["id"]
    world.endpoint(timeout_seconds=20)
    world.endpoint()
    world.publish()
    assert [c.endpoint_id for c in world.claim(remaining_seconds=10.0).claimed] == [quick]


def test_busy_endpoints_get_no_more_than_the_room_they_have(world: World) -> None:
    full, busy, free = (world.endpoint()["id"] for _ in range(3))
    world.publish_many(50)
    harvest = world.claim(
        limit=90, endpoint_limit=10, busy_endpoint_ids=[full, busy], busy_endpoint_room=[0, 4]
    )
    assert Counter(c.endpoint_id for c in harvest.claimed) == {busy: 4, free: 10}


def test_the_in_flight_limit_holds_over_all_drains(world: World) -> None:
    """WH-034: concurrent claims of one endpoint, again and again, never exceed its limit together."""
    endpoint_id = world.endpoint(max_in_flight=5)["id"]
    world.publish_many(200)
    peaks = []
    start = threading.Barrier(4)

    def work() -> int:
        start.wait()
        done = 0
        for _ in range(25):
            claimed = world.claim(limit=50).claimed
            peaks.append(
                world.one(
                    "select count(*) as n from leasehook.deliveries where status = 'in_progress'"
                )["n"]
            )
            if claimed:
                done += world.settle(*[world.report(each) for each in claimed]).settled_count
        return done

    with ThreadPoolExecutor(4) as pool:
        done = sum(future.result() for future in [pool.submit(work) for _ in range(4)])

    assert max(peaks) == 5
    assert done >= 25
    assert world.circuit(endpoint_id)["state"] == "closed"


def test_a_lapsed_row_does_not_count_as_in_flight(world: World) -> None:
    world.endpoint(max_in_flight=2)
    world.publish_many(5)
    assert len(world.claim().claimed) == 2
    assert world.claim().claimed == []
    world.pass_time(61)
    assert len(world.claim().claimed) == 2


def test_the_rate_limit_holds_over_time_and_over_all_drains(world: World) -> None:
    endpoint_id = world.endpoint(rate_per_second=20)["id"]
    world.publish_many(300)
    with ThreadPoolExecutor(4) as pool:
        at_once = [len(f.result().claimed) for f in [pool.submit(world.claim) for _ in range(4)]]
    assert 10 <= sum(at_once) <= 12, "half a second's worth has been saved up"

    shares = []
    for _ in range(20):
        world.pass_time(0.25, {"circuits": ["paced_until"]})
        shares.append(len(world.claim().claimed))
    assert 95 <= sum(shares) <= 105, "20 a second over five seconds"
    assert world.circuit(endpoint_id)["claim_count"] > 0


def test_an_open_circuit_blocks_and_a_half_open_one_lets_exactly_one_probe_through(
    world: World,
) -> None:
    """WH-099: over all concurrent drains; the others stay pending, unclaimed and uncharged."""
    endpoint_id = world.endpoint()["id"]
    world.publish_many(1000)
    world.sql(
        "update leasehook.circuits set state = 'open', claimable_at = now() + interval '1 minute'"
    )
    assert world.claim().claimed == []

    world.pass_time(61)
    start = threading.Barrier(4)

    def race() -> int:
        start.wait()
        return sum(len(world.claim().claimed) for _ in range(5))

    with ThreadPoolExecutor(4) as pool:
        taken = [future.result() for future in [pool.submit(race) for _ in range(4)]]

    assert sum(taken) == 1
    assert world.circuit(endpoint_id)["state"] == "half_open"
    assert world.one("select sum(attempt_count) as n from leasehook.deliveries")["n"] == 1


def test_a_probe_that_never_reports_is_followed_by_another(world: World) -> None:
    """WH-098 (a)."""
    endpoint_id = world.endpoint()["id"]
    world.publish_many(3)
    world.sql("update leasehook.circuits set state = 'open', claimable_at = now()")
    assert len(world.claim().claimed) == 1
    assert world.claim().claimed == []
    world.pass_time(61)
    assert len(world.claim().claimed) == 1
    assert world.circuit(endpoint_id)["state"] == "half_open"


def test_after_a_recovery_the_number_in_flight_doubles_every_second(world: World) -> None:
    world.endpoint()
    world.publish_many(100)
    world.sql("update leasehook.circuits set recovered_at = now()")
    sizes = []
    for _ in range(4):
        sizes.append(len(world.claim().claimed))
        world.pass_time(1, {"circuits": ["recovered_at"]})
    assert sizes == [1, 1, 2, 4], "what is in flight counts: 1, 2, 4, 8 together"
    world.pass_time(10, {"circuits": ["recovered_at"]})
    assert len(world.claim().claimed) == 92


def test_two_live_secrets_are_returned_newest_first_and_expired_ones_not(world: World) -> None:
    endpoint = world.endpoint()
    for text, expires in (("new", "null"), ("gone", "now() - interval '1 second'")):
        world.sql(
            f"insert into leasehook.endpoint_secrets (tenant_id, endpoint_id, sealed, expires_at) "
            f"values (%s, %s, %s, {expires})",
            world.tenant_id,
            endpoint["id"],
            world.sealer.seal(text.encode(), endpoint["id"].bytes),
        )
    world.publish()
    [claimed] = world.claim().claimed
    opened = [
        world.sealer.open(sealed, endpoint["id"].bytes).decode()
        for sealed in claimed.secrets_sealed
    ]
    assert opened == ["new", endpoint["secret"]]
