"""Deliveries over the API: lists that lose nothing, the timeline of one, replay and cancellation."""

import asyncio
from uuid import UUID, uuid4

import httpx
import pytest

from shared.domain.states import Status, Verb, sources
from tests.management.conftest import Api
from tests.support.world import World


def delivery_in(world: World, status: Status) -> UUID:
    """The id of a new delivery that has come to a state by the way that leads there."""
    published = world.publish(event_type="state.reached")
    row = world.one("select id from leasehook.deliveries where event_id = %s", published.event_id)
    delivery_id: UUID = row["id"]
    match status:
        case Status.PENDING:
            pass
        case Status.CANCELLED:
            world.sql(
                "update leasehook.deliveries set status = 'cancelled', claimable_at = null, finished_at = now() "
                "where id = %s",
                delivery_id,
            )
        case Status.IN_PROGRESS:
            world.claim()
        case Status.SUCCEEDED | Status.FAILED | Status.DEAD:
            verb = {"succeeded": "succeed", "failed": "retry", "dead": "bury"}[status]
            error = {} if verb == "succeed" else {"error_kind": "status", "status_code": 500}
            world.settle(*[world.report(each, verb, **error) for each in world.claim().claimed])
    assert world.row(delivery_id)["status"] == status
    return delivery_id


def ids(page: httpx.Response) -> list[str]:
    assert page.status_code == 200, page.text
    return [row["id"] for row in page.json()["data"]]


def all_ids(world: World, where: str = "true", order: str = "id desc") -> list[str]:
    rows = world.sql(f"select id from leasehook.deliveries where {where} order by {order}")
    return [str(row["id"]) for row in rows]


def test_a_delivery_is_listed_with_what_became_of_it(api: Api, world: World) -> None:
    endpoint = world.endpoint(consumer="acme")
    published = world.publish(event_type="order.paid", consumer="acme")
    [claimed] = world.claim().claimed
    world.settle(world.report(claimed, "bury", status_code=500, error_kind="status"))
    [row] = api.get("/v1/deliveries").json()["data"]
    assert row.pop("created_at") < row.pop("finished_at")
    assert row == {
        "id": str(claimed.delivery_id),
        "event_id": str(published.event_id),
        "endpoint_id": str(endpoint["id"]),
        "event_type": "order.paid",
        "consumer": "acme",
        "status": "dead",
        "parked": False,
        "attempt_count": 1,
        "claimable_at": None,
        "last_status_code": 500,
        "last_error_kind": "status",
        "dead_reason": "attempts_exhausted",
    }


def test_each_filter_lets_through_what_it_names(api: Api, world: World) -> None:
    plain, acme = world.endpoint(), world.endpoint(consumer="acme")
    dead = delivery_in(world, Status.DEAD)
    paid = world.publish(event_type="order.paid", consumer="acme")
    refunded = world.publish(event_type="order.item.refunded")
    orders = world.publish(event_type="orders.paid")

    def of(*events: UUID) -> list[str]:
        wanted = ", ".join(f"'{each}'" for each in events)
        return all_ids(world, f"event_id in ({wanted})")

    def listed(query: str) -> list[str]:
        return ids(api.get(f"/v1/deliveries?{query}"))

    assert listed("status=dead") == [str(dead)]
    assert listed("status=dead&consumer=acme") == []
    assert listed("status=succeeded") == []
    assert listed("error_kind=status") == [str(dead)]
    assert listed("error_kind=dns") == []
    assert listed("consumer=acme") == of(paid.event_id)
    assert listed("consumer=unknown") == []
    assert listed(f"endpoint_id={acme['id']}") == of(paid.event_id)
    assert listed(f"endpoint_id={plain['id']}&consumer=acme") == []
    assert listed(f"endpoint_id={plain['id']}&event_type=orders.paid") == of(orders.event_id)
    assert listed("event_type=order.paid") == of(paid.event_id)
    assert listed("event_type=order.*") == of(paid.event_id, refunded.event_id)
    assert listed("event_type=*") == all_ids(world)
    assert listed(f"event_id={refunded.event_id}") == of(refunded.event_id)
    assert listed(f"event_id={refunded.event_id}&status=dead") == []
    assert listed(f"event_id={refunded.event_id}&endpoint_id={acme['id']}") == []


def test_two_periods_that_meet_share_no_delivery_and_lose_none(api: Api, world: World) -> None:
    world.endpoint()
    for _ in range(5):
        world.publish()
    at = api.get("/v1/deliveries").json()["data"][2]["created_at"]
    for path in ("", "status=pending&", "event_type=order.paid&"):
        after = ids(api.get(f"/v1/deliveries?{path}created_after={at}"))
        before = ids(api.get(f"/v1/deliveries?{path}created_before={at}"))
        assert (len(after), len(before)) == (3, 2)
        assert after + before == all_ids(world)


@pytest.mark.parametrize("limit", [1, 7, 50])
@pytest.mark.parametrize(
    ("query", "where", "order"),
    [
        ("", "true", "id desc"),
        ("?status=dead", "status = 'dead'", "id desc"),
        ("?status=pending", "status = 'pending'", "id desc"),
        (
            "?consumer=acme",
            "endpoint_id in (select id from leasehook.endpoints where consumer = 'acme')",
            "id desc",
        ),
        ("?endpoint_id={endpoint}", "endpoint_id = '{endpoint}'", "id desc"),
        ("?event_id={event}", "event_id = '{event}'", "endpoint_id desc"),
    ],
)
def test_pages_neither_lose_nor_repeat_a_row_while_more_are_published(
    api: Api, world: World, *, query: str, where: str, order: str, limit: int
) -> None:
    """Also among the rows of one instant: each event is published to all endpoints in one transaction."""
    for _ in range(9):
        world.endpoint()
    acme = [world.endpoint(consumer="acme") for _ in range(9)]
    published = [world.publish(consumer=consumer) for consumer in (None, "acme", None, "acme")]
    world.settle(*[world.report(each, "bury") for each in world.claim(limit=30).claimed])
    places = {"endpoint": acme[-1]["id"], "event": published[-1].event_id}
    there_at_first = all_ids(world, where.format(**places), order)
    path = f"/v1/deliveries{query.format(**places)}"
    seen: list[str] = []
    cursor = ""
    while True:
        joint = "&" if "?" in path else "?"
        page = api.get(f"{path}{joint}limit={limit}{cursor}").json()
        assert len(page["data"]) <= limit
        seen += [row["id"] for row in page["data"]]
        world.publish(consumer="acme")
        world.publish()
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert there_at_first
    assert seen == there_at_first


def test_a_filter_that_matches_little_gives_short_pages_and_still_finds_it(
    api: Api, world: World
) -> None:
    world.endpoint()
    dead = delivery_in(world, Status.DEAD)
    world.publish_many(4500)
    pages = api.pages("/v1/deliveries?error_kind=status", limit=50)
    assert [len(page) for page in pages] == [0, 0, 1]
    assert pages[-1][0]["id"] == str(dead)


def test_endpoints_of_one_consumer_are_merged_also_where_one_has_far_more_rows(
    api: Api, world: World
) -> None:
    """What lies beyond the place where the busy one was cut off waits for the page that comes to it."""
    world.endpoint(consumer="acme", event_types=["bulk"])
    world.endpoint(consumer="acme", event_types=["rare"])
    for _ in range(3):
        world.publish(event_type="rare", consumer="acme")
        world.settle(*[world.report(each, "bury") for each in world.claim().claimed])
        world.sql(
            "select leasehook.publish(%s, 'bulk', '{}'::json, consumer => 'acme') from generate_series(1, 700)",
            world.tenant_id,
        )
        world.sql(
            "update leasehook.deliveries set status = 'succeeded', claimable_at = null, finished_at = now() "
            "where status = 'pending'"
        )
    pages = api.pages("/v1/deliveries?consumer=acme&status=dead", limit=50)
    assert len(pages) == 3
    assert [row["id"] for page in pages for row in page] == all_ids(world, "status = 'dead'")


def test_a_customer_with_little_traffic_is_not_looked_for_among_all_others(
    api: Api, world: World
) -> None:
    world.endpoint()
    for _ in range(3):
        world.endpoint(consumer="quiet")
    world.publish(consumer="quiet")
    world.publish_many(4500)
    pages = api.pages("/v1/deliveries?consumer=quiet&status=pending", limit=50)
    assert [len(page) for page in pages] == [3]


@pytest.mark.parametrize(
    "query",
    [
        "cursor=%00",
        "cursor=no",
        "cursor=" + "A" * 10_000,
        "status=lost",
        "error_kind=%00",
        "event_type=%00",
        "event_type=a%25",
        "event_type=" + "a" * 1000,
        "consumer=%00",
        "consumer=%ED%A0%80",
        "endpoint_id=not-a-uuid",
        "event_id=%00",
        "created_after=yesterday",
        "created_after=1700000000",
        "created_after=2030-01-31T09:00:00",
        "created_before=2030-02-31T09:00:00Z",
        "limit=0",
        "limit=201",
    ],
)
def test_a_malformed_filter_is_refused(api: Api, query: str) -> None:
    """WH-041."""
    answer = api.get(f"/v1/deliveries?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"]


@pytest.mark.parametrize("instant", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999-23:59"])
def test_instants_at_the_ends_of_the_calendar_are_instants(
    api: Api, world: World, instant: str
) -> None:
    world.endpoint()
    world.publish()
    counts = [
        len(ids(api.get(f"/v1/deliveries?{side}={instant}")))
        for side in ("created_after", "created_before")
    ]
    assert sorted(counts) == [0, 1]


def test_malformed_and_unknown_ids_are_told_apart(api: Api) -> None:
    """WH-041."""
    for path in ("%00", "not-a-uuid", "a" * 10_000):
        assert api.get(f"/v1/deliveries/{path}").status_code == 422
    assert api.get(f"/v1/deliveries/{uuid4()}").status_code == 404


def test_a_delivery_shows_the_timeline_of_its_attempts(api: Api, world: World) -> None:
    world.endpoint()
    published = world.publish()
    [first] = world.claim().claimed
    world.settle(
        world.report(
            first,
            "retry",
            delay_seconds=0.0,
            status_code=500,
            error_kind="status",
            duration_ms=1500,
            response="oh no",
            truncated=True,
        )
    )
    [second] = world.claim(lease_seconds=0.0).claimed
    [third] = world.claim().claimed
    shown = api.get(f"/v1/deliveries/{first.delivery_id}").json()
    assert (shown["status"], shown["attempt_count"]) == ("in_progress", 3)
    assert shown["claimed_at"] < shown["claimable_at"]
    failed, lost, under_way = shown["attempts"]
    assert failed["request_headers"] == {
        "content-type": "application/json",
        "user-agent": "Leasehook/1 (+https://www.standardwebhooks.com)",
        "webhook-id": str(published.event_id),
        "webhook-timestamp": failed["request_headers"]["webhook-timestamp"],
        "idempotency-key": str(first.delivery_id),
    }
    assert (
        abs(int(failed["request_headers"]["webhook-timestamp"]) + 1 - world.now().timestamp()) < 3
    )
    del failed["request_headers"], failed["started_at"]
    assert failed == {
        "number": 1,
        "duration_ms": 1500,
        "status_code": 500,
        "error_kind": "status",
        "error_detail": None,
        "response": "oh no",
        "response_truncated": True,
        "late": False,
    }
    assert (second.attempt_count, third.attempt_count) == (2, 3)
    assert (lost["number"], lost["error_kind"], lost["started_at"]) == (2, "lost", None)
    assert (under_way["number"], under_way["error_kind"]) == (3, None)
    assert "webhook-timestamp" not in under_way["request_headers"]


def test_a_long_timeline_shows_its_newest_hundred_attempts_and_fits_into_an_answer(
    api: Api, world: World
) -> None:
    world.endpoint()
    delivery_id = delivery_in(world, Status.DEAD)
    world.sql("update leasehook.deliveries set attempt_count = 300 where id = %s", delivery_id)
    world.sql(
        """
        insert into leasehook.attempts
            (delivery_id, number, tenant_id, endpoint_id, started_at, duration_ms, error_kind, response)
        select d.id, n, d.tenant_id, d.endpoint_id, now(), 1, 'status', repeat('"', 65536)
        from leasehook.deliveries as d, generate_series(2, 300) as n
        """
    )
    answer = api.get(f"/v1/deliveries/{delivery_id}")
    attempts = answer.json()["attempts"]
    assert [attempt["number"] for attempt in attempts] == list(range(201, 301))
    assert attempts[0]["response_truncated"]
    assert len(answer.content) < 3_000_000


def test_secrets_and_header_values_are_in_no_answer_about_a_delivery(
    api: Api, world: World
) -> None:
    """WH-122."""
    world.endpoint(
        "http://127.0.0.1:9/path-canary?token=query-canary",
        secret="whsec_" + "c2VjcmV0LWNhbmFyeS1jYW5hcnktY2FuYXJ5",
        headers={"X-Tenant": "value-canary", "Authorization": "Bearer header-canary"},
    )
    delivery_id = delivery_in(world, Status.DEAD)
    shown = api.get(f"/v1/deliveries/{delivery_id}")
    assert shown.json()["custom_headers"] == ["Authorization", "X-Tenant"]
    listed = api.get("/v1/deliveries")
    replayed = api.post(f"/v1/deliveries/{delivery_id}/replay")
    for answer in (shown, listed, replayed):
        assert "canary" not in answer.text
        assert "c2VjcmV0" not in answer.text


def test_headers_sealed_with_a_key_that_is_gone_do_not_hide_the_delivery(
    api: Api, world: World
) -> None:
    world.endpoint(headers={"X-Tenant": "a"})
    delivery_id = delivery_in(world, Status.DEAD)
    world.sql(
        "update leasehook.endpoints set headers_sealed = set_byte(headers_sealed, 1, 255 - get_byte(headers_sealed, 1))"
    )
    assert api.get(f"/v1/deliveries/{delivery_id}").json()["custom_headers"] is None


@pytest.mark.parametrize("status", Status)
def test_a_replay_is_accepted_from_the_states_that_the_table_of_transitions_has(
    api: Api, world: World, status: Status
) -> None:
    """WH-104."""
    world.endpoint()
    delivery_id = delivery_in(world, status)
    before = world.row(delivery_id)
    answer = api.post(f"/v1/deliveries/{delivery_id}/replay")
    after = world.row(delivery_id)
    if status in sources(Verb.REPLAY):
        assert (answer.status_code, answer.json()["status"]) == (202, "pending")
        assert (after["status"], after["finished_at"], after["dead_reason"]) == (
            "pending",
            None,
            None,
        )
        assert after["attempt_base"] == after["attempt_count"] == before["attempt_count"]
    else:
        assert answer.status_code == 409
        assert answer.json()["type"] == "urn:leasehook:problem:conflict"
        assert status in answer.json()["detail"]
        assert after == before


@pytest.mark.parametrize("status", Status)
def test_a_cancellation_is_accepted_from_the_states_that_the_table_of_transitions_has(
    api: Api, world: World, status: Status
) -> None:
    world.endpoint()
    delivery_id = delivery_in(world, status)
    before = world.row(delivery_id)
    answer = api.post(f"/v1/deliveries/{delivery_id}/cancel")
    if status in sources(Verb.CANCEL):
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
        assert world.claim().claimed == []
    else:
        assert answer.status_code == 409
        assert status in answer.json()["detail"]
        assert world.row(delivery_id) == before


def test_two_deliberate_replays_send_twice_and_keep_the_history(api: Api, world: World) -> None:
    """WH-104: what fails again is dead again, for its new reason."""
    world.endpoint()
    delivery_id = delivery_in(world, Status.DEAD)
    for number, kind in ((2, "timeout"), (3, "reset")):
        assert api.post(f"/v1/deliveries/{delivery_id}/replay").status_code == 202
        [claimed] = world.claim().claimed
        assert (claimed.delivery_id, claimed.attempt_count) == (delivery_id, number)
        world.settle(world.report(claimed, "bury", error_kind=kind))
    shown = api.get(f"/v1/deliveries/{delivery_id}").json()
    assert (shown["status"], shown["last_error_kind"]) == ("dead", "reset")
    assert [attempt["error_kind"] for attempt in shown["attempts"]] == [
        "status",
        "timeout",
        "reset",
    ]


def test_ten_clicks_with_one_key_are_one_replay(api: Api, world: World) -> None:
    """WH-104."""
    world.endpoint()
    delivery_id = delivery_in(world, Status.DEAD)
    headers = {"authorization": f"Bearer {api.key}", "idempotency-key": "click-1"}
    path = f"/v1/deliveries/{delivery_id}/replay"

    async def clicks() -> list[httpx.Response]:
        return await asyncio.gather(
            *[api.client._client.post(path, headers=headers) for _ in range(10)]
        )

    answers = api.client._runner.run(clicks())
    assert [answer.status_code for answer in answers] == [202] * 10
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    [claimed] = world.claim().claimed
    world.settle(world.report(claimed, "bury"))
    again = api.post(path, **{"idempotency-key": "click-1"})
    assert (again.status_code, again.headers["idempotent-replayed"]) == (202, "true")
    assert again.json()["status"] == "dead"
    assert world.claim().claimed == []
    assert api.post(path, **{"idempotency-key": "click-2"}).json()["status"] == "pending"


def test_of_ten_clicks_without_a_key_nine_are_told_what_the_first_has_done(
    api: Api, world: World
) -> None:
    world.endpoint()
    delivery_id = delivery_in(world, Status.DEAD)
    headers = {"authorization": f"Bearer {api.key}"}
    path = f"/v1/deliveries/{delivery_id}/replay"

    async def clicks() -> list[httpx.Response]:
        return await asyncio.gather(
            *[api.client._client.post(path, headers=headers) for _ in range(10)]
        )

    answers = api.client._runner.run(clicks())
    assert sorted(answer.status_code for answer in answers) == [202] + [409] * 9
    refusals = {answer.json()["detail"] for answer in answers if answer.status_code == 409}
    assert refusals == {"the delivery is pending: it is on its way already"}


def test_a_key_is_about_one_delivery(api: Api, world: World) -> None:
    world.endpoint()
    for delivery_id in [delivery_in(world, Status.DEAD), delivery_in(world, Status.DEAD)]:
        answer = api.post(f"/v1/deliveries/{delivery_id}/replay", **{"idempotency-key": "k"})
        assert "idempotent-replayed" not in answer.headers
    assert len(world.claim().claimed) == 2


def test_a_refused_replay_does_not_use_up_its_key(api: Api, world: World) -> None:
    world.endpoint()
    delivery_id = delivery_in(world, Status.IN_PROGRESS)
    path, key = f"/v1/deliveries/{delivery_id}/replay", {"idempotency-key": "k"}
    assert api.post(path, **key).status_code == 409
    world.sql(
        "update leasehook.deliveries set status = 'dead', dead_reason = 'gone', lease_token = null, "
        "claimed_at = null, claimable_at = null, finished_at = now()"
    )
    assert api.post(path, **key).json()["status"] == "pending"


@pytest.mark.parametrize("key", ["", "a b", "é", "a" * 256])
def test_a_key_that_could_not_be_stored_is_refused(api: Api, world: World, key: str) -> None:
    world.endpoint()
    delivery_id = delivery_in(world, Status.DEAD)
    answer = api.client.request(
        "POST",
        f"/v1/deliveries/{delivery_id}/replay",
        headers={
            b"authorization": f"Bearer {api.key}".encode(),
            b"idempotency-key": key.encode(),
        },
    )
    assert answer.status_code == 422
    assert world.row(delivery_id)["status"] == "dead"


def test_a_delivery_to_a_deleted_endpoint_cannot_be_replayed(api: Api, world: World) -> None:
    world.endpoint()
    delivery_id = delivery_in(world, Status.DEAD)
    world.sql("update leasehook.endpoints set deleted_at = now()")
    answer = api.post(f"/v1/deliveries/{delivery_id}/replay")
    assert answer.status_code == 409
    assert "publish the event again" in answer.json()["detail"]


def test_a_replay_at_a_disabled_endpoint_is_parked(api: Api, world: World) -> None:
    """WH-102."""
    world.endpoint()
    delivery_id = delivery_in(world, Status.DEAD)
    world.sql("update leasehook.endpoints set disabled_at = now(), disabled_reason = 'operator'")
    answer = api.post(f"/v1/deliveries/{delivery_id}/replay").json()
    assert (answer["status"], answer["parked"]) == ("pending", True)
    assert world.claim().claimed == []


def test_a_replay_and_the_claim_of_a_retry_do_not_meet(api: Api, world: World) -> None:
    """WH-104: the row is locked first, so what a drain took meanwhile is refused and not reset."""
    world.endpoint()
    delivery_id = delivery_in(world, Status.FAILED)
    world.sql("update leasehook.deliveries set claimable_at = now()")
    [claimed] = world.claim().claimed
    assert api.post(f"/v1/deliveries/{delivery_id}/replay").status_code == 409
    assert world.settle(world.report(claimed)).settled_count == 1


def test_each_scope_opens_its_routes_only(api: Api, world: World) -> None:
    world.endpoint()
    delivery_id = delivery_in(world, Status.DEAD)
    reader, publisher = (Api(api.client, world.key([scope])) for scope in ("read", "publish"))
    assert reader.get(f"/v1/deliveries/{delivery_id}").status_code == 200
    for verb in ("replay", "cancel"):
        assert reader.post(f"/v1/deliveries/{delivery_id}/{verb}").status_code == 403
    assert publisher.get("/v1/deliveries").status_code == 403


def test_another_tenants_deliveries_do_not_exist(api: Api, other: Api, world: World) -> None:
    """WH-120."""
    endpoint = world.endpoint(consumer="acme")
    published = world.publish(consumer="acme")
    [delivery_id] = all_ids(world)
    before = world.row(UUID(delivery_id))
    assert other.get(f"/v1/deliveries/{delivery_id}").status_code == 404
    for verb in ("replay", "cancel"):
        assert other.post(f"/v1/deliveries/{delivery_id}/{verb}").status_code == 404
    for query in (
        "",
        f"endpoint_id={endpoint['id']}",
        f"event_id={published.event_id}",
        "consumer=acme",
        "status=pending",
    ):
        assert other.get(f"/v1/deliveries?{query}").json() == {"data": [], "next_cursor": None}
        assert len(ids(api.get(f"/v1/deliveries?{query}"))) == 1
    assert world.row(UUID(delivery_id)) == before
