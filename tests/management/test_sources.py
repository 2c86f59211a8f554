"""Sources through the management API."""

import time
from typing import Any
from uuid import uuid4

import pytest

from shared.store.connection import Row
from tests.management.conftest import Api, Client
from tests.support.providers import GENERIC, SECRETS, Signed, sign
from tests.support.world import World

CANARY = "canary7f3a91c5d2e8b4f6a0canary"


def make(api: Api, provider: str = "github", **fields: Any) -> dict[str, Any]:
    body = {"provider": provider, "secret": SECRETS[provider], **fields}
    if provider == "hmac":
        body.setdefault("configuration", GENERIC)
    answer = api.post("/v1/sources", body)
    assert answer.status_code == 201, answer.text
    document: dict[str, Any] = answer.json()
    return document


def send(client: Client, source: dict[str, Any], request: Signed) -> int:
    answer = client.request(
        "POST", source["path"], headers=dict(request.headers), content=request.body
    )
    return answer.status_code


def stored(world: World) -> list[Row]:
    return world.sql("select * from leasehook.sources")


@pytest.mark.parametrize("provider", SECRETS)
def test_a_source_is_made_and_accepts_what_its_provider_signs(
    api: Api, client: Client, provider: str
) -> None:
    source = make(api, provider, slug="from-them")

    assert source["path"] == "/in/from-them"
    assert source["secret"] == SECRETS[provider]
    shown = api.get(f"/v1/sources/{source['id']}").json()
    assert shown == {name: value for name, value in source.items() if name != "secret"}
    assert send(client, source, sign(provider, b"{}")) == 200


@pytest.mark.parametrize("provider", ["github", "standard_webhooks", "hmac"])
def test_without_slug_and_secret_random_ones_are_made(
    api: Api, client: Client, provider: str
) -> None:
    one, other = (make(api, provider, secret=None) for _ in range(2))
    assert one["slug"] != other["slug"]
    assert one["secret"] != other["secret"]
    assert send(client, one, sign(provider, b"{}", secret=one["secret"])) == 200
    assert send(client, other, sign(provider, b"{}", secret=one["secret"])) == 401


@pytest.mark.parametrize("provider", ["stripe", "shopify", "slack"])
def test_a_secret_that_only_the_provider_can_make_must_be_given(
    api: Api, world: World, provider: str
) -> None:
    answer = api.post("/v1/sources", {"provider": provider})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "secret"
    assert stored(world) == []


@pytest.mark.parametrize(
    ("provider", "secret"),
    [
        *((provider, secret) for provider in SECRETS for secret in ("", "   ", "aaaaaaaaaaaaaaaa")),
        ("standard_webhooks", "whsec_"),
        ("standard_webhooks", "whsec_!!!!"),
        ("standard_webhooks", "whsec_QQ=="),
        ("standard_webhooks", "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ("standard_webhooks", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"),
        ("standard_webhooks", "whsec_MfKQ9r8GKYqrTwjU-_8ILPZIo2LaLaSw"),
        ("github", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d"),
        ("github", "a secret with a NUL \0 in it"),
        ("stripe", "sk_live_51H8s7d6f5g4h3j2k1l0"),
        ("slack", "xoxb-123456789012-abcdefghijkl"),
    ],
)
def test_a_wrong_empty_or_weak_secret_is_refused_and_not_repeated(
    api: Api, world: World, provider: str, secret: str
) -> None:
    """WH-005, WH-006, WH-007: the answer names the form that is accepted."""
    body: dict[str, Any] = {"provider": provider, "secret": secret}
    if provider == "hmac":
        body["configuration"] = GENERIC
    answer = api.post("/v1/sources", body)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"] == "secret"
    assert "expected" in error["rule"]
    assert len(secret.strip()) < 17 or secret not in answer.text
    assert stored(world) == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"slug": "Upper"}, "slug"),
        ({"slug": "a/b"}, "slug"),
        ({"slug": ""}, "slug"),
        ({"slug": "-a"}, "slug"),
        ({"slug": "a" * 65}, "slug"),
        ({"slug": "a\0b"}, "slug"),
        ({"provider": "paypal"}, "provider"),
        ({"configuration": GENERIC}, "configuration"),
        ({"event_type_prefix": "a..b"}, "event_type_prefix"),
        ({"event_type_prefix": "a" * 65}, "event_type_prefix"),
        ({"consumer": "a b"}, "consumer"),
        ({"description": "\0"}, "description"),
        ({"tolerance_seconds": 300}, "tolerance_seconds"),
        (
            {"provider": "slack", "secret": SECRETS["slack"], "tolerance_seconds": 0},
            "tolerance_seconds",
        ),
        ({"provider": "hmac"}, "configuration"),
        (
            {"provider": "hmac", "configuration": {"encoding": "hex"}},
            "configuration.signature_header",
        ),
        (
            {"provider": "hmac", "configuration": {**GENERIC, "encoding": "hex2"}},
            "configuration.encoding",
        ),
        (
            {"provider": "hmac", "configuration": {**GENERIC, "signed": "{timestamp}"}},
            "configuration.signed",
        ),
        (
            {"provider": "hmac", "configuration": {**GENERIC, "id_header": "Cookie"}},
            "configuration.id_header",
        ),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(
    api: Api, world: World, fields: dict[str, Any], field: str
) -> None:
    """WH-012: a tolerance of 0 is none."""
    answer = api.post("/v1/sources", {"provider": "github", **fields})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field
    assert stored(world) == []


def test_a_slug_is_taken_until_its_source_is_deleted(api: Api, other: Api, client: Client) -> None:
    source = make(api, slug="acme")
    for each in (api, other):
        assert each.post("/v1/sources", {"provider": "github", "slug": "acme"}).status_code == 409

    assert api.delete(f"/v1/sources/{source['id']}").status_code == 204

    assert api.get(f"/v1/sources/{source['id']}").status_code == 404
    assert api.delete(f"/v1/sources/{source['id']}").status_code == 404
    theirs = make(other, slug="acme", secret=None)
    assert send(client, source, sign("github", b"{}")) == 401
    assert send(client, theirs, sign("github", b"{}", secret=theirs["secret"])) == 200


def test_deleting_erases_the_secrets_and_keeps_what_was_received(
    api: Api, client: Client, world: World
) -> None:
    source = make(api)
    assert send(client, source, sign("github", b"{}")) == 200
    api.delete(f"/v1/sources/{source['id']}")
    assert world.sql("select * from leasehook.source_secrets") == []
    assert len(world.sql("select * from leasehook.received")) == 1


def test_lists_are_paged_newest_first(api: Api, other: Api) -> None:
    ids = [make(api)["id"] for _ in range(5)]
    make(other)
    api.delete(f"/v1/sources/{ids.pop(2)}")
    pages = api.pages("/v1/sources", 2)
    assert [row["id"] for page in pages for row in page] == ids[::-1]
    assert all(len(page) <= 2 for page in pages)


def test_a_patch_changes_what_it_names_and_null_is_the_default(api: Api) -> None:
    source = make(api, "stripe", consumer="acme", event_type_prefix="s", tolerance_seconds=60)
    path = f"/v1/sources/{source['id']}"

    changed = api.patch(path, {"consumer": None, "description": "of the shop"}).json()

    assert changed["consumer"] is None
    assert changed["description"] == "of the shop"
    assert (changed["event_type_prefix"], changed["tolerance_seconds"]) == ("s", 60)
    assert changed["updated_at"] > source["updated_at"]
    assert api.patch(path, {"tolerance_seconds": None}).json()["tolerance_seconds"] is None
    for refused in ({"slug": "x"}, {"provider": "github"}, {"tolerance_seconds": 0}):
        assert api.patch(path, refused).status_code == 422
    github = make(api)
    answer = api.patch(f"/v1/sources/{github['id']}", {"tolerance_seconds": 60})
    assert answer.json()["errors"][0]["field"] == "tolerance_seconds"


def test_a_disabled_source_accepts_nothing_until_it_is_enabled(api: Api, client: Client) -> None:
    source = make(api)
    path = f"/v1/sources/{source['id']}"
    disabled = api.post(f"{path}/disable").json()["disabled_at"]
    assert disabled is not None
    assert api.post(f"{path}/disable").json()["disabled_at"] == disabled
    assert send(client, source, sign("github", b"{}")) == 401
    assert api.post(f"{path}/enable").json()["disabled_at"] is None
    assert send(client, source, sign("github", b"{}")) == 200


def test_a_rotation_accepts_both_secrets_for_the_overlap(api: Api, client: Client) -> None:
    source = make(api)
    path = f"/v1/sources/{source['id']}/rotate-secret"
    newer = api.post(path, {"overlap_seconds": 3600}).json()["secret"]
    assert newer != source["secret"]
    assert send(client, source, sign("github", b"{}")) == 200
    assert send(client, source, sign("github", b"{}", secret=newer)) == 200

    newest = api.post(path, {"overlap_seconds": 0, "secret": "the newest one, 51fb0c"}).json()
    assert newest["secret"] == "the newest one, 51fb0c"
    for secret, status in [(None, 401), (newer, 401), (newest["secret"], 200)]:
        assert send(client, source, sign("github", b"{}", secret=secret)) == status
    assert api.post(path, {"secret": "short"}).status_code == 422
    assert api.post(path, {"overlap_seconds": -1}).status_code == 422


def test_no_more_than_a_handful_of_secrets_are_tried(api: Api) -> None:
    path = f"/v1/sources/{make(api)['id']}/rotate-secret"
    statuses = [api.post(path, {}).status_code for _ in range(6)]
    assert statuses == [200] * 4 + [409] * 2
    assert api.post(path, {"overlap_seconds": 0}).status_code == 200


def test_what_was_received_is_listed_with_its_verdict_and_its_event(
    api: Api, client: Client, world: World
) -> None:
    source = make(api, event_type_prefix="gh")
    repeated = sign("github", b'{"action": "opened"}', event="issues", message_id="id-1")
    for request in (repeated, repeated, sign("github", b"{}", message_id="id-2"), repeated):
        assert send(client, source, request) == 200
    path = f"/v1/sources/{source['id']}/received"

    rows = api.get(path).json()["data"]

    assert [(row["dedupe_id"], row["verdict"], row["times"]) for row in rows] == [
        ("id-2", "accepted", 1),
        ("id-1", "duplicate", 2),
        ("id-1", "accepted", 1),
    ]
    assert rows[1]["event_id"] == rows[2]["event_id"]
    assert rows[1]["last_received_at"] > rows[1]["received_at"]
    assert rows[2]["event_type"] == "gh.issues.opened"
    assert rows[2]["payload_bytes"] == len(repeated.body)
    assert rows[2]["headers"]["x-github-event"] == "issues"
    assert api.get(f"/v1/events/{rows[0]['event_id']}").status_code == 200
    assert [row["id"] for page in api.pages(path, 1) for row in page] == [row["id"] for row in rows]
    duplicates = api.pages(f"{path}?verdict=duplicate", 1)
    assert [row["id"] for page in duplicates for row in page] == [rows[1]["id"]]
    assert api.get(f"{path}?verdict=maybe").status_code == 422
    assert len(world.sql("select * from leasehook.events")) == 2


def test_what_was_received_can_be_replayed_like_any_event(
    api: Api, client: Client, world: World
) -> None:
    world.endpoint()
    source = make(api)
    send(client, source, sign("github", b"{}"))
    [row] = api.get(f"/v1/sources/{source['id']}/received").json()["data"]
    world.settle(*(world.report(claimed, "bury") for claimed in world.claim().claimed))
    assert world.statuses() == {"dead": 1}

    [delivery] = api.get("/v1/deliveries").json()["data"]
    assert delivery["event_id"] == row["event_id"]
    answer = api.post(f"/v1/deliveries/{delivery['id']}/replay")

    assert answer.status_code in (200, 202), answer.text
    assert world.statuses() == {"pending": 1}


def test_refusals_are_counted_by_reason(api: Api, client: Client) -> None:
    source = make(api, "stripe")
    send(client, source, sign("stripe", b"{}", secret="wrong"))
    send(client, source, sign("stripe", b"{}", secret="wrong"))
    send(client, source, sign("stripe", b"{}", at=int(time.time()) - 3600))
    path = f"/v1/sources/{source['id']}/refusals"

    rows = api.get(path).json()["data"]

    assert {row["reason"]: row["count"] for row in rows} == {
        "bad_signature": 2,
        "stale_timestamp": 1,
    }
    assert api.get(f"{path}?days=0").status_code == 422
    assert api.get(f"{path}?days=91").status_code == 422


def test_nobody_elses_source_can_be_seen_or_touched(api: Api, other: Api) -> None:
    """Just as if there were none."""
    for source_id in (make(api)["id"], str(uuid4())):
        path = f"/v1/sources/{source_id}"
        answers = [
            other.get(path),
            other.patch(path, {"description": "mine"}),
            other.delete(path),
            other.post(f"{path}/enable"),
            other.post(f"{path}/disable"),
            other.post(f"{path}/rotate-secret", {}),
            other.get(f"{path}/received"),
            other.get(f"{path}/refusals"),
        ]
        assert [answer.status_code for answer in answers] == [404] * len(answers)
    assert other.get("/v1/sources/nonsense").status_code == 422


def test_secrets_are_shown_once_and_stored_sealed(api: Api, client: Client, world: World) -> None:
    """WH-122."""
    source = make(api, secret=CANARY)
    path = f"/v1/sources/{source['id']}"
    send(client, source, sign("github", b"{}", secret=CANARY))
    send(client, source, sign("github", b"{}", secret="wrong"))
    answers = [
        api.get("/v1/sources"),
        api.get(path),
        api.patch(path, {"description": "x"}),
        api.post(f"{path}/disable"),
        api.get(f"{path}/received"),
        api.get(f"{path}/refusals"),
        api.post("/v1/sources", {"provider": "slack", "secret": CANARY + "-"}),
        api.post("/v1/sources", {"provider": CANARY, "secret": [CANARY]}),
    ]
    assert not any(CANARY in answer.text for answer in answers)
    for table in ("sources", "source_secrets", "received", "source_refusals", "events"):
        rows = world.sql(f"select t::text as row from leasehook.{table} as t")
        assert not any(CANARY in row["row"] or CANARY.encode().hex() in row["row"] for row in rows)


def test_old_counts_are_pruned_and_what_was_received_goes_with_its_event(
    api: Api, client: Client, world: World
) -> None:
    from shared.config import Settings
    from shared.maintenance import maintain

    source = make(api)
    request = sign("github", b"{}", message_id="id-1")
    send(client, source, request)
    send(client, source, request)
    send(client, source, sign("github", b"{}", secret="wrong"))
    world.pass_time(31 * 86400, {"events": ["created_at"]})
    world.sql("update leasehook.source_refusals set day = day - 91")

    upkeep = maintain(world.database, Settings(), lambda: False)

    assert (upkeep.events_pruned, upkeep.refusal_counts_pruned) == (1, 1)
    assert world.sql("select * from leasehook.received") == []
    assert world.sql("select * from leasehook.source_refusals") == []
