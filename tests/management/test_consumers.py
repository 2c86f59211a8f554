"""Consumers: a tenant's customers."""

import contextlib
import threading
from typing import Any

import pytest

from shared import consumers
from shared.endpoints import NewEndpoint, create_endpoint
from shared.errors import Conflict, NotFound
from tests.management.conftest import Api
from tests.support.lambdas import in_step, wait_until_somebody_waits_for_a_lock
from tests.support.world import LOOPBACK, World

HOOK = "https://example.com/"


def test_a_consumer_is_made_renamed_and_deleted(api: Api) -> None:
    answer = api.post("/v1/consumers", {"id": "cus_17", "name": "Acme"})
    assert answer.status_code == 201
    made = answer.json()
    assert (made["id"], made["name"]) == ("cus_17", "Acme")
    assert api.get("/v1/consumers/cus_17").json() == made

    assert api.patch("/v1/consumers/cus_17", {"name": "Acme Ltd"}).json()["name"] == "Acme Ltd"
    assert api.patch("/v1/consumers/cus_17", {}).json()["name"] == "Acme Ltd"
    assert api.patch("/v1/consumers/cus_17", {"name": None}).json()["name"] is None

    assert api.delete("/v1/consumers/cus_17").status_code == 204
    assert api.get("/v1/consumers/cus_17").status_code == 404
    assert api.delete("/v1/consumers/cus_17").status_code == 404
    assert api.patch("/v1/consumers/cus_17", {"name": "x"}).status_code == 404


def test_an_id_is_used_once_per_tenant(api: Api, other: Api) -> None:
    assert api.post("/v1/consumers", {"id": "acme", "name": "mine"}).status_code == 201
    assert api.post("/v1/consumers", {"id": "acme", "name": "again"}).status_code == 409
    assert other.post("/v1/consumers", {"id": "acme", "name": "theirs"}).status_code == 201
    assert api.get("/v1/consumers/acme").json()["name"] == "mine"


def test_another_tenants_consumer_is_not_found_and_not_touched(api: Api, other: Api) -> None:
    other.post("/v1/consumers", {"id": "theirs", "name": "Theirs"})

    assert api.get("/v1/consumers/theirs").status_code == 404
    assert api.patch("/v1/consumers/theirs", {"name": "x"}).status_code == 404
    assert api.delete("/v1/consumers/theirs").status_code == 404

    assert api.get("/v1/consumers").json()["data"] == []
    assert other.get("/v1/consumers/theirs").json()["name"] == "Theirs"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": ""},
        {"id": "a b"},
        {"id": "a/b"},
        {"id": "a\n"},
        {"id": "é"},
        {"id": "c" * 129},
        {"id": 17},
        {"id": "a", "name": ""},
        {"id": "a", "name": "a\0"},
        {"id": "a", "name": "n" * 201},
        {"id": "a", "more": 1},
    ],
)
def test_a_consumer_that_breaks_a_rule_is_refused(api: Api, body: Any) -> None:
    """WH-041."""
    assert api.post("/v1/consumers", body).status_code == 422
    assert api.get("/v1/consumers").json()["data"] == []


def test_an_id_that_cannot_be_one_is_refused_before_the_database_sees_it(api: Api) -> None:
    """WH-041."""
    for path in ("a%00b", "a%20b", "%ff", "c" * 129):
        assert api.get(f"/v1/consumers/{path}").status_code == 422


def test_pages_are_in_the_order_of_ids_and_hold_each_once(api: Api) -> None:
    ids = ["a", "b.1", "b:2", "b_3", "c" * 128]
    for consumer in reversed(ids):
        api.post("/v1/consumers", {"id": consumer})

    pages = api.pages("/v1/consumers", limit=1)

    assert [len(page) for page in pages] == [1] * 5
    assert sorted(each["id"] for page in pages for each in page) == sorted(ids)


def test_a_page_goes_on_where_it_was_although_its_last_consumer_is_gone(api: Api) -> None:
    for consumer in ("a", "b", "c"):
        api.post("/v1/consumers", {"id": consumer})
    cursor = api.get("/v1/consumers?limit=2").json()["next_cursor"]
    api.delete("/v1/consumers/b")
    rest = api.get(f"/v1/consumers?limit=2&cursor={cursor}").json()
    assert [each["id"] for each in rest["data"]] == ["c"]


@pytest.mark.parametrize("cursor", ["x", "YQ==", "w6k", "!", "%00", "YS9i", "a" * 201])
def test_a_cursor_that_is_none_of_ours_is_refused(api: Api, cursor: str) -> None:
    assert api.get(f"/v1/consumers?cursor={cursor}").status_code == 422


def test_a_consumer_with_endpoints_stays_until_they_are_deleted(api: Api) -> None:
    endpoint = api.post("/v1/endpoints", {"url": HOOK, "consumer": "acme"}).json()

    refused = api.delete("/v1/consumers/acme")

    assert refused.status_code == 409
    assert "delete them first" in refused.json()["detail"]
    api.delete(f"/v1/endpoints/{endpoint['id']}")
    assert api.delete("/v1/consumers/acme").status_code == 204
    assert api.get("/v1/consumers/acme").status_code == 404


def test_an_endpoint_makes_the_consumer_that_is_not_there_yet(api: Api) -> None:
    for _ in range(2):
        assert (
            api.post("/v1/endpoints", {"url": HOOK, "consumer": "acme"}).json()["consumer"]
            == "acme"
        )
    assert [each["id"] for each in api.get("/v1/consumers").json()["data"]] == ["acme"]


def test_a_consumer_is_not_deleted_under_an_endpoint_that_is_being_made(world: World) -> None:
    """The deletion waits for the endpoint, and then finds it."""
    consumers.create_consumer(world.database, world.tenant_id, "acme")
    refused = []

    def delete() -> None:
        try:
            consumers.delete_consumer(world.database, world.tenant_id, "acme")
        except Conflict as error:
            refused.append(error)

    with world.database.transaction() as connection:
        connection.execute(
            """
            insert into leasehook.endpoints (tenant_id, consumer, url)
            values (%s, 'acme', 'https://example.com/')
            """,
            [world.tenant_id],
        )
        deleting = threading.Thread(target=delete)
        deleting.start()
        wait_until_somebody_waits_for_a_lock(world)
    deleting.join()

    assert len(refused) == 1
    assert len(world.sql("select 1 from leasehook.consumers")) == 1


def test_endpoints_made_while_their_consumer_is_deleted_have_one(world: World) -> None:
    """Whoever comes first: no error that is nobody's fault, and no endpoint without its consumer."""

    def work(index: int) -> None:
        for _ in range(15):
            if index:
                create_endpoint(
                    world.database,
                    world.sealer,
                    LOOPBACK,
                    world.tenant_id,
                    NewEndpoint(url=HOOK, consumer="acme"),
                )
                world.sql("update leasehook.endpoints set deleted_at = now()")
            else:
                with contextlib.suppress(Conflict, NotFound):
                    consumers.delete_consumer(world.database, world.tenant_id, "acme")

    in_step(3, work)

    lost = "select 1 from leasehook.endpoints where deleted_at is null and consumer is null"
    assert world.sql(lost) == []
    assert len(world.sql("select 1 from leasehook.endpoints")) == 30
