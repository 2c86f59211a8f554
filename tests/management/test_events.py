"""Events over the API: lists, the payload to the byte, and why an event reached an endpoint or did not."""

import base64
import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.management.conftest import Api
from tests.support.world import World

HOSTILE = '{"html": "<script>alert(1)</script>\\u2028", "text": "é\u2028😀"}'.encode()


def ids(api: Api, query: str = "") -> list[UUID]:
    answer = api.get(f"/v1/events?{query}")
    assert answer.status_code == 200, answer.text
    return [UUID(row["id"]) for row in answer.json()["data"]]


def event(api: Api, event_id: UUID) -> dict[str, Any]:
    answer = api.get(f"/v1/events/{event_id}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def reasons(api: Api, event_id: UUID) -> dict[str, str]:
    return {each["endpoint_id"]: each["reason"] for each in event(api, event_id)["reach"]}


def test_an_event_is_listed_without_its_payload(api: Api, world: World) -> None:
    published = world.publish(b'{"n":1.0}', consumer="acme", channels=["eu"], priority=5)
    [row] = api.get("/v1/events").json()["data"]
    assert row.pop("created_at")
    assert row == {
        "id": str(published.event_id),
        "type": "order.paid",
        "consumer": "acme",
        "content_type": "application/json",
        "payload_bytes": 9,
        "channels": ["eu"],
        "priority": 5,
        "deliver_at": None,
        "operational": False,
    }


def test_each_filter_lets_through_what_it_names(api: Api, world: World) -> None:
    paid = world.publish(event_type="order.paid", consumer="acme", idempotency_key="k").event_id
    item = world.publish(event_type="order.item.added").event_id
    orders = world.publish(event_type="orders").event_id
    underscore = world.publish(event_type="order_x").event_id
    assert ids(api) == ids(api, "type=*") == [underscore, orders, item, paid]
    assert ids(api, "type=order.*") == [item, paid]
    assert ids(api, "type=order.paid") == [paid]
    assert ids(api, "type=order.item.*") == [item]
    assert ids(api, "type=order_x") == [underscore]
    assert ids(api, "consumer=acme") == [paid]
    assert ids(api, "consumer=acme&type=order.item.*") == []
    assert ids(api, "idempotency_key=k") == [paid]
    assert ids(api, "idempotency_key=k&type=orders") == []
    assert ids(api, "idempotency_key=l") == []


def test_two_periods_that_meet_share_no_event_and_lose_none(api: Api, world: World) -> None:
    for _ in range(5):
        world.publish()
    at = api.get("/v1/events").json()["data"][1]["created_at"]
    after, before = ids(api, f"created_after={at}"), ids(api, f"created_before={at}")
    assert (len(after), len(before)) == (2, 3)
    assert after + before == ids(api)


@pytest.mark.parametrize("limit", [1, 4, 50])
@pytest.mark.parametrize("query", ["", "consumer=acme", "type=order.*"])
def test_pages_neither_lose_nor_repeat_an_event_while_more_are_published(
    api: Api, world: World, query: str, limit: int
) -> None:
    """Also among the events of one instant: they are published by one statement."""
    world.sql(
        "select leasehook.publish(%s, 'order.paid', '{}'::json, consumer => 'acme') from generate_series(1, 9)",
        world.tenant_id,
    )
    there_at_first = ids(api, query)
    seen: list[UUID] = []
    cursor = ""
    while True:
        page = api.get(f"/v1/events?{query}&limit={limit}{cursor}").json()
        seen += [UUID(row["id"]) for row in page["data"]]
        world.publish(consumer="acme")
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert len(there_at_first) == 9
    assert seen == there_at_first


def test_a_type_that_is_rare_gives_short_pages_and_is_still_found(api: Api, world: World) -> None:
    rare = world.publish(event_type="rare").event_id
    world.publish_many(2500)
    pages = api.pages("/v1/events?type=rare", limit=50)
    assert [[row["id"] for row in page] for page in pages] == [[], [str(rare)]]


@pytest.mark.parametrize(
    "query",
    [
        "cursor=%00",
        "type=%00",
        "type=a..b",
        "type=%25",
        "type=*.paid",
        "consumer=%00",
        "idempotency_key=%00",
        "idempotency_key=a%20b",
        "created_after=2030-01-31",
        "limit=-1",
    ],
)
def test_a_malformed_filter_is_refused(api: Api, query: str) -> None:
    """WH-041."""
    answer = api.get(f"/v1/events?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"]


def test_malformed_and_unknown_ids_are_told_apart(api: Api) -> None:
    """WH-041."""
    for path in ("%00", "%00/payload", "not-a-uuid", "a" * 10_000):
        assert api.get(f"/v1/events/{path}").status_code == 422
    for path in (f"{uuid4()}", f"{uuid4()}/payload"):
        assert api.get(f"/v1/events/{path}").status_code == 404


@pytest.mark.parametrize(
    "payload",
    [
        HOSTILE,
        rb'{"a":"x\u0000y"}',
        rb'{"a":"x\\u0000y"}',
        rb'{"a":"\ud83d"}',
        b"[1e999, -0.0, 100000000000000000000000000000001]",
    ],
)
def test_a_payload_is_shown_as_the_text_that_it_is(api: Api, world: World, payload: bytes) -> None:
    """WH-040, WH-042, WH-044."""
    shown = event(api, world.publish(payload).event_id)
    assert shown["payload"].encode() == payload
    assert (shown["payload_encoding"], shown["payload_truncated"]) == ("utf-8", False)


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [
        (b"\x00\xff", "application/octet-stream"),
        (b"plain", "application/octet-stream"),
        (b"\xff", "text/plain"),
        (b"bell \x07", "text/plain"),
    ],
)
def test_what_is_no_text_is_shown_in_base64(
    api: Api, world: World, payload: bytes, content_type: str
) -> None:
    shown = event(api, world.publish(payload, content_type=content_type).event_id)
    assert shown["payload_encoding"] == "base64"
    assert base64.b64decode(shown["payload"]) == payload


@pytest.mark.parametrize("start", [b'"', b'".', b'"..'])
def test_a_long_payload_is_cut_between_characters(api: Api, world: World, start: bytes) -> None:
    payload = start + "é€".encode() * 300_000 + b'"'
    shown = event(api, world.publish(payload).event_id)
    assert (shown["payload_bytes"], shown["payload_truncated"]) == (len(payload), True)
    assert payload.decode().startswith(shown["payload"])
    assert 1024 * 1024 - 3 < len(shown["payload"].encode()) <= 1024 * 1024


def test_the_longest_answer_fits_into_what_a_lambda_function_may_return(
    api: Api, world: World
) -> None:
    """Quotes and backslashes are escaped in the document, and again around it."""
    for _ in range(201):
        world.endpoint()
    payload = b'"' + rb"\\" * 1_000_000 + b'"'
    answer = api.get(f"/v1/events/{world.publish(payload).event_id}")
    assert answer.json()["deliveries_truncated"]
    assert answer.json()["reach_truncated"]
    assert len(json.dumps(answer.text)) < 6_000_000


@pytest.mark.parametrize("payload", [HOSTILE, b'"' + b"x" * 3_000_000 + b'"'])
def test_a_raw_payload_comes_to_the_byte_and_as_nothing_a_browser_renders(
    api: Api, world: World, payload: bytes
) -> None:
    """WH-123."""
    event_id = world.publish(payload).event_id
    answer = api.get(f"/v1/events/{event_id}/payload")
    assert answer.content == payload
    assert answer.headers["content-type"] in (
        "text/plain; charset=utf-8",
        "application/octet-stream",
    )
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"].startswith(f'attachment; filename="{event_id}.')
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize(
    ("content_type", "served"),
    [
        ("text/html", "text/plain; charset=utf-8"),
        ("image/svg+xml", "application/octet-stream"),
        ("application/vnd.order+json", "text/plain; charset=utf-8"),
        ("application/octet-stream", "application/octet-stream"),
    ],
)
def test_a_payload_is_never_served_as_the_type_it_was_published_with(
    api: Api, world: World, content_type: str, served: str
) -> None:
    """WH-123."""
    event_id = world.publish(b"<script>alert(1)</script>", content_type=content_type).event_id
    answer = api.get(f"/v1/events/{event_id}/payload")
    assert (answer.headers["content-type"], answer.content) == (
        served,
        b"<script>alert(1)</script>",
    )


def test_a_payload_that_does_not_fit_into_an_answer_is_refused_with_its_size(
    api: Api, world: World
) -> None:
    event_id = world.publish(b"x" * 4_000_001).event_id
    answer = api.get(f"/v1/events/{event_id}/payload")
    assert answer.status_code == 413
    assert "4000001 bytes" in answer.json()["detail"]
    assert event(api, event_id)["payload_truncated"]


def test_an_event_from_sql_that_is_never_due_can_still_be_read(api: Api, world: World) -> None:
    """Nobody receives it, so the queue's own rule about instants did not see it."""
    world.sql(
        "select leasehook.publish(%s, 'a', '{}'::json, deliver_at => 'infinity')", world.tenant_id
    )
    [row] = api.get("/v1/events").json()["data"]
    assert event(api, row["id"])["deliver_at"] is None


def test_an_event_says_of_each_endpoint_why_it_reached_it_or_did_not(
    api: Api, world: World
) -> None:
    expected = {
        "matched": world.endpoint(event_types=["order.*"])["id"],
        "parked": world.endpoint()["id"],
        "other_consumer": world.endpoint(consumer="acme")["id"],
        "filtered_by_type": world.endpoint(event_types=["invoice.*"])["id"],
        "filtered_by_channel": world.endpoint()["id"],
        "deleted": world.endpoint()["id"],
        "changed_later": world.endpoint(event_types=["invoice.*"])["id"],
    }
    world.sql(
        "update leasehook.endpoints set channels = '{eu}' where id = %s",
        expected["filtered_by_channel"],
    )
    world.sql(
        "update leasehook.endpoints set deleted_at = now() where id = %s", expected["deleted"]
    )
    world.sql(
        "update leasehook.endpoints set disabled_at = now(), disabled_reason = 'operator' where id = %s",
        expected["parked"],
    )
    published = world.publish(event_type="order.paid", channels=["us"]).event_id
    expected["created_later"] = world.endpoint()["id"]
    world.sql(
        "update leasehook.endpoints set event_types = '{*}' where id = %s",
        expected["changed_later"],
    )
    assert reasons(api, published) == {
        str(endpoint_id): reason for reason, endpoint_id in expected.items()
    }
    assert {each["endpoint_id"] for each in event(api, published)["deliveries"]} == {
        str(expected["matched"]),
        str(expected["parked"]),
    }


def test_an_event_of_ours_is_not_let_through_by_the_filter_for_all(api: Api, world: World) -> None:
    everything, ours = world.endpoint(), world.endpoint(event_types=["endpoint.*"])
    event_id = world.one(
        "select leasehook.announce(%s, 'endpoint.disabled', '{}') as id", world.tenant_id
    )["id"]
    assert event(api, event_id)["operational"]
    assert reasons(api, event_id) == {
        str(everything["id"]): "filtered_by_type",
        str(ours["id"]): "matched",
    }


def test_another_tenants_events_do_not_exist(api: Api, other: Api, world: World) -> None:
    """WH-120."""
    event_id = world.publish(consumer="acme", idempotency_key="k").event_id
    for path in (f"{event_id}", f"{event_id}/payload"):
        assert other.get(f"/v1/events/{path}").status_code == 404
    for query in ("", "consumer=acme", "idempotency_key=k", "type=order.*"):
        assert ids(other, query) == []
        assert ids(api, query) == [event_id]


def test_reading_needs_the_scope(api: Api, world: World) -> None:
    event_id = world.publish().event_id
    publisher = Api(api.client, world.key(["publish"]))
    for path in ("", f"/{event_id}", f"/{event_id}/payload"):
        assert publisher.get(f"/v1/events{path}").status_code == 403
