"""Ingest: what is accepted is stored to the byte and committed; what is not says why and leaves nothing."""

import json
import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from fastapi.openapi.models import OpenAPI
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from standardwebhooks.webhooks import Webhook

from functions.ingest import create_app
from shared.intake import MAX_BATCH, MAX_DEPTH, MAX_REQUEST_BYTES
from shared.runtime import process_runtime
from shared.store import tenancy
from tests.support.lambda_events import FakeContext, http_api
from tests.support.lambdas import (
    PROBLEM,
    Answer,
    Lambdas,
    in_step,
    read_answer,
    wait_until_somebody_waits_for_a_lock,
)
from tests.support.receiver import Receiver
from tests.support.world import World

BATCH = "/v1/events/batch"
CANARY = "canary-7f3a"


def _events(world: World) -> list[dict[str, Any]]:
    return world.sql("select * from leasehook.events order by id")


def _count(world: World, table: str = "events") -> int:
    return int(world.one(f"select count(*) as n from leasehook.{table}")["n"])


def _event(**members: object) -> dict[str, object]:
    return {"type": "order.paid", "payload": {}, **members}


def _raw(payload: bytes) -> bytes:
    return b'{"type": "order.paid", "payload": ' + payload + b"}"


def _with_authorization(lambdas: Lambdas, value: str | None, body: bytes = b"{}") -> Answer:
    headers = {} if value is None else {"authorization": value}
    event = http_api("POST", "/v1/events", body, headers)
    return read_answer(lambdas.warm("ingest").invoke(event, FakeContext.lasting(30)))


def test_an_accepted_event_is_committed_with_its_deliveries(world: World, lambdas: Lambdas) -> None:
    for _ in range(3):
        world.endpoint()
    world.endpoint(event_types=["invoice.*"])

    answer = lambdas.publish(_event(priority=7))

    assert answer.status == 202
    [event] = _events(world)
    assert answer.json == {"id": str(event["id"]), "deliveries": 3}
    assert event["priority"] == 7
    assert world.statuses() == {"pending": 3}


KEPT_TO_THE_BYTE = {
    "odd JSON": b'{"zz":  1.10, "a":1, "a":  2, "n":1E400,\n "i":12345678901234567890123, "e":"\\u00e9\\/"}',
    "NUL escapes": b'["x\\u0000y", {"k\\u0000": 1}, "x\\\\u0000y"]',
    "emoji": '{"msg": "déploiement ✅ 🚀"}'.encode(),
    "huge integer": b"9" * 5000,
    "huge exponents": b"[1e200000, -0, 1e999]",
    "deep": b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1),
    "brackets in a string": b'"' + b"[{" * 10_000 + b'"',
    "many members": json.dumps({str(index): index for index in range(100_000)}).encode(),
    "null": b"null",
}


def test_whatever_json_is_accepted_arrives_to_the_byte(
    world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-001, WH-003, WH-040, WH-042, WH-044."""
    lambdas.deploy(LEASEHOOK_MAX_PAYLOAD_BYTES="4000000")
    endpoint = world.endpoint(receiver.url())

    names = {}
    for name, payload in KEPT_TO_THE_BYTE.items():
        published = lambdas.publish(_raw(payload))
        assert published.status == 202, name
        names[published.json["id"]] = name
    lambdas.drain()

    stored = {names[str(event["id"])]: event["payload"] for event in _events(world)}
    assert stored == KEPT_TO_THE_BYTE
    assert {names[each.webhook_id]: each.body for each in receiver.received} == KEPT_TO_THE_BYTE
    for received in receiver.received:
        expected = Webhook(endpoint["secret"]).sign(
            received.webhook_id,
            datetime.fromtimestamp(int(received.headers["webhook-timestamp"]), UTC),
            received.body.decode(),
        )
        assert received.headers["webhook-signature"] == expected


def test_the_events_of_a_batch_are_answered_in_their_order_and_committed_together(
    world: World, lambdas: Lambdas
) -> None:
    world.endpoint()
    keys = ["m", None, "a", "z", None]
    batch = [
        _event(payload=n, **({"idempotency_key": key} if key else {})) for n, key in enumerate(keys)
    ]

    answer = lambdas.publish({"events": batch}, path=BATCH)

    assert answer.status == 202
    assert [each["deliveries"] for each in answer.json["events"]] == [1] * 5
    stored = {str(event["id"]): event["payload"] for event in _events(world)}
    assert [stored[each["id"]] for each in answer.json["events"]] == [b"0", b"1", b"2", b"3", b"4"]
    commits = world.one("select count(distinct xmin::text) as n from leasehook.events")
    assert commits["n"] == 1


def test_an_event_for_a_later_time_waits_for_it(world: World, lambdas: Lambdas) -> None:
    world.endpoint()
    at = world.now().replace(microsecond=0, year=world.now().year + 1, day=1)

    assert lambdas.publish(_event(deliver_at=at.isoformat())).status == 202

    [row] = world.sql("select claimable_at from leasehook.deliveries")
    assert row["claimable_at"] == at
    assert lambdas.drain()["claimed"] == 0


def test_a_payload_is_stored_once_however_many_endpoints_it_goes_to(
    world: World, lambdas: Lambdas
) -> None:
    """WH-030."""
    for _ in range(50):
        world.endpoint()
    text = json.dumps([hash(str(n)) for n in range(45_000)])
    size = "select pg_total_relation_size('leasehook.events') as events, pg_total_relation_size('leasehook.deliveries') as deliveries"
    before = world.one(size)

    answer = lambdas.publish(_raw(text.encode()))

    assert answer.json["deliveries"] == 50
    after = world.one(size)
    assert after["events"] - before["events"] < 1.5 * len(text)
    assert after["deliveries"] - before["deliveries"] < 200_000


BROKEN_RULES: list[tuple[str, object]] = [
    ("body", b""),
    ("body", b"{"),
    ("body", b"[]"),
    ("body", b'{"type": "a", "payload": 1} x'),
    ("body", b'{"type": "a", "payload": "\xff"}'),
    ("body", b'{"type": "a", "payload": NaN}'),
    ("body", b'{"type": "a", "payload": [[[-Infinity]]]}'),
    ("body", b'{"type": NaN, "payload": 1}'),
    ("body", b'{"type": "\\ud83d", "payload": 1}'),
    ("body", _raw(b'{"a": "\\ud83d"}')),
    ("body", _raw(b'{"\\udc00 and much more text": [1, 2, 3]}')),
    ("body", _raw(b"[" * 6_000 + b"]" * 6_000)),
    ("body", _raw(b"[" * 20_000 + b"]" * 20_000)),
    ("body", _raw(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)),
    ("body", b'{"type": "a", "payload": 1, "id": "a.b"}'),
    ("body", b'{"type": "a", "payload": 1, "\\u0000": 1}'),
    ("type", b'{"payload": 1}'),
    ("payload", b'{"type": "a"}'),
    ("type", _event(type="")),
    ("type", _event(type="a..b")),
    ("type", _event(type="a\0b")),
    ("type", _event(type="a b")),
    ("type", _event(type="größe")),
    ("type", _event(type="a\n")),
    ("type", _event(type="a" * 129)),
    ("type", _event(type=1)),
    ("consumer", _event(consumer="")),
    ("consumer", _event(consumer="a\0")),
    ("consumer", _event(consumer="a/b")),
    ("consumer", _event(consumer="a" * 129)),
    ("idempotency_key", _event(idempotency_key="")),
    ("idempotency_key", _event(idempotency_key="a\0")),
    ("idempotency_key", _event(idempotency_key="a\r\nx: 1")),
    ("idempotency_key", _event(idempotency_key="é")),
    ("idempotency_key", _event(idempotency_key="k" * 256)),
    ("idempotency_key", _event(idempotency_key=7)),
    ("priority", _event(priority=101)),
    ("priority", _event(priority=-101)),
    ("priority", _event(priority=1.5)),
    ("priority", _event(priority=10**30)),
    ("deliver_at", _event(deliver_at="tomorrow")),
    ("deliver_at", _event(deliver_at="2026-01-01T00:00:00")),
    ("deliver_at", _event(deliver_at="2026-02-30T00:00:00Z")),
    ("deliver_at", _event(deliver_at="9999-12-31T23:59:59-23:59")),
    ("deliver_at", _event(deliver_at=1e300)),
]


def test_a_request_that_breaks_a_rule_is_told_the_field_and_leaves_nothing(
    world: World, lambdas: Lambdas
) -> None:
    """WH-017, WH-041, WH-042, WH-043, WH-044."""
    for field, body in BROKEN_RULES:
        answer = lambdas.publish(body)
        assert (answer.status, answer.fields) == (422, [field]), (body, answer)
        assert answer.json["type"] == "urn:leasehook:problem:invalid"
        assert all(error["rule"] for error in answer.json["errors"])

    assert _count(world) == 0


def test_a_batch_with_one_bad_event_stores_none(world: World, lambdas: Lambdas) -> None:
    batches: dict[str, object] = {
        "events[1].type": {"events": [_event(), _event(type="a b"), _event()]},
        "events[2].payload": {"events": [_event(), _event(), {"type": "a"}]},
        "events[1].idempotency_key": {"events": [_event(idempotency_key="k")] * 2},
        "events": {"events": []},
        "body": {"events": [_event()], "more": 1},
    }
    for field, batch in batches.items():
        answer = lambdas.publish(batch, path=BATCH)
        assert (answer.status, answer.fields) == (422, [field]), answer

    assert _count(world) == 0


def test_a_batch_may_have_a_thousand_events_and_no_more(world: World, lambdas: Lambdas) -> None:
    full = lambdas.publish({"events": [_event()] * MAX_BATCH}, path=BATCH)
    over = lambdas.publish({"events": [_event()] * (MAX_BATCH + 1)}, path=BATCH)

    assert (full.status, len(full.json["events"])) == (202, MAX_BATCH)
    assert (over.status, over.fields) == (422, ["events"])
    assert _count(world) == MAX_BATCH


def test_a_conflict_in_a_batch_names_the_event_and_stores_none(
    world: World, lambdas: Lambdas
) -> None:
    lambdas.publish(_event(idempotency_key=CANARY))
    batch = [_event(), _event(idempotency_key=CANARY, payload=2)]

    answer = lambdas.publish({"events": batch}, path=BATCH)

    assert answer.status == 409
    assert answer.json["detail"].startswith("events[1].idempotency_key")
    assert CANARY not in answer.text
    assert _count(world) == 1


def test_limits_hold_at_the_byte_and_are_counted_on_the_decoded_body(
    world: World, lambdas: Lambdas
) -> None:
    """WH-030."""
    limit = 5000
    lambdas.deploy(LEASEHOOK_MAX_PAYLOAD_BYTES=str(limit))
    headers = {"authorization": f"Bearer {lambdas.key}"}
    bodies = {size: _raw(b'"' + b"x" * (size - 2) + b'"') for size in (limit - 1, limit, limit + 1)}
    statuses = [
        read_answer(
            lambdas.warm("ingest").invoke(
                http_api("POST", "/v1/events", body, headers, encoded=encoded),
                FakeContext.lasting(30),
            )
        ).status
        for encoded in (False, True)
        for body in bodies.values()
    ]
    assert statuses == [202, 202, 413] * 2
    assert Counter(len(event["payload"]) for event in _events(world)) == {limit - 1: 2, limit: 2}


def test_a_whole_request_has_a_limit_below_that_of_lambda(world: World, lambdas: Lambdas) -> None:
    """WH-030: base64 makes 5.3 MB of it, and 6 MB is the end."""
    rest = len(_raw(b'""'))
    lambdas.deploy(LEASEHOOK_MAX_PAYLOAD_BYTES="4000000")

    fits = lambdas.publish(_raw(b'"' + b"x" * (MAX_REQUEST_BYTES - rest) + b'"'))
    over = lambdas.publish(_raw(b'"' + b"x" * (MAX_REQUEST_BYTES - rest + 1) + b'"'))

    assert (fits.status, over.status) == (202, 413)
    assert over.headers["content-type"] == PROBLEM
    assert _count(world) == 1


def test_a_hostile_body_costs_no_more_than_its_length(lambdas: Lambdas) -> None:
    """WH-044: a string that never ends, full of escaped quotes, was searched again from each of them."""
    began = time.process_time()
    assert lambdas.publish(b"[" * 201 + b'"' + b'\\"' * 500_000).status == 422
    assert time.process_time() - began < 5


def test_whoever_has_no_valid_key_learns_that_and_nothing_else(
    world: World, lambdas: Lambdas, caplog: pytest.LogCaptureFixture
) -> None:
    """WH-013, WH-125: a body that is good or bad makes no difference."""
    key = lambdas.key
    wrong = [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {key}",
        key,
        "Bearer clé",
        f"Bearer {key}é",
        f"Bearer {key.upper()}",
        f"Bearer {key[:9]}",
        f"Bearer {key}\n",
        f"Bearer {key} ",
        f"Bearer  {key}",
        f"Bearer {key}\0",
        "Bearer lh_" + "x" * 1_000_000,
        "Bearer lh_" + "x" * 32,
    ]
    for value in wrong:
        for body in (_raw(b"1"), b"{", b'{"type": "a b"}'):
            answer = _with_authorization(lambdas, value, body)
            assert answer.status == 401, (value and value[:40], answer)
            assert answer.headers["content-type"] == PROBLEM
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "errors" not in answer.json

    assert _count(world) == 0
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_key_without_the_scope_is_forbidden_to_publish(world: World, lambdas: Lambdas) -> None:
    key = world.key(["read", "manage"])
    for body in (_event(), b"{"):
        answer = lambdas.publish(body, key=key)
        assert (answer.status, answer.headers["content-type"]) == (403, PROBLEM)
    assert _count(world) == 0


def test_a_revoked_key_is_refused_at_once_by_a_warm_function(
    world: World, lambdas: Lambdas
) -> None:
    """WH-125."""
    assert lambdas.publish(_event()).status == 202
    world.sql("update leasehook.api_keys set revoked_at = now()")
    assert lambdas.publish(_event()).status == 401


def test_a_schema_that_is_not_there_yet_is_unavailability(
    lambdas: Lambdas, empty_database_url: str
) -> None:
    lambdas.deploy(DATABASE_URL=empty_database_url)
    answer = lambdas.publish({"type": "order.paid", "payload": 1}, key="lh_none")
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")


def test_a_key_is_stored_as_a_hash_and_found_by_its_index(world: World, lambdas: Lambdas) -> None:
    """WH-125: with ten thousand of them."""
    world.sql(
        """
        insert into leasehook.api_keys (tenant_id, name, key_hash, key_prefix, scopes)
        select %s, 'other', sha256(n::text::bytea), 'lh_', '{publish}'
        from generate_series(1, 10000) as n
        """,
        world.tenant_id,
    )
    world.sql("analyze leasehook.api_keys")
    assert lambdas.publish(_event()).status == 202

    assert lambdas.key not in str(world.sql("select * from leasehook.api_keys where name = 'test'"))
    plan = world.sql(
        "explain select from leasehook.api_keys where key_hash = sha256('x') and revoked_at is null"
    )
    assert "api_keys_hash_unique" in str(plan)


def test_the_same_key_and_body_answer_the_first_result_again(
    world: World, lambdas: Lambdas
) -> None:
    world.endpoint()
    body = _event(idempotency_key="order-7")
    first = lambdas.publish(body)
    world.endpoint()

    again = lambdas.publish(body)

    assert (again.status, again.json) == (202, first.json)
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert (_count(world), _count(world, "deliveries")) == (1, 1)


def test_the_same_key_with_another_request_is_a_conflict(world: World, lambdas: Lambdas) -> None:
    """WH-107: white space counts, because the bytes do."""
    key = CANARY
    assert lambdas.publish({"type": "a", "payload": {"n": 1}, "idempotency_key": key}).status == 202
    others = [
        {"type": "a", "payload": {"n": 2}, "idempotency_key": key},
        f'{{"type": "a", "payload": {{"n":1}}, "idempotency_key": "{key}"}}'.encode(),
        {"type": "b", "payload": {"n": 1}, "idempotency_key": key},
        {"type": "a", "payload": {"n": 1}, "idempotency_key": key, "consumer": "c"},
        {"type": "a", "payload": {"n": 1}, "idempotency_key": key, "priority": 1},
    ]
    for other in others:
        answer = lambdas.publish(other)
        assert (answer.status, answer.headers["content-type"]) == (409, PROBLEM), other
        assert CANARY not in answer.text

    assert _count(world) == 1


def test_idempotency_keys_belong_to_a_tenant(world: World, lambdas: Lambdas) -> None:
    """WH-107."""
    other = world.key(tenant_id=tenancy.ensure_tenant(world.database, "other"))
    mine = lambdas.publish(_event(idempotency_key="k"))
    theirs = lambdas.publish(_event(idempotency_key="k", payload=2), key=other)

    assert (mine.status, theirs.status) == (202, 202)
    assert mine.json["id"] != theirs.json["id"]


def test_a_key_works_for_as_long_as_promised_and_then_anew(world: World, lambdas: Lambdas) -> None:
    """WH-107: the window is LEASEHOOK_IDEMPOTENCY_DAYS, though the event may be gone before."""
    lambdas.deploy(LEASEHOOK_IDEMPOTENCY_DAYS="10", LEASEHOOK_RETENTION_DAYS="1")
    body = _event(idempotency_key="k")
    first = lambdas.publish(body)

    world.pass_time(9 * 86400)
    lambdas.maintain()
    assert _count(world) == 0
    assert lambdas.publish(body).json["id"] == first.json["id"]

    world.pass_time(2 * 86400)
    lambdas.maintain()
    assert lambdas.publish(body).json["id"] != first.json["id"]


def test_a_key_used_by_many_at_once_stores_one_event(world: World, lambdas: Lambdas) -> None:
    """WH-106: twenty environments, fifty rounds."""
    world.endpoint()
    environments = [lambdas.cold("ingest") for _ in range(20)]
    for number in range(50):
        event = lambdas.event(_event(idempotency_key=f"round-{number}"))
        calls = [environment.start(event, FakeContext.lasting(30)) for environment in environments]
        answers = [read_answer(call.result(30)) for call in calls]

        assert {answer.status for answer in answers} == {202}
        assert len({answer.json["id"] for answer in answers}) == 1
        assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1

    assert (_count(world), _count(world, "deliveries")) == (50, 50)


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_repeat_waits_for_the_first_to_commit_or_takes_its_place(
    world: World, lambdas: Lambdas, database_url: str, ending: str
) -> None:
    """WH-106."""
    world.endpoint()
    event = lambdas.event({"type": "a", "payload": 1, "idempotency_key": "k"})
    with psycopg.connect(database_url) as winner:
        row = winner.execute(
            "select event_id from leasehook.publish(%s, 'a', '1', idempotency_key => 'k')",
            [world.tenant_id],
        ).fetchone()
        assert row is not None
        repeat = lambdas.warm("ingest").start(event, FakeContext.lasting(30))
        wait_until_somebody_waits_for_a_lock(world)
        assert not repeat.done()
        winner.execute(ending)
        answer = read_answer(repeat.result(30))

    assert answer.status == 202
    assert (answer.json["id"] == str(row[0])) == (ending == "commit")
    assert (_count(world), _count(world, "deliveries")) == (1, 1)


def test_without_a_database_the_answer_is_503_and_says_nothing_about_it(
    lambdas: Lambdas, caplog: pytest.LogCaptureFixture
) -> None:
    """WH-063, WH-122."""
    key = lambdas.key
    lambdas.deploy(DATABASE_URL=f"postgresql://{CANARY}:{CANARY}@127.0.0.1:1/{CANARY}")

    answer = lambdas.publish(_event(), key=key)

    assert (answer.status, answer.headers["content-type"]) == (503, PROBLEM)
    assert int(answer.headers["retry-after"]) > 0
    assert CANARY not in answer.text + caplog.text
    assert "127.0.0.1" not in answer.text
    with pytest.raises(Exception, match=r".") as caught:
        lambdas.maintain()
    assert CANARY not in str(caught.value)
    assert CANARY not in str(lambdas.drain())


def test_a_database_that_is_full_stores_exactly_what_was_acknowledged(
    world: World, lambdas: Lambdas, database_url: str
) -> None:
    """WH-063: a role with two connections, and thirty requests at once."""
    key = lambdas.key
    with _poor_role(world) as role:
        url = f"{database_url} user={role} password={CANARY}"
        lambdas.deploy(DATABASE_URL=url)
        with psycopg.connect(url), psycopg.connect(url):
            refused = lambdas.publish(_event(), key=key)
        environments = [lambdas.cold("ingest") for _ in range(15)]

        def ask_twice(index: int) -> list[Answer]:
            event = lambdas.event(_event(), key=key)
            return [read_answer(environments[index].invoke(event)) for _ in range(2)]

        answers = [answer for pair in in_step(15, ask_twice) for answer in pair]
        lambdas.deploy()

    counts = Counter(answer.status for answer in answers)
    assert refused.status == 503
    assert set(counts) == {202, 503}
    assert counts[202] == _count(world)
    assert all("retry-after" in answer.headers for answer in answers if answer.status == 503)
    assert not any(CANARY in answer.text or role in answer.text for answer in answers)


@contextmanager
def _poor_role(world: World) -> Iterator[str]:
    role = f"leasehook_test_{secrets.token_hex(4)}"
    world.sql(f"create role {role} login bypassrls password '{CANARY}' connection limit 2")
    world.sql(f"do $$ begin execute format('grant %I to {role}', current_user); end $$")
    yield role
    world.sql(f"drop owned by {role}")
    world.sql(f"drop role {role}")


def test_a_statement_that_takes_too_long_is_503_and_the_next_one_works(
    world: World, lambdas: Lambdas, database_url: str
) -> None:
    """WH-063, WH-064."""
    lambdas.deploy(DATABASE_URL=f"{database_url} options='-c statement_timeout=200ms'")
    assert lambdas.publish(_event()).status == 202
    with world.database.transaction() as connection:
        connection.execute("lock table leasehook.events")
        assert lambdas.publish(_event()).status == 503
    assert lambdas.publish(_event()).status == 202
    assert _count(world) == 2


def test_a_connection_that_died_while_the_function_was_frozen_is_replaced(
    world: World, lambdas: Lambdas
) -> None:
    """WH-048."""
    for _ in range(3):
        assert lambdas.publish(_event()).status == 202
        world.sql(
            """
            select pg_terminate_backend(pid, 5000)
            from pg_stat_activity
            where datname = current_database() and pid <> pg_backend_pid()
            """
        )
    assert _count(world) == 3


def test_an_error_in_one_request_does_not_leak_into_the_next(
    world: World, lambdas: Lambdas, caplog: pytest.LogCaptureFixture
) -> None:
    """WH-064: nor does what the database says reach the client; it is in the log."""
    world.sql(
        f"alter table leasehook.events add constraint {CANARY.replace('-', '_')} check (type <> 'boom')"
    )
    failed = lambdas.publish(_event(type="boom"))

    assert (failed.status, failed.headers["content-type"]) == (500, PROBLEM)
    assert CANARY.replace("-", "_") not in failed.text
    assert "CheckViolation" in caplog.text
    assert lambdas.publish(_event()).status == 202


def test_a_missing_setting_is_a_problem_document_and_named_in_the_log(
    lambdas: Lambdas, caplog: pytest.LogCaptureFixture
) -> None:
    key = lambdas.key
    lambdas.deploy(DATABASE_URL="")

    answer = lambdas.publish(_event(), key=key)

    assert (answer.status, answer.headers["content-type"]) == (500, PROBLEM)
    assert "DATABASE_URL" not in answer.text
    assert "DATABASE_URL: expected postgresql://" in caplog.text


def test_a_publish_that_fails_half_way_leaves_no_key_behind(
    world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-112: the key, the event and its deliveries are one transaction, whichever insert fails."""
    world.endpoint(receiver.url())
    world.sql(
        """
        create function public.fail() returns trigger language plpgsql as $$
        begin
            raise exception 'fault';
        end
        $$
        """
    )
    body = _event(idempotency_key="k")
    for table in ("idempotency_keys", "events", "deliveries"):
        world.sql(
            f"create trigger fail after insert on leasehook.{table} execute function public.fail()"
        )
        assert lambdas.publish(body).status == 500
        assert (_count(world), _count(world, "idempotency_keys")) == (0, 0)
        world.sql(f"drop trigger fail on leasehook.{table}")

    first, repeat = lambdas.publish(body), lambdas.publish(body)

    assert (first.status, first.json) == (202, repeat.json)
    assert lambdas.drain()["succeeded"] == 1
    assert len(receiver.received) == 1


def test_an_event_reaches_the_endpoints_of_its_tenant_and_consumer_only(
    world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-121."""
    other = tenancy.ensure_tenant(world.database, "other")
    world.endpoint(receiver.url("/mine"))
    world.endpoint(receiver.url("/mine/acme"), consumer="acme")
    world.endpoint(receiver.url("/theirs"), tenant_id=other)
    world.endpoint(receiver.url("/theirs/acme"), tenant_id=other, consumer="acme")

    lambdas.publish(_event())
    lambdas.publish(_event(consumer="acme"))
    lambdas.publish(_event(consumer="nobody"))
    lambdas.drain()

    assert sorted(request.path for request in receiver.received) == ["/mine", "/mine/acme"]


def test_the_database_refuses_a_delivery_across_tenants(world: World, lambdas: Lambdas) -> None:
    """WH-121."""
    other = tenancy.ensure_tenant(world.database, "other")
    theirs = world.endpoint(tenant_id=other)["id"]
    event_id = lambdas.publish(_event()).json["id"]
    for tenant_id in (world.tenant_id, other):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            world.sql(
                """
                insert into leasehook.deliveries (tenant_id, event_id, endpoint_id, claimable_at)
                values (%s, %s, %s, now())
                """,
                tenant_id,
                event_id,
                theirs,
            )


def test_publishing_while_an_endpoint_is_deleted_never_fails_nor_loses_the_others(
    world: World, lambdas: Lambdas
) -> None:
    """WH-016 (c): two threads, two hundred rounds."""
    kept = world.endpoint()["id"]
    doomed = [world.endpoint()["id"] for _ in range(200)]
    environment = lambdas.warm("ingest")
    event = lambdas.event(_event())
    answers = []
    round_begins = threading.Barrier(2)

    def publish() -> None:
        for _ in doomed:
            round_begins.wait()
            answers.append(read_answer(environment.invoke(event)).status)

    def delete() -> None:
        for endpoint_id in doomed:
            round_begins.wait()
            world.sql(
                "update leasehook.endpoints set deleted_at = now() where id = %s", endpoint_id
            )

    in_step(2, lambda index: [publish, delete][index]())

    assert Counter(answers) == {202: 200}
    rows = world.sql("select count(*) as n from leasehook.deliveries where endpoint_id = %s", kept)
    assert rows == [{"n": 200}]


def test_no_answer_repeats_what_was_sent(
    lambdas: Lambdas, caplog: pytest.LogCaptureFixture
) -> None:
    """WH-122."""
    lambdas.publish(_event(idempotency_key=CANARY))
    requests: list[object] = [
        CANARY.encode(),
        f'{{"{CANARY}": 1}}'.encode(),
        f'{{"type": "a", "payload": 1, "{CANARY}": "{CANARY}"}}'.encode(),
        {"type": f"{CANARY} {CANARY}", "payload": CANARY},
        {"type": [CANARY], "payload": CANARY},
        _event(consumer=f"{CANARY}/"),
        _event(idempotency_key=f"{CANARY} "),
        _event(idempotency_key=CANARY, payload=2),
        _event(deliver_at=CANARY),
        _event(priority=CANARY),
    ]
    answers = [lambdas.publish(body) for body in requests]
    answers.append(_with_authorization(lambdas, f"Bearer {CANARY}"))
    path = http_api("GET", f"/{CANARY}?{CANARY}={CANARY}", headers={CANARY: CANARY})
    answers.append(read_answer(lambdas.warm("ingest").invoke(path)))

    assert all(400 <= answer.status < 500 for answer in answers)
    assert not any(CANARY in answer.text + str(answer.headers) for answer in answers)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == []


def test_nothing_that_delivery_needs_happens_after_the_answer(
    world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-032: what is needed for delivery is committed before the answer; the drain alone delivers."""
    world.endpoint(receiver.url())
    environment = lambdas.cold("ingest")
    assert read_answer(environment.invoke(lambdas.event(_event()))).status == 202
    lambdas.deploy()
    assert lambdas.drain()["succeeded"] == 1


def test_the_openapi_document_is_valid_and_every_schema_in_it(lambdas: Lambdas) -> None:
    event = http_api("GET", "/openapi.json")
    document = read_answer(lambdas.warm("ingest").invoke(event)).json

    assert document["openapi"].startswith("3.1.")
    OpenAPI.model_validate(document)
    operations = [path["post"] for path in document["paths"].values() if "post" in path]
    assert len(operations) >= 2
    for operation in operations:
        [body] = operation["requestBody"]["content"].values()
        Draft202012Validator.check_schema(body["schema"])
        for response in operation["responses"].values():
            for content in response.get("content", {}).values():
                Draft202012Validator.check_schema(content["schema"])


def test_every_status_is_in_the_openapi_document_and_every_answer_fits_its_schema(
    world: World, lambdas: Lambdas
) -> None:
    document = create_app(process_runtime()).openapi()
    operations = document["paths"]
    blocked = world.key(["read"])
    for path, body in (
        ("/v1/events", {"type": "a", "payload": 1, "idempotency_key": "k"}),
        (BATCH, {"events": [{"type": "a", "payload": 1, "idempotency_key": "k-of-batch"}]}),
    ):
        changed = json.loads(json.dumps(body).replace('"payload": 1', '"payload": 2'))
        undecodable = lambdas.event(body, path=path) | {"body": "!"}
        answers = [
            lambdas.publish(body, path=path),
            read_answer(lambdas.warm("ingest").invoke(undecodable)),
            lambdas.publish(body, path=path, key="lh_unknown"),
            lambdas.publish(body, path=path, key=blocked),
            lambdas.publish(changed, path=path),
            lambdas.publish(b" " * (MAX_REQUEST_BYTES + 1), path=path),
            lambdas.publish(b"{}", path=path),
        ]
        with world.database.transaction() as connection:
            connection.execute("lock table leasehook.events")
            stuck = {"events": [_event()]} if path == BATCH else _event()
            pending = lambdas.warm("ingest").start(lambdas.event(stuck, path=path))
            wait_until_somebody_waits_for_a_lock(world)
            world.sql(
                """
                select pg_terminate_backend(pid)
                from pg_stat_activity
                where wait_event_type = 'Lock' and datname = current_database()
                """
            )
            answers.append(read_answer(pending.result(30)))

        described = operations[path]["post"]["responses"]
        assert [str(each.status) for each in answers] == list(described)
        for each in answers:
            [(media_type, content)] = described[str(each.status)]["content"].items()
            assert each.headers["content-type"] == media_type
            schema = content["schema"] | {"components": document["components"]}
            Draft202012Validator(schema).validate(each.json)
