"""Settling: written under the lease, all or nothing, and what it does to the endpoint's circuit."""

from uuid import uuid4

import psycopg
import pytest

from shared.domain.circuit import CircuitPolicy
from shared.errors import StatementRefused
from shared.store.queue import Claimed
from tests.support.world import World

POLICY = CircuitPolicy(failures_to_open=3, cooldowns_seconds=(30, 60, 120))


def claim_one(world: World) -> Claimed:
    [claimed] = world.claim(limit=1).claimed
    return claimed


def test_success_finishes_the_delivery_and_records_the_attempt(world: World) -> None:
    world.endpoint()
    world.publish()
    claimed = claim_one(world)

    settlement = world.settle(
        world.report(claimed, status_code=200, duration_ms=1500, response="ok", truncated=True)
    )

    assert settlement.settled_count == 1
    row = world.row(claimed.delivery_id)
    assert row["status"] == "succeeded"
    assert row["claimable_at"] is None
    assert row["lease_token"] is None
    assert row["finished_at"] is not None
    assert row["last_status_code"] == 200
    attempt = world.one("select *, now() - started_at as age from leasehook.attempts")
    assert attempt["number"] == 1
    assert attempt["status_code"] == 200
    assert attempt["response"] == "ok"
    assert attempt["response_truncated"]
    assert not attempt["late"]
    assert 1.5 <= attempt["age"].total_seconds() < 5


def test_a_retry_waits_by_the_databases_clock(world: World) -> None:
    world.endpoint()
    world.publish()
    claimed = claim_one(world)
    world.settle(world.report(claimed, "retry", delay_seconds=40.0, error_kind="timeout"))

    row = world.row(claimed.delivery_id)
    assert row["status"] == "failed"
    assert row["last_error_kind"] == "timeout"
    assert 39 < (row["claimable_at"] - world.now()).total_seconds() <= 40
    world.pass_time(41)
    assert claim_one(world).attempt_count == 2


def test_burying_makes_a_dead_letter_with_its_reason(world: World) -> None:
    world.endpoint()
    world.publish()
    claimed = claim_one(world)
    world.settle(world.report(claimed, "bury", dead_reason="gone"))
    row = world.row(claimed.delivery_id)
    assert (row["status"], row["dead_reason"]) == ("dead", "gone")
    assert world.claim().claimed == []


@pytest.mark.parametrize(("earlier_failures", "expected"), [(0, "pending"), (1, "failed")])
def test_a_released_row_is_due_again_and_its_attempt_is_not_counted(
    world: World, earlier_failures: int, expected: str
) -> None:
    world.endpoint()
    world.publish()
    for _ in range(earlier_failures):
        world.settle(world.report(claim_one(world), "retry", delay_seconds=0.0))
    claimed = claim_one(world)
    world.settle(world.report(claimed, "release"))

    row = world.row(claimed.delivery_id)
    assert (row["status"], row["attempt_count"]) == (expected, earlier_failures)
    assert world.one("select count(*) as n from leasehook.attempts")["n"] == earlier_failures
    assert claim_one(world).delivery_id == claimed.delivery_id


@pytest.mark.parametrize("verb", ["succeed", "retry", "bury", "release"])
def test_a_worker_that_lost_its_lease_changes_nothing(world: World, verb: str) -> None:
    """WH-091: status, attempts, circuit and due time stay those of the worker that has the row now."""
    endpoint_id = world.endpoint()["id"]
    world.publish()
    stale = claim_one(world)
    stale_report = world.report(stale, verb)
    world.pass_time(61)
    current = claim_one(world)
    before = (world.row(stale.delivery_id), world.circuit(endpoint_id))

    settlement = world.settle(stale_report, policy=CircuitPolicy(failures_to_open=1))

    assert settlement.settled_count == 0
    assert settlement.late_delivery_ids == [stale.delivery_id]
    assert (world.row(stale.delivery_id), world.circuit(endpoint_id)) == before
    world.settle(world.report(current))
    assert world.row(stale.delivery_id)["status"] == "succeeded"
    numbers = world.sql("select number, late from leasehook.attempts order by number")
    assert [(row["number"], row["late"]) for row in numbers] == (
        [(2, False)] if verb == "release" else [(1, True), (2, False)]
    )


def test_a_late_result_counts_as_long_as_nobody_has_claimed_the_row_again(world: World) -> None:
    """WH-091, last case: one consistent outcome."""
    world.endpoint()
    world.publish()
    claimed = claim_one(world)
    world.pass_time(3600)
    assert world.settle(world.report(claimed)).settled_count == 1
    assert world.row(claimed.delivery_id)["status"] == "succeeded"


def test_settling_twice_is_harmless(world: World) -> None:
    world.endpoint()
    world.publish()
    claimed = claim_one(world)
    report = world.report(claimed, "retry")
    world.settle(report)
    before = world.row(claimed.delivery_id)
    again = world.settle(report)
    assert again.late_delivery_ids == [claimed.delivery_id]
    assert world.row(claimed.delivery_id) == before
    assert world.one("select count(*) as n from leasehook.attempts")["n"] == 1


def test_a_batch_is_written_whole_or_not_at_all(world: World) -> None:
    world.endpoint()
    world.publish_many(3)
    claimed = world.claim().claimed
    reports = [world.report(each) for each in claimed]
    bad = world.report(claimed[2], response="NUL \0 cannot be stored")
    with pytest.raises(StatementRefused):
        world.settle(*reports[:2], bad)
    assert world.statuses() == {"in_progress": 3}
    assert world.one("select count(*) as n from leasehook.attempts")["n"] == 0


def test_a_pruned_delivery_does_not_hinder_the_rest_of_its_batch(world: World) -> None:
    world.endpoint()
    world.publish_many(2)
    first, second = world.claim().claimed
    reports = [world.report(first), world.report(second)]
    world.sql("delete from leasehook.deliveries where id = %s", first.delivery_id)
    settlement = world.settle(*reports)
    assert settlement.settled_count == 1
    assert settlement.late_delivery_ids == [first.delivery_id]


def test_a_healthy_endpoints_success_writes_nothing_to_its_circuit(world: World) -> None:
    endpoint_id = world.endpoint()["id"]
    world.publish()
    place = "select ctid from leasehook.circuits where endpoint_id = %s"
    before = world.one(place, endpoint_id)
    world.settle(world.report(claim_one(world)))
    assert world.one(place, endpoint_id) == before


def test_consecutive_failures_open_the_circuit_and_it_is_said_once(world: World) -> None:
    endpoint_id = world.endpoint()["id"]
    world.publish_many(5)
    claimed = world.claim().claimed
    settlements = [world.settle(world.report(each, "retry"), policy=POLICY) for each in claimed]

    assert [len(s.opened_endpoint_ids) for s in settlements] == [0, 0, 1, 0, 0]
    circuit = world.circuit(endpoint_id)
    assert circuit["state"] == "open"
    assert circuit["consecutive_failures"] == 3, (
        "what was claimed before it opened says nothing more"
    )
    assert 29 < (circuit["claimable_at"] - world.now()).total_seconds() <= 30


@pytest.mark.parametrize("evidence", ["success", "rejection"])
def test_a_sign_of_life_starts_the_count_over(world: World, evidence: str) -> None:
    endpoint_id = world.endpoint()["id"]
    world.publish_many(5)
    a, b, c, d, e = world.claim().claimed
    world.settle(world.report(a, "retry"), world.report(b, "retry"), policy=POLICY)
    verb = "succeed" if evidence == "success" else "retry"
    world.settle(
        world.report(c, "retry"),
        world.report(d, verb, evidence=evidence),
        world.report(e, "retry"),
        policy=POLICY,
    )
    circuit = world.circuit(endpoint_id)
    assert (circuit["state"], circuit["consecutive_failures"]) == ("closed", 1)


def test_failures_of_one_batch_are_counted_each(world: World) -> None:
    endpoint_id = world.endpoint()["id"]
    world.publish_many(3)
    world.settle(*[world.report(each, "retry") for each in world.claim().claimed], policy=POLICY)
    assert world.circuit(endpoint_id)["state"] == "open"


@pytest.mark.parametrize(
    ("verb", "evidence", "state"),
    [
        ("succeed", "success", "closed"),
        ("retry", "rejection", "closed"),
        ("retry", "failure", "open"),
        ("bury", "none", "open"),
        ("release", "none", "open"),
    ],
)
def test_what_a_probe_says_moves_a_half_open_circuit(
    world: World, verb: str, evidence: str, state: str
) -> None:
    """WH-098 (b), (c), (d): it leaves half-open in every case."""
    endpoint_id = world.endpoint()["id"]
    world.publish_many(2)
    world.sql("update leasehook.circuits set state = 'open', open_count = 1, claimable_at = now()")
    probe = claim_one(world)
    assert world.circuit(endpoint_id)["state"] == "half_open"

    settlement = world.settle(world.report(probe, verb, evidence=evidence), policy=POLICY)

    circuit = world.circuit(endpoint_id)
    assert circuit["state"] == state
    assert settlement.closed_endpoint_ids == ([endpoint_id] if state == "closed" else [])
    if state == "closed":
        assert circuit["open_count"] == 0
        assert circuit["recovered_at"] is not None
    elif evidence == "failure":
        assert circuit["open_count"] == 2
        assert 59 < (circuit["claimable_at"] - world.now()).total_seconds() <= 60
    else:
        assert circuit["open_count"] == 1
        assert len(world.claim().claimed) == 1, (
            "a probe that says nothing makes room for the next one"
        )


def test_cool_downs_grow_to_the_last_one_and_stay_there(world: World) -> None:
    endpoint_id = world.endpoint()["id"]
    world.publish_many(10)
    world.settle(
        *[world.report(each, "retry") for each in world.claim(limit=3).claimed], policy=POLICY
    )
    waits = []
    for _ in range(4):
        waits.append(
            round((world.circuit(endpoint_id)["claimable_at"] - world.now()).total_seconds())
        )
        world.pass_time(200)
        world.settle(world.report(claim_one(world), "retry"), policy=POLICY)
    assert waits == [30, 60, 120, 120]


def test_results_from_before_the_circuit_changed_do_not_move_it(world: World) -> None:
    """WH-103: a late failure of the old URL does not open the circuit of the new one."""
    endpoint_id = world.endpoint()["id"]
    world.publish_many(4)
    old = world.claim(limit=3).claimed
    world.sql("update leasehook.circuits set changed_at = clock_timestamp()")
    world.settle(*[world.report(each, "retry") for each in old], policy=POLICY)
    assert world.circuit(endpoint_id)["state"] == "closed"
    assert world.circuit(endpoint_id)["consecutive_failures"] == 0
    assert world.statuses() == {"failed": 3, "pending": 1}


def test_a_hold_keeps_the_whole_endpoint_back_until_it_ends(world: World) -> None:
    world.endpoint()
    world.publish_many(5)
    first = claim_one(world)
    world.settle(world.report(first, "retry", evidence="rejection", hold_seconds=20.0))
    assert world.claim().claimed == []
    world.pass_time(21)
    assert len(world.claim().claimed) == 4


def test_gone_disables_the_endpoint_once_and_parks_the_rest(world: World) -> None:
    """WH-086."""
    endpoint_id = world.endpoint()["id"]
    other = world.endpoint()["id"]
    world.publish_many(3)
    first, second = (c for c in world.claim(limit=4).claimed if c.endpoint_id == endpoint_id)
    fields = {"dead_reason": "gone", "gone": True, "evidence": "rejection"}
    one = world.settle(world.report(first, "bury", **fields))
    two = world.settle(world.report(second, "bury", **fields))

    assert one.disabled_endpoint_ids == [endpoint_id]
    assert two.disabled_endpoint_ids == []
    row = world.one("select disabled_reason from leasehook.endpoints where id = %s", endpoint_id)
    assert row["disabled_reason"] == "gone"
    assert {c.endpoint_id for c in world.claim().claimed} == {other}


def test_a_410_from_before_the_url_was_set_disables_nothing(world: World) -> None:
    world.endpoint()
    world.publish()
    claimed = claim_one(world)
    world.sql("update leasehook.endpoints set url_set_at = clock_timestamp()")
    settlement = world.settle(world.report(claimed, "bury", dead_reason="gone", gone=True))
    assert settlement.disabled_endpoint_ids == []


def test_failing_since_marks_the_first_failure_and_a_success_clears_it(world: World) -> None:
    endpoint_id = world.endpoint()["id"]
    world.publish_many(4)
    a, b, c, d = world.claim().claimed
    world.settle(world.report(a, "retry"))
    since = world.circuit(endpoint_id)["failing_since"]
    assert since is not None
    world.settle(world.report(b, "retry", evidence="rejection"))
    assert world.circuit(endpoint_id)["failing_since"] == since
    world.settle(world.report(c))
    assert world.circuit(endpoint_id)["failing_since"] is None
    world.settle(world.report(d))
    assert world.circuit(endpoint_id)["failing_since"] is None


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("status = 'in_progress'", "deliveries_lease_iff_in_progress"),
        ("lease_token = gen_random_uuid()", "deliveries_lease_iff_in_progress"),
        ("claimed_at = now()", "deliveries_lease_iff_in_progress"),
        ("status = 'succeeded'", "deliveries_claimable_iff_unfinished"),
        ("claimable_at = null", "deliveries_claimable_iff_unfinished"),
        ("claimable_at = 'infinity'", "deliveries_instants_finite"),
        ("finished_at = now()", "deliveries_finished_iff_terminal"),
        ("dead_reason = 'gone'", "deliveries_dead_has_reason"),
        ("attempt_base = 1", "deliveries_attempts_ordered"),
        (
            "status = 'in_progress', lease_token = gen_random_uuid(), claimed_at = now(), "
            "claimable_at = now() + interval '2 hours'",
            "deliveries_lease_is_short",
        ),
    ],
)
def test_the_database_forbids_half_states(world: World, change: str, constraint: str) -> None:
    """WH-094."""
    world.endpoint()
    world.publish()
    with pytest.raises(psycopg.errors.CheckViolation) as refused:
        world.sql(f"update leasehook.deliveries set {change}")
    assert refused.value.diag.constraint_name == constraint


def test_an_unknown_token_settles_nothing(world: World) -> None:
    world.endpoint()
    world.publish()
    claimed = claim_one(world)
    assert world.settle(world.report(claimed, lease_token=uuid4())).settled_count == 0
    assert world.row(claimed.delivery_id)["status"] == "in_progress"
