"""The inbound gateway: what a provider has signed is committed once, to the byte; everything else leaves nothing."""

import base64
import logging
import time
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any
from uuid import UUID

import psycopg
import pytest

from shared.inbound import RefusalCounts
from shared.sources import (
    NewSource,
    create_source,
    delete_source,
    refusals,
    rotate_source_secret,
    switch_source,
)
from shared.store.connection import Row
from shared.store.tenancy import ensure_tenant
from tests.support.lambda_events import (
    Event,
    FakeContext,
    function_url,
    http_api,
    load_balancer,
    multi_value_load_balancer,
    rest_api,
)
from tests.support.lambdas import PROBLEM, Answer, Lambdas, in_step, read_answer
from tests.support.providers import GENERIC, GITHUB_SECRET, SECRETS, Signed, sign
from tests.support.receiver import Receiver
from tests.support.world import World

SHAPES: list[Callable[..., Event]] = [
    http_api,
    rest_api,
    function_url,
    load_balancer,
    multi_value_load_balancer,
]
EMOJI = '{"msg": "déploiement ✅ 🚀"}'.encode()
PRETTY = b'{\r\n  "id": "evt_1",\r\n  "type": "invoice.paid",\r\n  "q": "a\\u0026b\\/c"\r\n}\r\n'


def a_source(
    world: World, provider: str = "github", *, tenant_id: UUID | None = None, **fields: Any
) -> Row:
    """A source with the secret that `sign` signs with."""
    new = NewSource(
        provider=provider,
        configuration=GENERIC if provider == "hmac" else None,
        **{"secret": SECRETS[provider], **fields},
    )
    return create_source(world.database, world.sealer, tenant_id or world.tenant_id, new)


def send(
    lambdas: Lambdas,
    path: str,
    request: Signed,
    shape: Callable[..., Event] = http_api,
    *,
    encoded: bool = True,
) -> Answer:
    event = shape("POST", path, request.body, dict(request.headers), encoded=encoded)
    return invoke(lambdas, event)


def invoke(lambdas: Lambdas, event: Event) -> Answer:
    return read_answer(lambdas.warm("ingest").invoke(event, FakeContext.lasting(30)))


def changed(request: Signed, *, body: bytes | None = None, **headers: str | None) -> Signed:
    """The request with another body, and with headers set or (None) left out; names with `_` for `-`."""
    named = {name.replace("_", "-").lower(): value for name, value in headers.items()}
    kept = {name.lower(): value for name, value in request.headers.items()} | named
    return Signed(
        {name: value for name, value in kept.items() if value is not None},
        request.body if body is None else body,
    )


def events(world: World) -> list[Row]:
    return world.sql("select * from leasehook.events order by id")


def reasons(world: World, source: Row) -> Mapping[str, int]:
    rows = refusals(world.database, world.tenant_id, source["id"], 1)
    return {row["reason"]: row["count"] for row in rows}


@pytest.mark.parametrize("provider", SECRETS)
def test_what_a_provider_signs_is_committed_and_with_one_byte_changed_it_is_not(
    world: World, lambdas: Lambdas, provider: str
) -> None:
    """WH-002, WH-020, WH-021: through every kind of front, base64 or not."""
    source = a_source(world, provider)
    for shape, encoded in product(SHAPES, (False, True)):
        request = sign(provider, PRETTY.replace(b"evt_1", f"evt_{time.time_ns()}".encode()))
        forged = Signed(request.headers, request.body.replace(b"\r\n  ", b"\r\n ", 1))
        before = len(events(world))

        assert send(lambdas, source["path"], forged, shape, encoded=encoded).status == 401
        assert len(events(world)) == before
        answer = send(lambdas, source["path"], request, shape, encoded=encoded)

        assert (answer.status, answer.text) == (200, ""), (shape, encoded)
        assert answer.headers["leasehook-verdict"] == "accepted"
        event = events(world)[-1]
        assert answer.headers["leasehook-event-id"] == str(event["id"])
        assert event["payload"] == request.body
        assert event["content_type"] == "application/json"
    assert reasons(world, source) == {"bad_signature": len(SHAPES) * 2}


BODIES = {
    "pretty": (PRETTY, "application/json; charset=utf-8"),
    "emoji": (EMOJI, "application/json"),
    "form": (b"payload=%7B%22a%22%3A+1%7D&b=%E9", "application/x-www-form-urlencoded"),
    "binary": (bytes(range(256)), "application/octet-stream"),
    "cloud event": (b'{"specversion":"1.0"}', "application/cloudevents+json"),
    "NUL escapes": (b'["x\\u0000y", {"k\\u0000": 1}, "x\\\\u0000y"]', "application/json"),
    "half a surrogate": (b'{"a":"\\ud83d", "action": "\\ud83d"}', "application/json"),
    "NUL bytes": (b"\0\0", "text/plain"),
    "deep": (b"[" * 100_000, "application/json"),
    "empty": (b"", "application/json"),
}


@pytest.mark.parametrize("name", BODIES)
def test_whatever_is_signed_is_sent_on_as_it_came(
    world: World, lambdas: Lambdas, receiver: Receiver, name: str
) -> None:
    """WH-003, WH-020, WH-024, WH-040, WH-042: a body that is no JSON, or empty, is as good as any."""
    body, content_type = BODIES[name]
    endpoint = world.endpoint(receiver.url())
    source = a_source(world, event_type_prefix="github")

    answer = send(lambdas, source["path"], sign("github", body, content_type=content_type))
    lambdas.drain()

    assert answer.status == 200
    [received] = receiver.received
    assert received.body == body
    assert received.headers["content-type"] == content_type
    assert received.webhook_id == answer.headers["leasehook-event-id"]
    expected = sign(
        "standard_webhooks",
        body,
        secret=endpoint["secret"],
        at=int(received.headers["webhook-timestamp"]),
        message_id=received.webhook_id,
    )
    assert received.headers["webhook-signature"] == expected.headers["webhook-signature"]


@pytest.mark.parametrize("sent", [None, "texte/é", "x" * 300])
def test_a_content_type_that_cannot_be_sent_on_becomes_octets(
    world: World, lambdas: Lambdas, sent: str | None
) -> None:
    source = a_source(world)
    assert send(lambdas, source["path"], sign("github", b"{}", content_type=sent)).status == 200
    assert events(world)[0]["content_type"] == "application/octet-stream"


def test_the_event_is_the_providers_behind_the_sources_prefix_and_for_its_consumer(
    world: World, lambdas: Lambdas
) -> None:
    theirs = world.endpoint(event_types=["gh.pull_request.*"], consumer="acme")
    world.endpoint(event_types=["gh.pull_request.*"])
    source = a_source(world, event_type_prefix="gh", consumer="acme")

    send(lambdas, source["path"], sign("github", b'{"action":"opened"}', event="pull_request"))

    [event] = events(world)
    assert (event["type"], event["consumer"]) == ("gh.pull_request.opened", "acme")
    [delivery] = world.sql("select endpoint_id from leasehook.deliveries")
    assert delivery["endpoint_id"] == theirs["id"]


def test_a_type_that_gets_too_long_behind_the_prefix_is_cut(world: World, lambdas: Lambdas) -> None:
    source = a_source(world, event_type_prefix="p" * 64)
    send(lambdas, source["path"], sign("github", b"{}", event="e" * 128))
    assert events(world)[0]["type"] == "p" * 64 + "." + "e" * 63


def test_unknown_disabled_deleted_and_forged_are_not_told_apart(
    world: World, lambdas: Lambdas
) -> None:
    """The answer is the same to the byte, and nothing is stored."""
    disabled, deleted, forged = (a_source(world) for _ in range(3))
    switch_source(world.database, world.tenant_id, disabled["id"], disabled=True)
    delete_source(world.database, world.tenant_id, deleted["id"])
    request = sign("github", EMOJI)
    wrong = sign("github", EMOJI, secret="another")

    answers = [
        send(lambdas, disabled["path"], request),
        send(lambdas, deleted["path"], request),
        send(lambdas, forged["path"], wrong),
        send(lambdas, forged["path"], changed(request, X_Hub_Signature_256=None)),
        send(lambdas, "/in/nobody", request),
        send(lambdas, "/in/%00", request),
        send(lambdas, "/in/" + "x" * 5000, request),
        send(lambdas, "/in/..%2f..", Signed({}, b"")),
    ]

    assert {answer.status for answer in answers} - {401, 404} == set()
    same = {(a.status, a.text, tuple(sorted(a.headers.items()))) for a in answers[:7]}
    assert len(same) == 1
    assert answers[0].status == 401
    assert answers[0].headers["content-type"] == PROBLEM
    assert events(world) == []
    assert world.sql("select * from leasehook.received") == []
    assert reasons(world, disabled) == {"disabled": 1}
    assert reasons(world, forged) == {"bad_signature": 1, "missing_signature": 1}


def test_a_source_that_is_enabled_again_accepts_again(world: World, lambdas: Lambdas) -> None:
    source = a_source(world)
    for disabled, status in ((True, 401), (False, 200)):
        switch_source(world.database, world.tenant_id, source["id"], disabled=disabled)
        assert send(lambdas, source["path"], sign("github", b"{}")).status == status


@pytest.mark.parametrize(
    ("provider", "header"),
    [
        ("github", {"x-hub-signature-256": "sha256=é" + "0" * 63}),
        ("stripe", {"stripe-signature": "t=1700000000,v1=é"}),
        ("standard_webhooks", {"webhook-signature": "v1,é"}),
        ("github", {"x-hub-signature-256": "sha256=" + "\x00\x7f"}),
    ],
)
def test_bytes_that_are_no_ascii_in_a_signature_are_a_wrong_signature(
    world: World,
    lambdas: Lambdas,
    caplog: pytest.LogCaptureFixture,
    provider: str,
    header: dict[str, str],
) -> None:
    """WH-013: through every kind of front."""
    source = a_source(world, provider)
    signed = sign(provider, b"{}")
    headers = {name.lower(): value for name, value in signed.headers.items()} | header
    request = Signed(headers, signed.body)
    with caplog.at_level(logging.ERROR):
        for shape in SHAPES:
            assert send(lambdas, source["path"], request, shape).status == 401
    assert caplog.records == []


@pytest.mark.parametrize("shape", [http_api, rest_api, load_balancer])
def test_names_of_headers_and_hexadecimal_have_no_case_and_sha1_is_worth_nothing(
    world: World, lambdas: Lambdas, shape: Callable[..., Event]
) -> None:
    """WH-014: an upper-case digest is accepted."""
    source = a_source(world)
    request = sign("github", b"{}")
    signature = request.headers["X-Hub-Signature-256"]
    rest = changed(request, X_Hub_Signature_256=None).headers
    sha1 = {"X-Hub-Signature": "sha1=" + "0" * 40}
    for headers, status in [
        ({"x-hub-signature-256": signature}, 200),
        ({"X-HUB-SIGNATURE-256": "sha256=" + signature.removeprefix("sha256=").upper()}, 200),
        (sha1, 401),
        ({**sha1, "X-Hub-Signature-256": "sha256=" + "0" * 64}, 401),
    ]:
        answer = send(lambdas, source["path"], Signed({**rest, **headers}, b"{}"), shape)
        assert answer.status == status, headers


def test_absent_null_and_empty_bodies_are_signed_or_refused_like_any_other(
    world: World, lambdas: Lambdas
) -> None:
    """WH-024: a signature over no bytes is a signature."""
    source = a_source(world)
    signed = dict(sign("github", b"").headers)
    for body in ({"body": None}, {}, {"body": ""}):
        event = {**http_api("POST", source["path"], headers=signed), **body}
        assert invoke(lambdas, event).status == 200
        signed["X-GitHub-Delivery"] += "x"
        assert invoke(lambdas, {**event, "headers": {}}).status == 401
    nothing = rest_api("POST", source["path"]) | {"headers": None, "multiValueHeaders": None}
    assert invoke(lambdas, nothing).status == 401
    assert [event["payload"] for event in events(world)] == [b"", b"", b""]


def test_base64_that_is_none_is_a_bad_request(world: World, lambdas: Lambdas) -> None:
    """WH-020."""
    source = a_source(world)
    event = http_api("POST", source["path"], b"", dict(sign("github", b"").headers))
    answer = invoke(lambdas, {**event, "body": "%%%", "isBase64Encoded": True})
    assert answer.status == 400


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_post_is_served(world: World, lambdas: Lambdas, method: str) -> None:
    source = a_source(world)
    assert invoke(lambdas, http_api(method, source["path"])).status == 405


def test_what_is_too_large_is_413_whoever_asks(world: World, lambdas: Lambdas) -> None:
    lambdas.deploy(LEASEHOOK_MAX_PAYLOAD_BYTES="100")
    source = a_source(world)
    for path in (source["path"], "/in/nobody"):
        assert send(lambdas, path, sign("github", b"x" * 101)).status == 413
    assert send(lambdas, source["path"], sign("github", b"x" * 100)).status == 200


def test_a_database_that_does_not_answer_is_503_and_the_provider_may_come_again(
    world: World, lambdas: Lambdas, database_url: str
) -> None:
    """WH-063: nothing of where the database is gets out."""
    source = a_source(world)
    request = sign("github", b"{}")
    lambdas.deploy(DATABASE_URL=psycopg.conninfo.make_conninfo(database_url, port=9))
    answer = send(lambdas, source["path"], request)
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert "127.0.0.1" not in answer.text

    lambdas.deploy()
    assert send(lambdas, source["path"], request).headers["leasehook-verdict"] == "accepted"


def test_what_comes_again_is_answered_and_not_stored_again(world: World, lambdas: Lambdas) -> None:
    """WH-110: other transport headers, a new timestamp and a new signature make it no other event."""
    world.endpoint()
    sources = {
        "github": a_source(world),
        "stripe": a_source(world, "stripe"),
        "standard_webhooks": a_source(world, "standard_webhooks"),
    }
    now = int(time.time())
    for provider, source in sources.items():
        ids = set()
        for attempt, verdict in enumerate(["accepted", "duplicate", "duplicate"]):
            request = sign(provider, PRETTY, at=now - attempt, message_id="msg_1")
            answer = send(lambdas, source["path"], changed(request, X_Request_Id=str(attempt)))
            assert (answer.status, answer.headers["leasehook-verdict"]) == (200, verdict)
            ids.add(answer.headers["leasehook-event-id"])
        assert len(ids) == 1
    assert len(events(world)) == len(sources)
    assert world.statuses() == {"pending": len(sources)}


def test_the_same_id_at_another_source_is_another_event(world: World, lambdas: Lambdas) -> None:
    """WH-108: of the same tenant and of another."""
    sources = [
        a_source(world),
        a_source(world),
        a_source(world, tenant_id=ensure_tenant(world.database, "other")),
    ]
    for _ in range(2):
        for source in sources:
            request = sign("github", b"{}", message_id="72d3162e-cc78-11e3-81ab-4c9367dc0958")
            assert send(lambdas, source["path"], request).status == 200
    stored = world.sql("select source_id, verdict, times from leasehook.received order by id")
    assert [row["source_id"] for row in stored if row["verdict"] == "accepted"] == [
        source["id"] for source in sources
    ]
    assert len(events(world)) == len(sources)


def test_without_an_id_nothing_is_a_duplicate(world: World, lambdas: Lambdas) -> None:
    """WH-110: neither a missing id nor a blank one makes two events one."""
    source = a_source(world)
    for own_id in (None, None, "", "  "):
        request = changed(sign("github", b"{}"), X_GitHub_Delivery=own_id)
        assert send(lambdas, source["path"], request).headers["leasehook-verdict"] == "accepted"
    assert len(events(world)) == 4


def test_of_many_that_come_at_once_with_one_id_one_is_stored(
    world: World, lambdas: Lambdas
) -> None:
    """WH-112."""
    world.endpoint()
    source = a_source(world)
    request = sign("github", b"{}", message_id="once")
    environments = [lambdas.cold("ingest") for _ in range(8)]

    def one(index: int) -> Answer:
        event = http_api("POST", source["path"], request.body, dict(request.headers))
        return read_answer(environments[index].invoke(event, FakeContext.lasting(30)))

    answers = in_step(8, one)

    assert [answer.status for answer in answers] == [200] * 8
    assert len({answer.headers["leasehook-event-id"] for answer in answers}) == 1
    verdicts = [answer.headers["leasehook-verdict"] for answer in answers]
    assert verdicts.count("accepted") == 1
    assert len(events(world)) == 1
    assert world.statuses() == {"pending": 1}


def test_when_the_fan_out_fails_nothing_is_stored_and_the_retry_is_no_duplicate(
    world: World, lambdas: Lambdas
) -> None:
    """WH-112: record, event and deliveries are one transaction."""
    world.endpoint()
    source = a_source(world)
    request = sign("github", b"{}", message_id="once")
    world.sql(
        """
        create function fail() returns trigger language plpgsql
        as $$ begin raise exception 'full' using errcode = 'disk_full'; end $$
        """
    )
    for table in ("deliveries", "events", "received"):
        world.sql(
            f"create trigger fails before insert on leasehook.{table} execute function fail()"
        )
        assert send(lambdas, source["path"], request).status == 503
        world.sql(f"drop trigger fails on leasehook.{table}")
        assert events(world) == []
        assert world.sql("select * from leasehook.received") == []

    assert send(lambdas, source["path"], request).headers["leasehook-verdict"] == "accepted"
    assert send(lambdas, source["path"], request).headers["leasehook-verdict"] == "duplicate"
    assert world.statuses() == {"pending": 1}


def test_both_secrets_are_accepted_while_they_overlap(world: World, lambdas: Lambdas) -> None:
    """WH-010, for what comes in."""
    source = a_source(world)
    key = (world.database, world.sealer, world.tenant_id, source["id"])
    newer = rotate_source_secret(*key, overlap_seconds=60)["secret"]
    assert newer != GITHUB_SECRET
    for secret in (GITHUB_SECRET, newer):
        assert send(lambdas, source["path"], sign("github", b"{}", secret=secret)).status == 200

    world.pass_time(61, {"source_secrets": ["created_at", "expires_at"]})
    assert send(lambdas, source["path"], sign("github", b"{}")).status == 401
    assert send(lambdas, source["path"], sign("github", b"{}", secret=newer)).status == 200


@pytest.mark.parametrize(
    "damage",
    [
        "delete from leasehook.source_secrets",
        "update leasehook.source_secrets set sealed = ''",
        "update leasehook.source_secrets set sealed = decode('00', 'hex') || sealed",
        "update leasehook.source_secrets set expires_at = now() - interval '1 second'",
    ],
)
def test_a_source_whose_secret_is_lost_accepts_nothing(
    world: World, lambdas: Lambdas, damage: str
) -> None:
    """WH-006: least of all what is signed with the empty key."""
    source = a_source(world)
    world.sql(damage)
    for secret in ("", GITHUB_SECRET):
        assert send(lambdas, source["path"], sign("github", b"{}", secret=secret)).status == 401
    assert events(world) == []
    assert reasons(world, source) == {"no_secret": 2}


def test_the_secret_of_another_source_does_not_open_here(world: World, lambdas: Lambdas) -> None:
    ours, theirs = a_source(world), a_source(world, secret="their own secret 5b1c9d")
    world.sql(
        """
        update leasehook.source_secrets as x
        set sealed = (select y.sealed from leasehook.source_secrets as y where y.source_id = %s)
        where x.source_id = %s
        """,
        theirs["id"],
        ours["id"],
    )
    forged = sign("github", b"{}", secret="their own secret 5b1c9d")
    assert send(lambdas, ours["path"], forged).status == 401


def test_an_old_request_and_one_from_the_future_are_refused(world: World, lambdas: Lambdas) -> None:
    """WH-012: within the source's own tolerance they are not."""
    strict = a_source(world, "stripe")
    lenient = a_source(world, "stripe", tolerance_seconds=3600)
    now = int(time.time())
    for distance, statuses in [(-1800, (401, 200)), (1800, (401, 200)), (-290, (200, 200))]:
        body = b'{"id": "evt_%d"}' % distance
        request = sign("stripe", body, at=now + distance)
        assert send(lambdas, strict["path"], request).status == statuses[0]
        assert send(lambdas, lenient["path"], request).status == statuses[1]
    assert reasons(world, strict) == {"stale_timestamp": 2}


def test_slacks_question_is_answered_when_it_is_signed_and_only_then(
    world: World, lambdas: Lambdas
) -> None:
    source = a_source(world, "slack")
    body = b'{"token": "Jhj5dZ", "challenge": "3eZbrw1aB", "type": "url_verification"}'
    request = sign("slack", body)

    answer = send(lambdas, source["path"], request)
    forged = send(lambdas, source["path"], sign("slack", body, secret="x" * 32))

    assert (answer.status, answer.text) == (200, "3eZbrw1aB")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert (forged.status, "3eZbrw1aB" in forged.text) == (401, False)
    assert events(world) == []


def test_headers_that_help_are_kept_and_those_with_credentials_are_not(
    world: World, lambdas: Lambdas, caplog: pytest.LogCaptureFixture
) -> None:
    """WH-122."""
    canary = "canary-7f3a"
    source = a_source(world)
    request = changed(
        sign("github", b"{}", message_id="id-1"),
        Authorization=f"Bearer {canary}",
        Cookie=canary,
        X_Api_Key=canary,
        X_GitHub_Hook_Id="1\x07" + "2" * 5000,
    )

    with caplog.at_level(logging.DEBUG):
        assert send(lambdas, source["path"], request).status == 200

    [row] = world.sql("select to_jsonb(r) as row, headers from leasehook.received as r")
    assert row["headers"].keys() == {
        "content-type",
        "user-agent",
        "x-github-delivery",
        "x-github-event",
        "x-github-hook-id",
    }
    assert len(row["headers"]["x-github-hook-id"]) == 200
    signature = request.headers["x-hub-signature-256"]
    for secret in (canary, GITHUB_SECRET, signature, signature.removeprefix("sha256=")):
        assert secret not in str(row)
        assert secret not in caplog.text


def test_refusals_are_counted_by_day_and_reason_without_their_bodies(
    world: World, lambdas: Lambdas
) -> None:
    source = a_source(world)
    for _ in range(5):
        send(lambdas, source["path"], sign("github", EMOJI, secret="wrong"))
    send(lambdas, source["path"], Signed({}, EMOJI))
    send(lambdas, source["path"], changed(sign("github", b"{}"), X_Hub_Signature_256="md5=0"))
    send(lambdas, "/in/nobody", Signed({}, EMOJI))

    assert reasons(world, source) == {"bad_signature": 5, "missing_signature": 1, "malformed": 1}
    [nobodys] = world.sql("select * from leasehook.source_refusals where source_id is null")
    assert (nobodys["reason"], nobodys["count"]) == ("unknown_slug", 1)


def test_under_a_flood_refusals_are_gathered_and_none_is_lost() -> None:
    now = 0.0
    counts = RefusalCounts(lambda: now, burst=2, per_second=10)
    written = [dict(counts.add(None, None, "bad_signature")) for _ in range(10)]
    now = 0.1
    written.append(dict(counts.add(None, None, "malformed")))

    assert [bool(batch) for batch in written] == [True] * 2 + [False] * 8 + [True]
    assert written[-1] == {(None, None, "bad_signature"): 8, (None, None, "malformed"): 1}


def test_an_inbound_event_outlives_its_event_type_being_archived(
    world: World, lambdas: Lambdas
) -> None:
    """The provider would give up: what it signed is kept, whatever the registry says of its type."""
    source = a_source(world)
    world.sql(
        "insert into leasehook.event_types (tenant_id, name, archived_at) values (%s, 'push', now())",
        world.tenant_id,
    )
    assert send(lambdas, source["path"], sign("github", b"{}")).status == 200
    assert len(events(world)) == 1


def test_a_forged_empty_key_signature_is_refused_for_a_source_with_a_secret(
    world: World, lambdas: Lambdas
) -> None:
    """WH-006."""
    source = a_source(world)
    assert send(lambdas, source["path"], sign("github", b"{}", secret="")).status == 401


def test_the_generic_scheme_finds_id_and_type_where_it_is_told_to(
    world: World, lambdas: Lambdas
) -> None:
    source = a_source(world, "hmac")
    request = sign("hmac", b'{"kind": "door.opened"}', message_id="a1")
    verdicts = [
        send(lambdas, source["path"], request).headers["leasehook-verdict"] for _ in range(2)
    ]
    assert verdicts == ["accepted", "duplicate"]
    assert events(world)[0]["type"] == "door.opened"


def test_bytes_in_base64_are_the_same_bytes(world: World, lambdas: Lambdas) -> None:
    """WH-021: the flag and the text together say what the body is."""
    source = a_source(world)
    request = sign("github", EMOJI)
    event = rest_api("POST", source["path"], EMOJI, dict(request.headers))
    coded = {**event, "body": base64.b64encode(EMOJI).decode(), "isBase64Encoded": True}
    assert [invoke(lambdas, each).status for each in (event, coded)] == [200, 200]
    assert [row["payload"] for row in events(world)] == [EMOJI]
