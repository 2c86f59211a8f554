"""Endpoints through the API, and what the drain makes of them."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks.webhooks import WebhookVerificationError

from functions.api import create_app
from shared.endpoints import EndpointChanges, change_endpoint, delete_endpoint, rotate_secret
from shared.maintenance import maintain
from shared.runtime import Runtime
from tests.management.conftest import Api, Client
from tests.support.lambdas import Lambdas, in_step, wait_until_somebody_waits_for_a_lock
from tests.support.receiver import Received, Receiver, answer
from tests.support.world import World

HOOK = "https://example.com/webhooks"
CANARY = "canary-5e1f"
HOUR = 3600.0


@pytest.fixture
def lambdas(world: World, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lambdas]:
    """The other functions, against the same database."""
    lambdas = Lambdas(world, database_url, monkeypatch)
    yield lambdas
    lambdas.close()


@pytest.fixture
def public_api(world: World, database_url: str) -> Iterator[Api]:
    """The API of an installation that sends to public addresses only."""
    runtime = Runtime.read(world.environment(database_url, LEASEHOOK_ALLOW_TARGETS=""))
    client = Client(create_app(runtime))
    yield Api(client, world.key())
    client.close()
    runtime.database.close()


@pytest.fixture
def runtime(world: World, database_url: str) -> Iterator[Runtime]:
    """What another process of the same installation works with."""
    runtime = Runtime.read(world.environment(database_url))
    yield runtime
    runtime.database.close()


def create(api: Api, url: str = HOOK, **fields: Any) -> dict[str, Any]:
    """A new endpoint with its secret."""
    made = api.post("/v1/endpoints", {"url": url, **fields})
    assert made.status_code == 201, made.text
    document: dict[str, Any] = made.json()
    return document


def path_of(endpoint: dict[str, Any], action: str = "") -> str:
    return f"/v1/endpoints/{endpoint['id']}{action}"


def fields_of(refusal: Any) -> list[str]:
    assert refusal.status_code == 422, refusal.text
    return [error["field"] for error in refusal.json()["errors"]]


def verify_v1a(request: Received, public_key: str) -> None:
    """Check an ed25519 signature as a receiver does; raises when none of them is right."""
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key.removeprefix("whpk_")))
    signed = b"%b.%b.%b" % (
        request.headers["webhook-id"].encode(),
        request.headers["webhook-timestamp"].encode(),
        request.body,
    )
    for entry in request.headers["webhook-signature"].split(" "):
        version, _, signature = entry.partition(",")
        if version == "v1a":
            key.verify(base64.b64decode(signature), signed)
            return
    raise InvalidSignature


def test_an_endpoint_is_shown_as_it_was_made_but_its_secrets_once_at_most(
    api: Api, world: World
) -> None:
    """WH-122."""
    said: dict[str, Any] = {
        "url": HOOK,
        "description": "Büro ✅",
        "consumer": "acme",
        "event_types": ["order.*", "user.created"],
        "channels": ["eu", "us"],
        "timeout_seconds": 5,
        "retry_delays_seconds": [10, 60],
        "max_in_flight": 3,
        "rate_per_second": 7,
        "ordered": True,
    }

    made = create(api, **said, headers={"Authorization": CANARY, "X-Team": "b"})

    secret = made.pop("secret")
    assert {name: made[name] for name in said} == said
    assert made["header_names"] == ["Authorization", "X-Team"]
    assert (made["signing"], made["public_key"]) == ("v1", None)
    assert made["circuit"] == {
        "state": "closed",
        "until": None,
        "consecutive_failures": 0,
        "failing_since": None,
    }
    assert made["disabled_at"] is None
    assert api.get(path_of(made)).json() == made
    listed = api.get("/v1/endpoints")
    assert listed.json() == {"data": [made], "next_cursor": None}
    assert CANARY not in listed.text
    assert secret not in listed.text
    stored = world.sql("select * from leasehook.endpoints, leasehook.endpoint_secrets")
    assert CANARY not in str(stored)
    assert secret.removeprefix("whsec_") not in str(stored)


def test_what_is_not_said_is_the_default(api: Api) -> None:
    made = create(api)
    assert (made["event_types"], made["ordered"], made["header_names"]) == (["*"], False, [])
    absent = ["description", "consumer", "channels", "timeout_seconds", "retry_delays_seconds"]
    assert {made[name] for name in [*absent, "max_in_flight", "rate_per_second"]} == {None}
    assert len(base64.b64decode(made["secret"].removeprefix("whsec_"), validate=True)) == 32


KEY_25 = bytes(range(230, 255))
PADDED = "whsec_" + base64.b64encode(KEY_25).decode()


@pytest.mark.parametrize("secret", [PADDED, PADDED.rstrip("="), PADDED.removeprefix("whsec_")])
def test_a_secret_of_ones_own_signs_in_every_form_it_may_have(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver, secret: str
) -> None:
    """WH-005."""
    assert create(api, receiver.url(), secret=secret)["secret"] == PADDED
    world.publish()
    lambdas.drain()
    receiver.received[0].verify(PADDED)


@pytest.mark.parametrize(
    "secret",
    [
        "whsec_" + base64.urlsafe_b64encode(KEY_25).decode(),
        PADDED + "\n",
        PADDED[:20] + " " + PADDED[20:],
        "",
        "   ",
        "whsec_",
        "whsec_!!!!",
        "whsec_QQ==",
        f"v1,{PADDED}",
        "whsk_" + "A" * 40,
    ],
)
def test_a_secret_of_another_form_is_refused_and_nothing_is_stored(
    api: Api, world: World, secret: str
) -> None:
    """WH-005, WH-006, WH-007."""
    endpoint = create(api)

    for refusal in (
        api.post("/v1/endpoints", {"url": HOOK, "secret": secret}),
        api.post(path_of(endpoint, "/rotate-secret"), {"secret": secret}),
    ):
        assert fields_of(refusal) == ["secret"]
        assert "expected 'whs" in refusal.json()["errors"][0]["rule"]

    assert len(world.sql("select 1 from leasehook.endpoint_secrets")) == 1


PRIVATE = [
    "127.0.0.1",
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "169.254.169.254",
    "169.254.100.1",
    "169.254.170.2",
    "192.0.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:a9fe:a9fe]",
    "[::127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:7f00:1::]",
    "[fe80::1]",
    "[fec0::1]",
    "[fd00:ec2::254]",
    "[ff02::1]",
    "localhost",
    "localhost.",
    "2130706433",
    "127.1",
    "0x7f.1",
]


def test_a_url_that_leads_inside_is_refused_on_creation_and_on_change(public_api: Api) -> None:
    """WH-071."""
    endpoint = create(public_api)
    accepted = [
        host
        for host in PRIVATE
        for answered in (
            public_api.post("/v1/endpoints", {"url": f"http://{host}:9001/x"}),
            public_api.patch(path_of(endpoint), {"url": f"http://{host}/"}),
        )
        if answered.status_code != 422 or fields_of(answered) != ["url"]
    ]
    assert accepted == []
    assert public_api.get("/v1/endpoints").json()["data"] == [
        {name: value for name, value in endpoint.items() if name != "secret"}
    ]


@pytest.mark.parametrize(
    "url",
    [
        "",
        " https://example.com/",
        "https://example.com/\n",
        "https://example.com/\t",
        f"https://user:{CANARY}@example.com/",
        f"https://example.com/#{CANARY}",
        "ftp://example.com/",
        "http:///x",
        "https://example.com\\@10.0.0.1/",
        "https://",
        "https://example.com/" + "a" * 5000,
        "https://example.com/\0",
        "//example.com/",
        "https://example.com:65536/",
    ],
)
def test_a_url_that_is_none_is_refused_without_being_repeated(api: Api, url: str) -> None:
    """WH-084."""
    refusal = api.post("/v1/endpoints", {"url": url})
    assert fields_of(refusal) == ["url"]
    assert CANARY not in refusal.text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("HTTPS://EXAMPLE.com:443", "https://example.com/"),
        ("https://b\u00fccher.example/", "https://xn--bcher-kva.example/"),
        ("https://example.com/a/../b?c=d", "https://example.com/b?c=d"),
    ],
)
def test_a_url_has_one_normal_form_on_creation_and_on_change(
    api: Api, url: str, shown: str
) -> None:
    """WH-084."""
    assert create(api, url)["url"] == shown
    assert api.patch(path_of(create(api)), {"url": url}).json()["url"] == shown


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"Webhook-Signature": CANARY}, "headers.Webhook-Signature"),
        ({" webhook-id": CANARY}, "headers"),
        ({"WEBHOOK-TIMESTAMP": CANARY}, "headers.WEBHOOK-TIMESTAMP"),
        ({"Content-Type": CANARY}, "headers.Content-Type"),
        ({"Content-Length": "1"}, "headers.Content-Length"),
        ({"Transfer-Encoding": CANARY}, "headers.Transfer-Encoding"),
        ({"Host": CANARY}, "headers.Host"),
        ({"Connection": CANARY}, "headers.Connection"),
        ({"Expect": CANARY}, "headers.Expect"),
        ({"X-A": CANARY, "x-a": CANARY}, "headers.x-a"),
        ({"X-A": f"{CANARY}\r\nX-B: 1"}, "headers.X-A"),
        ({"X-A": f"{CANARY}\n"}, "headers.X-A"),
        ({"X-A": f"{CANARY}\0"}, "headers.X-A"),
        ({"X-A": "caf\u00e9"}, "headers.X-A"),
        ({"X-A": f" {CANARY}"}, "headers.X-A"),
        ({"X-A": f"{CANARY} "}, "headers.X-A"),
        ({"X-A": CANARY * 10_000}, "headers.X-A"),
        ({"X A": CANARY}, "headers"),
        ({"X:A": CANARY}, "headers"),
        ({"X-\u00c4": CANARY}, "headers"),
        ({"": CANARY}, "headers"),
        ({f"X-{n}": CANARY for n in range(21)}, "headers"),
    ],
)
def test_a_header_that_is_not_an_endpoints_to_send_is_refused_without_its_value(
    api: Api, headers: dict[str, str], field: str
) -> None:
    """WH-081, WH-082."""
    endpoint = create(api)
    for refusal in (
        api.post("/v1/endpoints", {"url": HOOK, "headers": headers}),
        api.patch(path_of(endpoint), {"headers": headers}),
    ):
        assert fields_of(refusal) == [field]
        assert CANARY not in refusal.text
    assert api.get(path_of(endpoint)).json()["header_names"] == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"event_types": []}, "event_types"),
        ({"event_types": ["a"] * 101}, "event_types"),
        ({"event_types": ["a b"]}, "event_types.0"),
        ({"event_types": ["*.a"]}, "event_types.0"),
        ({"event_types": ["a" * 129]}, "event_types"),
        ({"event_types": None}, "event_types"),
        ({"event_types": "order.*"}, "event_types"),
        ({"channels": []}, "channels"),
        ({"channels": ["a b"]}, "channels.0"),
        ({"channels": ["a"] * 21}, "channels"),
        ({"description": "d" * 1001}, "description"),
        ({"description": "a\0"}, "description"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": 31}, "timeout_seconds"),
        ({"timeout_seconds": "5"}, "timeout_seconds"),
        ({"timeout_seconds": True}, "timeout_seconds"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"max_in_flight": 10_001}, "max_in_flight"),
        ({"rate_per_second": 0}, "rate_per_second"),
        ({"rate_per_second": 10**30}, "rate_per_second"),
        ({"retry_delays_seconds": [0]}, "retry_delays_seconds.0"),
        ({"retry_delays_seconds": [60] * 31}, "retry_delays_seconds"),
        ({"ordered": "yes"}, "ordered"),
        ({"ordered": None}, "ordered"),
        ({"url": None}, "url"),
        ({"headers": {"X-A": 1}}, "headers.X-A"),
        ({"id": str(uuid4())}, "id"),
    ],
)
def test_a_field_that_breaks_its_rule_is_named_on_creation_and_on_change(
    api: Api, fields: dict[str, Any], field: str
) -> None:
    """WH-041."""
    endpoint = create(api)
    assert fields_of(api.post("/v1/endpoints", {"url": HOOK, **fields})) == [field]
    assert fields_of(api.patch(path_of(endpoint), fields)) == [field]
    assert len(api.get("/v1/endpoints").json()["data"]) == 1


def test_neither_consumer_nor_secret_is_changed_in_passing(api: Api) -> None:
    endpoint = create(api)
    assert fields_of(api.patch(path_of(endpoint), {"consumer": "acme"})) == ["consumer"]
    assert fields_of(api.patch(path_of(endpoint), {"secret": PADDED})) == ["secret"]
    assert fields_of(api.post("/v1/endpoints", {"url": HOOK, "consumer": "a/b"})) == ["consumer"]


def test_a_change_changes_what_it_names_and_null_is_the_default(api: Api) -> None:
    made = create(
        api, description="d", channels=["eu"], headers={"X-A": "a"}, timeout_seconds=5, ordered=True
    )
    made.pop("secret")

    changed = api.patch(path_of(made), {"channels": None, "timeout_seconds": 7}).json()

    assert changed["updated_at"] > made["updated_at"]
    expected = {"channels": None, "timeout_seconds": 7, "updated_at": changed["updated_at"]}
    assert changed == made | expected
    assert api.patch(path_of(made), {}).json() == changed
    reset = api.patch(path_of(made), {"headers": None, "description": None}).json()
    assert (reset["header_names"], reset["description"]) == ([], None)


def test_changes_at_the_same_time_do_not_undo_one_another(
    api: Api, world: World, runtime: Runtime
) -> None:
    endpoint_id = UUID(create(api)["id"])

    def change(index: int) -> None:
        for value in range(1, 11):
            changes: list[EndpointChanges] = [
                {"timeout_seconds": value},
                {"max_in_flight": value},
                {"rate_per_second": value},
            ]
            change_endpoint(
                runtime.database,
                runtime.sealer,
                runtime.settings.targets,
                world.tenant_id,
                endpoint_id,
                changes=changes[index],
            )

    in_step(3, change)

    row = world.one("select * from leasehook.endpoints")
    assert (row["timeout_seconds"], row["max_in_flight"], row["rate_per_second"]) == (10, 10, 10)


def test_endpoints_are_listed_newest_first_by_consumer_and_by_whether_they_are_disabled(
    api: Api,
) -> None:
    plain, acme, off = create(api), create(api, consumer="acme"), create(api, consumer="acme")
    api.post(path_of(off, "/disable"))
    api.delete(path_of(create(api, consumer="acme")))

    def ids(query: str) -> list[str]:
        return [row["id"] for row in api.get(f"/v1/endpoints{query}").json()["data"]]

    assert ids("") == [off["id"], acme["id"], plain["id"]]
    assert ids("?consumer=acme") == [off["id"], acme["id"]]
    assert ids("?disabled=true") == [off["id"]]
    assert ids("?disabled=false&consumer=acme") == [acme["id"]]
    assert ids("?consumer=nobody") == []
    assert api.get("/v1/endpoints?consumer=a%00").status_code == 422


def test_a_rare_endpoint_is_found_by_pages_that_each_look_at_a_bounded_number(
    api: Api, world: World
) -> None:
    rare = create(api)
    api.post(path_of(rare, "/disable"))
    world.sql(
        """
        with made as (
            insert into leasehook.endpoints (tenant_id, url)
            select %s, 'https://example.com/' from generate_series(1, 4100)
            returning id, tenant_id
        )
        insert into leasehook.circuits (endpoint_id, tenant_id) select id, tenant_id from made
        """,
        world.tenant_id,
    )

    pages = api.pages("/v1/endpoints?disabled=true", limit=10)

    assert [len(page) for page in pages] == [0, 0, 1]
    assert pages[2][0]["id"] == rare["id"]
    everything = api.pages("/v1/endpoints", limit=200)
    assert len({row["id"] for page in everything for row in page}) == 4101


def test_pages_hold_each_endpoint_once_while_others_come_and_go(api: Api) -> None:
    made = [create(api)["id"] for _ in range(6)]
    first = api.get("/v1/endpoints?limit=2").json()
    api.delete(f"/v1/endpoints/{made[4]}")
    create(api)
    second = api.get(f"/v1/endpoints?limit=2&cursor={first['next_cursor']}").json()
    assert [row["id"] for row in first["data"] + second["data"]] == made[:1:-1]


def test_what_the_configured_keys_do_not_open_is_shown_as_unknown_and_can_be_rotated(
    api: Api, world: World, database_url: str
) -> None:
    lost = create(api, headers={"X-A": "a"})
    other_key = base64.b64encode(b"o" * 32).decode()
    runtime = Runtime.read(world.environment(database_url, LEASEHOOK_SECRET_KEY=other_key))
    client = Client(create_app(runtime))
    there = Api(client, api.key)

    shown = there.get("/v1/endpoints").json()["data"][0]
    rotated = there.post(path_of(lost, "/rotate-secret"), {"overlap_seconds": 0}).json()

    assert (shown["signing"], shown["header_names"]) == (None, None)
    assert rotated["signing"] == "v1"
    client.close()
    runtime.database.close()


def test_another_tenants_endpoint_is_not_found_and_nothing_happens_to_it(
    api: Api, other: Api, world: World
) -> None:
    theirs = create(other, timeout_seconds=5)
    before = world.sql("select * from leasehook.endpoints")
    for endpoint_id in (theirs["id"], str(uuid4())):
        path = f"/v1/endpoints/{endpoint_id}"
        answers = [
            api.get(path),
            api.patch(path, {"timeout_seconds": 9, "ordered": True, "url": HOOK}),
            api.delete(path),
            api.post(f"{path}/rotate-secret", {}),
            api.post(f"{path}/enable"),
            api.post(f"{path}/disable"),
            api.post(f"{path}/test"),
        ]
        assert [each.status_code for each in answers] == [404] * 7
        assert {each.json()["type"] for each in answers} == {"urn:leasehook:problem:not-found"}
    assert world.sql("select * from leasehook.endpoints") == before
    assert len(world.sql("select 1 from leasehook.endpoint_secrets")) == 1
    assert world.sql("select 1 from leasehook.events") == []
    assert api.get("/v1/endpoints").json()["data"] == []
    assert api.get("/v1/endpoints/x").status_code == 422


def test_an_ed25519_endpoint_is_verified_with_the_public_key_that_is_always_shown(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    made = create(api, receiver.url(), signing="v1a")
    assert made["secret"].startswith("whsk_")
    public_key = api.get(path_of(made)).json()["public_key"]
    assert public_key == made["public_key"]

    world.publish(b'{"a": 1.0}')
    lambdas.drain()

    [request] = receiver.received
    verify_v1a(request, public_key)
    assert "v1," not in request.headers["webhook-signature"]
    with pytest.raises(InvalidSignature):
        verify_v1a(request, create(api, signing="v1a")["public_key"])


def test_the_secret_says_its_kind_and_may_not_contradict_what_was_asked_for(api: Api) -> None:
    seed = "whsk_" + base64.b64encode(b"s" * 32).decode()
    assert create(api, secret=seed)["signing"] == "v1a"
    assert create(api, secret=PADDED, signing="v1")["signing"] == "v1"
    for secret, signing in ((seed, "v1"), (PADDED, "v1a")):
        body = {"url": HOOK, "secret": secret, "signing": signing}
        assert fields_of(api.post("/v1/endpoints", body)) == ["secret"]
    assert fields_of(api.post("/v1/endpoints", {"url": HOOK, "signing": "v2"})) == ["signing"]


def test_old_and_new_secret_both_sign_until_the_overlap_ends(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-010: with one delivery pending and another waiting for its retry."""
    receiver.answers["/hook"] = answer(503)
    made = create(api, receiver.url("/hook"), retry_delays_seconds=[60, 86_400])
    world.publish()
    lambdas.drain()
    world.publish()

    rotated = api.post(path_of(made, "/rotate-secret"), {"overlap_seconds": 7200}).json()

    assert rotated["secret"] != made["secret"]
    world.pass_time(HOUR)
    lambdas.drain()
    assert len(receiver.received) == 3
    for request in receiver.received[1:]:
        assert len(request.headers["webhook-signature"].split(" ")) == 2
        request.verify(made["secret"])
        request.verify(rotated["secret"])
    world.pass_time(2 * 86_400.0)
    lambdas.drain()
    for request in receiver.received[3:]:
        request.verify(rotated["secret"])
        with pytest.raises(WebhookVerificationError):
            request.verify(made["secret"])
    assert len(receiver.received) == 5


def test_without_overlap_the_old_secret_ends_at_once_and_is_erased(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    made = create(api, receiver.url())
    rotated = api.post(path_of(made, "/rotate-secret"), {"overlap_seconds": 0, "secret": PADDED})
    assert rotated.json()["secret"] == PADDED

    world.publish()
    lambdas.drain()

    assert " " not in receiver.received[0].headers["webhook-signature"]
    receiver.received[0].verify(PADDED)
    sealed = world.sql("select sealed from leasehook.endpoint_secrets order by created_at")
    assert [bool(row["sealed"]) for row in sealed] == [False, True]


def test_a_rotation_keeps_the_kind_of_signature_or_changes_it(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    made = create(api, receiver.url(), signing="v1a")
    same = api.post(path_of(made, "/rotate-secret"), {}).json()
    assert (same["signing"], same["public_key"] == made["public_key"]) == ("v1a", False)

    changed = api.post(path_of(made, "/rotate-secret"), {"signing": "v1"}).json()

    assert (changed["signing"], changed["public_key"]) == ("v1", None)
    world.publish()
    lambdas.drain()
    entries = receiver.received[0].headers["webhook-signature"].split(" ")
    assert [entry.partition(",")[0] for entry in entries] == ["v1", "v1a", "v1a"]
    receiver.received[0].verify(changed["secret"])


def test_no_more_than_five_secrets_sign_at_once(api: Api, world: World) -> None:
    made = create(api)
    path = path_of(made, "/rotate-secret")
    assert [api.post(path, {}).status_code for _ in range(5)] == [200] * 4 + [409]
    assert "overlap_seconds 0" in api.post(path, {}).json()["detail"]
    assert api.post(path, {"overlap_seconds": 0}).status_code == 200
    live = "select 1 from leasehook.endpoint_secrets where expires_at is null or expires_at > now()"
    assert len(world.sql(live)) == 1


def test_rotations_at_the_same_time_leave_one_secret_without_an_end(
    api: Api, world: World, runtime: Runtime
) -> None:
    endpoint = create(api)

    def rotate(_index: int) -> str:
        rotated = rotate_secret(
            runtime.database,
            runtime.sealer,
            world.tenant_id,
            UUID(endpoint["id"]),
            signing="v1a",
        )
        return str(rotated["public_key"])

    public_keys = in_step(4, rotate)

    assert len(world.sql("select 1 from leasehook.endpoint_secrets where expires_at is null")) == 1
    assert api.get(path_of(endpoint)).json()["public_key"] in public_keys


@pytest.mark.parametrize("overlap", [-1, 30 * 86400 + 1, "1", None, 1.5])
def test_an_overlap_outside_its_range_is_refused(api: Api, overlap: Any) -> None:
    refusal = api.post(path_of(create(api), "/rotate-secret"), {"overlap_seconds": overlap})
    assert fields_of(refusal) == ["overlap_seconds"]


def break_down(world: World, lambdas: Lambdas, receiver: Receiver, path: str) -> None:
    """Ten failures open the circuit; the deliveries wait for their retry."""
    receiver.answers[path] = answer(500)
    for _ in range(10):
        world.publish()
    lambdas.drain()


def test_a_new_url_is_tried_at_once_with_a_clean_circuit(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-103, WH-016: what waits goes to the new URL, signed with the secret of the endpoint."""
    made = create(api, receiver.url("/old"))
    break_down(world, lambdas, receiver, "/old")
    broken = api.get(path_of(made)).json()["circuit"]
    assert (broken["state"], broken["consecutive_failures"]) == ("open", 10)
    assert broken["until"] is not None

    changed = api.patch(path_of(made), {"url": receiver.url("/new")}).json()

    assert changed["circuit"] == made["circuit"]
    world.publish()
    lambdas.drain()
    assert len(receiver.at("/old")) == 10
    assert len(receiver.at("/new")) == 1
    world.sql("update leasehook.deliveries set claimable_at = now() where status = 'failed'")
    lambdas.drain()
    assert len(receiver.at("/old")) == 10
    assert len(receiver.at("/new")) == 11
    for request in receiver.at("/new"):
        request.verify(made["secret"])


def test_the_same_url_in_another_form_resets_nothing(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-103."""
    made = create(api, receiver.url("/old"))
    break_down(world, lambdas, receiver, "/old")
    same = receiver.url("/x/../old").replace("http", "HTTP")
    changed = api.patch(path_of(made), {"url": same, "timeout_seconds": 3}).json()
    assert changed["circuit"]["state"] == "open"


@pytest.mark.parametrize("status", [410, 500])
def test_what_the_old_url_answers_late_does_not_count_against_the_new_one(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver, status: int
) -> None:
    """WH-103."""
    gate = receiver.gate()
    receiver.answers["/old"] = gate.then(answer(status))
    made = create(api, receiver.url("/old"))
    world.publish()
    [draining] = lambdas.drain_together(1)
    receiver.wait_for(1)

    api.patch(path_of(made), {"url": receiver.url("/new")})
    gate.open()
    draining.result(30)

    shown = api.get(path_of(made)).json()
    assert (shown["disabled_at"], shown["circuit"]) == (None, made["circuit"])


def test_a_new_url_ends_a_disabling_for_failures_and_keeps_an_operators(
    api: Api, world: World
) -> None:
    """WH-103."""
    given_up, switched_off = create(api), create(api)
    world.sql("update leasehook.endpoints set disabled_at = now(), disabled_reason = 'gone'")
    api.post(path_of(switched_off, "/disable"))

    for endpoint in (given_up, switched_off):
        api.patch(path_of(endpoint), {"url": "https://example.com/new"})

    assert api.get(path_of(given_up)).json()["disabled_reason"] is None
    assert api.get(path_of(switched_off)).json()["disabled_reason"] == "operator"
    assert world.circuit(UUID(given_up["id"]))["recovered_at"] is not None


def test_what_comes_while_an_endpoint_is_disabled_waits_and_goes_out_gently(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-102."""
    made = create(api, receiver.url())
    for _ in range(3):
        world.publish()
    off = api.post(path_of(made, "/disable")).json()
    for _ in range(5):
        world.publish()

    lambdas.drain()

    assert (off["disabled_reason"], receiver.received) == ("operator", [])
    assert world.statuses() == {"pending": 8}
    assert api.post(path_of(made, "/disable")).json() == off

    gate = receiver.gate()
    receiver.default = gate.then(answer())
    on = api.post(path_of(made, "/enable")).json()
    assert (on["disabled_at"], on["disabled_reason"]) == (None, None)
    with world.database.connection() as connection:
        connection.execute("update leasehook.circuits set recovered_at = now()")
    assert len(world.claim().claimed) == 1
    assert world.claim().claimed == []
    gate.open()
    world.pass_time(2 * HOUR)
    lambdas.drain()
    assert world.statuses() == {"succeeded": 8}


def test_an_operators_word_replaces_the_reason_and_keeps_the_age(api: Api, world: World) -> None:
    made = create(api)
    world.sql(
        "update leasehook.endpoints set disabled_at = '2020-01-01Z', disabled_reason = 'failing'"
    )
    off = api.post(path_of(made, "/disable")).json()
    assert off["disabled_reason"] == "operator"
    assert off["disabled_at"].startswith("2020-01-01")


def test_enabling_forgets_failures_and_is_gentle_only_after_trouble(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    made = create(api, receiver.url("/old"))
    api.post(path_of(made, "/enable"))
    assert world.circuit(UUID(made["id"]))["recovered_at"] is None

    break_down(world, lambdas, receiver, "/old")
    on = api.post(path_of(made, "/enable")).json()

    assert on["circuit"] == made["circuit"]
    assert world.circuit(UUID(made["id"]))["recovered_at"] is not None


def test_nothing_more_is_sent_to_a_deleted_endpoint(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-016."""
    made = create(api, receiver.url(), headers={"X-A": CANARY})
    for _ in range(3):
        world.publish()

    assert api.delete(path_of(made)).status_code == 204

    assert api.get(path_of(made)).status_code == 404
    assert api.delete(path_of(made)).status_code == 404
    world.publish()
    summary = lambdas.drain()
    assert (summary["claimed"], receiver.received) == (0, [])
    assert world.statuses() == {"cancelled": 3}
    row = world.one("select headers_sealed from leasehook.endpoints")
    assert row["headers_sealed"] is None
    assert world.one("select sealed from leasehook.endpoint_secrets")["sealed"] == b""


def test_an_endpoint_with_thirty_thousand_deliveries_is_deleted_quickly(
    api: Api, world: World, runtime: Runtime
) -> None:
    """WH-059: a bounded number is cancelled at once, the rest by maintenance."""
    made = create(api)
    world.sql(
        """
        with made as (
            insert into leasehook.events (tenant_id, type, content_type, payload)
            select %s, 'a', 'application/json', '1' from generate_series(1, 30000)
            returning id, tenant_id
        )
        insert into leasehook.deliveries (tenant_id, event_id, endpoint_id, claimable_at)
        select made.tenant_id, made.id, %s, now() from made
        """,
        world.tenant_id,
        UUID(made["id"]),
    )
    world.sql("analyze leasehook.deliveries")

    began = time.monotonic()
    assert api.delete(path_of(made)).status_code == 204
    took_seconds = time.monotonic() - began

    assert world.statuses() == {"pending": 28_000, "cancelled": 2_000}
    assert took_seconds < 2
    assert world.claim().claimed == []
    maintain(world.database, runtime.settings, lambda: False)
    assert world.statuses() == {"cancelled": 30_000}


def test_events_published_while_endpoints_are_deleted_reach_the_others(
    api: Api, world: World, runtime: Runtime
) -> None:
    """WH-016: and nobody gets an error."""
    stays = create(api)

    def work(index: int) -> None:
        for _ in range(40):
            if index:
                world.publish()
            else:
                delete_endpoint(runtime.database, world.tenant_id, world.endpoint()["id"])

    in_step(3, work)

    arrived = "select 1 from leasehook.deliveries where endpoint_id = %s"
    assert len(world.sql(arrived, UUID(stays["id"]))) == 80


def test_a_test_event_goes_to_one_endpoint_whatever_it_takes(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    made = create(
        api, receiver.url("/one"), event_types=["order.paid"], channels=["eu"], consumer="acme"
    )
    create(api, receiver.url("/two"))

    sent = api.post(path_of(made, "/test"))
    lambdas.drain()

    assert sent.status_code == 202
    [request] = receiver.received
    assert request.path == "/one"
    request.verify(made["secret"])
    assert request.webhook_id == sent.json()["event_id"]
    assert request.headers["idempotency-key"] == sent.json()["delivery_id"]
    assert json.loads(request.body)["endpoint_id"] == made["id"]
    assert world.one("select type, consumer from leasehook.events") == {
        "type": "leasehook.test",
        "consumer": "acme",
    }


def test_a_test_event_for_a_disabled_endpoint_is_refused_with_the_remedy(
    api: Api, world: World
) -> None:
    made = create(api)
    api.post(path_of(made, "/disable"))
    refusal = api.post(path_of(made, "/test"))
    assert refusal.status_code == 409
    assert "enable it first" in refusal.json()["detail"]
    assert world.sql("select 1 from leasehook.events") == []


def test_a_test_event_that_dies_is_not_announced(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    receiver.default = answer(500)
    made = create(api, receiver.url(), retry_delays_seconds=[], event_types=["delivery.dead"])
    api.post(path_of(made, "/test"))
    lambdas.drain()
    assert world.statuses() == {"dead": 1}


def test_an_ordered_endpoint_gets_its_events_in_order_and_waits_for_the_one_that_fails(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    failing = [answer(500)]
    receiver.default = lambda request: (
        failing.pop() if failing and request.body == b"25" else answer()
    )
    create(api, receiver.url(), ordered=True, retry_delays_seconds=[3600])
    for number in range(50):
        world.publish(str(number).encode())

    for draining in lambdas.drain_together(3):
        draining.result(60)
    until_it_failed = [int(request.body) for request in receiver.received]
    world.pass_time(2 * HOUR)
    for draining in lambdas.drain_together(3):
        draining.result(60)

    assert until_it_failed == list(range(26))
    assert [int(request.body) for request in receiver.received[26:]] == list(range(25, 50))
    assert receiver.most_in_flight == 1


def test_an_endpoint_that_becomes_ordered_takes_what_waits_into_its_line(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    made = create(api, receiver.url())
    for number in range(20):
        world.publish(str(number).encode(), priority=number)

    api.patch(path_of(made), {"ordered": True})
    lanes = world.sql("select distinct rank from leasehook.deliveries")
    for draining in lambdas.drain_together(2):
        draining.result(60)

    assert [int(request.body) for request in receiver.received] == list(range(20))
    assert lanes == [{"rank": 0}]


def test_an_endpoint_becomes_ordered_only_once_all_that_waits_is_in_line(
    api: Api, world: World, runtime: Runtime
) -> None:
    """What is not in line yet would be overtaken."""
    endpoint_id = UUID(create(api)["id"])
    world.publish()

    def change() -> None:
        change_endpoint(
            runtime.database,
            runtime.sealer,
            runtime.settings.targets,
            world.tenant_id,
            endpoint_id,
            changes={"ordered": True},
        )

    changing = threading.Thread(target=change)
    with world.database.transaction() as connection:
        connection.execute("select 1 from leasehook.deliveries for update")
        changing.start()
        wait_until_somebody_waits_for_a_lock(world)
        meanwhile = world.one("select ordered from leasehook.endpoints")["ordered"]
    changing.join()

    assert not meanwhile
    assert world.one("select ordered from leasehook.endpoints")["ordered"]


def test_an_endpoint_that_is_no_longer_ordered_sends_what_waits_side_by_side(
    api: Api, world: World
) -> None:
    made = create(api, ordered=True)
    for _ in range(5):
        world.publish()
    assert len(world.claim().claimed) == 1

    api.patch(path_of(made), {"ordered": False})

    assert len(world.claim().claimed) == 4
    assert world.sql("select 1 from leasehook.deliveries where ordered") == []


def test_a_long_queue_is_put_in_line_in_short_transactions(api: Api, world: World) -> None:
    made = create(api)
    world.publish_many(4_500)
    api.patch(path_of(made), {"ordered": True})
    assert world.sql("select 1 from leasehook.deliveries where not ordered") == []
    transactions = world.one(
        "select count(distinct xmin::text) as total from leasehook.deliveries where ordered"
    )
    assert transactions["total"] >= 3


def test_what_was_being_published_while_an_endpoint_became_ordered_is_in_line_too(
    api: Api, world: World, runtime: Runtime
) -> None:
    """It would never be the head of the line, and never be sent: maintenance puts it there."""
    made = create(api)
    with world.database.transaction() as connection:
        connection.execute(
            "select leasehook.publish(%s, 'order.paid', '{}'::json)", [world.tenant_id]
        )
        assert api.patch(path_of(made), {"ordered": True}).status_code == 200
    assert world.claim().claimed == []

    maintain(world.database, runtime.settings, lambda: False)

    assert len(world.claim().claimed) == 1


def test_an_endpoint_changes_while_it_is_published_to_and_drained_without_harm(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    made = create(api, receiver.url())
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            world.publish()

    publishing = threading.Thread(target=publish)
    publishing.start()
    drains = lambdas.drain_together(2, lasting_seconds=25.0)
    try:
        changes = [
            api.patch(path_of(made), {"ordered": ordered, "url": receiver.url(f"/{round_}")})
            for round_ in range(10)
            for ordered in (True, False)
        ]
    finally:
        stop.set()
        publishing.join()
    for draining in drains:
        draining.result(60)
    lambdas.drain()

    assert {each.status_code for each in changes} == {200}
    assert set(world.statuses()) == {"succeeded"}


def test_the_cap_on_requests_in_flight_holds_over_all_drains(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    gate = receiver.gate()
    receiver.default = gate.then(answer())
    create(api, receiver.url(), max_in_flight=2)
    world.publish_many(12)

    drains = lambdas.drain_together(3)
    receiver.wait_for(2)
    gate.open()
    for draining in drains:
        draining.result(60)
    while world.statuses() != {"succeeded": 12}:
        lambdas.drain()

    assert receiver.most_in_flight == 2


def test_the_rate_holds_over_all_drains(
    api: Api, world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    create(api, receiver.url(), rate_per_second=20)
    world.publish_many(25)

    lambdas.deploy(LEASEHOOK_DRAIN_LINGER_SECONDS="0.5")
    for draining in lambdas.drain_together(3):
        draining.result(60)

    arrived = sorted(request.arrived_at for request in receiver.received)
    assert len(arrived) == 25
    # Half a second's worth of 20 per second comes at once, the other 15 one by one.
    assert arrived[-1] - arrived[0] > 0.6


def test_a_changed_limit_holds_from_the_next_claim_on(api: Api, world: World) -> None:
    made = create(api)
    world.publish_many(10)
    api.patch(path_of(made), {"max_in_flight": 3})
    assert len(world.claim().claimed) == 3
    api.patch(path_of(made), {"max_in_flight": None})
    assert len(world.claim().claimed) == 7


def test_channels_and_filters_decide_what_an_endpoint_gets(api: Api, world: World) -> None:
    made = create(api, event_types=["order.*"], channels=["eu"])
    world.publish(event_type="order.paid", channels=["eu"])
    world.publish(event_type="order.paid", channels=["us"])
    world.publish(event_type="user.created", channels=["eu"])
    assert len(world.sql("select 1 from leasehook.deliveries")) == 1

    api.patch(path_of(made), {"event_types": ["user.created"], "channels": None})

    world.publish(event_type="order.paid", channels=["eu"])
    world.publish(event_type="user.created")
    assert len(world.sql("select 1 from leasehook.deliveries")) == 2
