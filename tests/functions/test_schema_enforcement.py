"""A type's schema is enforced on publish: by the version in force, in one round trip, with nothing half stored."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shared import enforcement, event_types
from shared.crypto import hash_api_key
from shared.enforcement import KnownSchemas, SchemaInForce
from shared.errors import Conflict, Invalid, Unauthorized
from shared.json_schema import compile_schema
from shared.store import tenancy
from shared.store.publishing import MAX_TYPES_REFUSED, NewEvent, TypesRefused
from tests.support.lambda_events import FakeContext
from tests.support.lambdas import Answer, Lambdas, read_answer
from tests.support.world import World

BATCH = "/v1/events/batch"
CANARY = "canary-7f3a"
SCHEMA = {
    "type": "object",
    "required": ["items"],
    "properties": {
        "items": {
            "items": {
                "required": ["price"],
                "properties": {"price": {"type": "number", "minimum": 0}},
            }
        }
    },
}
FITS = {"items": [{"price": 9.5}]}
WRONG = {"items": [{"price": CANARY}]}


@pytest.fixture
def order_paid(world: World) -> str:
    """A registered type with a schema."""
    event_types.create(world.database, world.tenant_id, "order.paid", {"schema": SCHEMA})
    return "order.paid"


def _event(payload: object, event_type: str = "order.paid", **members: object) -> dict[str, object]:
    return {"type": event_type, "payload": payload, **members}


def _new(payload: bytes, event_type: str = "order.paid", **fields: Any) -> NewEvent:
    return NewEvent(event_type, payload, "application/json", **fields)


def _count(world: World) -> int:
    return int(world.one("select count(*) as n from leasehook.events")["n"])


def _fault(answer: Answer) -> dict[str, str]:
    assert answer.status == 422
    assert CANARY not in json.dumps(answer.json)
    [error] = answer.json["errors"]
    return dict(error)


def _change(world: World, schema: object, event_type: str = "order.paid") -> None:
    event_types.change(world.database, world.tenant_id, event_type, {"schema": schema})


@contextmanager
def _traced(world: World, path: Path) -> Iterator[list[str]]:
    """What the client sends on the wire meanwhile."""
    sent: list[str] = []
    with path.open("w+") as wire:
        with world.database.connection() as connection:
            connection.pgconn.trace(wire.fileno())
        yield sent
        with world.database.connection() as connection:
            connection.pgconn.untrace()
        wire.seek(0)
        sent += [line.split("\t")[3] for line in wire.read().splitlines() if "\tF\t" in line]


def test_a_payload_that_does_not_fit_is_refused_by_its_place_and_nothing_is_stored(
    world: World, lambdas: Lambdas, order_paid: str
) -> None:
    world.endpoint()
    for payload, fault in (
        (WRONG, {"field": "payload.items[0].price", "rule": "must be of type number"}),
        ({}, {"field": "payload.items", "rule": "is required"}),
        ([], {"field": "payload", "rule": "must be of type object"}),
    ):
        assert _fault(lambdas.publish(_event(payload, order_paid))) == fault
    assert _count(world) == 0
    assert world.statuses() == {}
    assert lambdas.publish(_event(FITS, order_paid)).json["deliveries"] == 1


@pytest.mark.usefixtures("order_paid")
def test_types_without_a_schema_and_types_that_are_not_registered_take_anything(
    world: World, lambdas: Lambdas
) -> None:
    event_types.create(world.database, world.tenant_id, "order", {"description": "no schema"})
    for event_type in ("order", "order.paid.late"):
        assert lambdas.publish(_event(WRONG, event_type)).status == 202


@pytest.mark.usefixtures("order_paid")
def test_the_payload_of_a_type_with_a_schema_is_still_stored_to_the_byte(
    world: World, lambdas: Lambdas
) -> None:
    payload = b'{ "items":[{"price":1.10, "price" : 1.20E0}],\t"\\u00e9": 12345678901234567890 }'
    assert lambdas.publish(b'{"type": "order.paid", "payload": ' + payload + b"}").status == 202
    assert world.one("select payload from leasehook.events")["payload"] == payload


@pytest.mark.usefixtures("order_paid")
def test_a_number_that_no_double_holds_is_refused_where_there_is_a_schema(lambdas: Lambdas) -> None:
    raw = b'{"type": "%s", "payload": {"items": [], "n": 1e400}}'
    assert lambdas.publish(raw % b"other").status == 202
    assert _fault(lambdas.publish(raw % b"order.paid"))["field"] == "payload"


@pytest.mark.usefixtures("order_paid")
def test_a_batch_names_the_event_that_does_not_fit_and_stores_none(
    world: World, lambdas: Lambdas
) -> None:
    event_types.create(world.database, world.tenant_id, "user", {"schema": {"type": "string"}})
    events = [_event(FITS), _event(1, "other"), _event("ann", "user"), _event(WRONG)]
    for _ in ("cold", "warm"):
        fault = _fault(lambdas.publish({"events": events}, path=BATCH))
        assert fault["field"] == "events[3].payload.items[0].price"
    assert _count(world) == 0
    assert lambdas.publish({"events": events[:3]}, path=BATCH).status == 202
    assert _count(world) == 3


def test_a_batch_with_more_types_than_one_answer_names_is_judged_whole(
    world: World, lambdas: Lambdas
) -> None:
    names = [f"type-{n}" for n in range(MAX_TYPES_REFUSED * 2 + 5)]
    for name in names:
        event_types.create(world.database, world.tenant_id, name, {"schema": {"const": name}})
    good = [_event(name, name) for name in names]
    assert lambdas.publish({"events": good}, path=BATCH).status == 202
    bad = [*good[:-1], _event("?", names[-1])]
    assert _fault(lambdas.publish({"events": bad}, path=BATCH))["field"] == "events[104].payload"
    assert _count(world) == len(names)


@pytest.mark.parametrize("path", ["/v1/events", BATCH])
def test_a_type_that_is_archived_takes_no_events_until_it_is_restored(
    world: World, lambdas: Lambdas, order_paid: str, path: str
) -> None:
    events: dict[str, object] = _event(FITS)
    body = {"events": [_event(1, "other"), events]} if path == BATCH else events
    assert lambdas.publish(body, path=path).status == 202
    stored = _count(world)
    event_types.archive(world.database, world.tenant_id, order_paid, archived=True)
    fault = _fault(lambdas.publish(body, path=path))
    assert fault["field"] == ("events[1].type" if path == BATCH else "type")
    assert "'order.paid'" in fault["rule"]
    assert _count(world) == stored
    event_types.archive(world.database, world.tenant_id, order_paid, archived=False)
    assert lambdas.publish(body, path=path).status == 202


def test_a_type_without_a_schema_can_be_archived_too(world: World, lambdas: Lambdas) -> None:
    event_types.create(world.database, world.tenant_id, "order.paid", {})
    assert lambdas.publish(_event(1)).status == 202
    event_types.archive(world.database, world.tenant_id, "order.paid", archived=True)
    assert _fault(lambdas.publish(_event(1)))["field"] == "type"


@pytest.mark.usefixtures("order_paid")
def test_a_change_takes_effect_at_once_in_every_warm_process(
    world: World, lambdas: Lambdas
) -> None:
    processes = [lambdas.cold("ingest") for _ in range(2)]

    def statuses(payload: object) -> list[int]:
        request = lambdas.event(_event(payload))
        return [
            read_answer(each.invoke(request, FakeContext.lasting(30))).status for each in processes
        ]

    assert statuses(FITS) == [202, 202]
    _change(world, {"type": "array"})
    assert statuses(FITS) == [422, 422]
    assert statuses([]) == [202, 202]
    _change(world, SCHEMA)
    assert statuses([]) == [422, 422]
    assert statuses(FITS) == [202, 202]
    _change(world, None)
    assert statuses(WRONG) == [202, 202]


@pytest.mark.usefixtures("order_paid")
def test_a_publish_is_one_round_trip_once_the_schema_is_known(world: World, tmp_path: Path) -> None:
    """Counted on the wire: the client asks the server to answer (Sync) once."""
    known, key_hash = KnownSchemas(), hash_api_key(world.key())
    event = _new(json.dumps(FITS).encode())
    counts = []
    for turn in ("cold", "warm", "changed", "warm again"):
        if turn == "changed":
            _change(world, {**SCHEMA, "title": "An order"})
        with _traced(world, tmp_path / turn) as sent:
            enforcement.publish(world.database, known, key_hash, event)
        counts.append(sent.count("Sync"))
        assert "Query" not in sent
    assert counts == [2, 1, 2, 1]
    with _traced(world, tmp_path / "batch") as sent:
        enforcement.publish_batch(world.database, known, key_hash, [event] * 10)
    assert sent.count("Sync") == 1


def test_what_was_published_is_answered_again_whatever_became_of_its_type(
    world: World, lambdas: Lambdas, order_paid: str
) -> None:
    """WH-107: a client whose answer was lost must not be told that nothing is stored."""
    body = _event(FITS, idempotency_key="k")
    first = lambdas.publish(body)
    _change(world, {"type": "array"})
    assert lambdas.publish(body).json == first.json
    event_types.archive(world.database, world.tenant_id, order_paid, archived=True)
    again = lambdas.publish(body)
    assert again.json == first.json
    assert again.headers["idempotent-replayed"] == "true"
    assert lambdas.publish({"events": [body]}, path=BATCH).json["events"] == [first.json]
    assert lambdas.publish(_event([], idempotency_key="k")).status == 409
    assert lambdas.publish(_event(FITS, idempotency_key="new")).status == 422
    assert _count(world) == 1


@pytest.mark.usefixtures("order_paid")
def test_a_schema_is_its_tenants_own(world: World, lambdas: Lambdas) -> None:
    other = tenancy.ensure_tenant(world.database, "other")
    theirs = world.key(tenant_id=other)
    assert lambdas.publish(_event(WRONG), key=theirs).status == 202
    event_types.create(world.database, other, "order.paid", {"schema": {"type": "array"}})
    assert lambdas.publish(_event(FITS), key=theirs).status == 422
    assert lambdas.publish(_event(FITS)).status == 202
    assert lambdas.publish(_event([]), key=theirs).status == 202


@pytest.mark.usefixtures("order_paid")
def test_who_has_no_key_learns_that_and_nothing_about_the_schema(
    world: World, lambdas: Lambdas
) -> None:
    assert lambdas.publish(_event(FITS)).status == 202
    reader = world.key(["read"])
    for payload in (FITS, WRONG):
        assert lambdas.publish(_event(payload), key="lh_unknown").status == 401
        assert lambdas.publish(_event(payload), key=reader).status == 403
    world.sql("update leasehook.api_keys set revoked_at = now()")
    for payload in (FITS, WRONG):
        assert lambdas.publish(_event(payload)).status == 401
        assert lambdas.publish({"events": [_event(payload)]}, path=BATCH).status == 401
    assert _count(world) == 1


@pytest.mark.usefixtures("order_paid")
def test_no_publish_is_judged_by_a_schema_that_was_replaced_before_it_began(world: World) -> None:
    """Publishers with warm caches, while the schema takes turns between 0 and 1."""
    key_hash = hash_api_key(world.key())
    stop, turns = threading.Event(), threading.Semaphore(0)

    def publish(number: int) -> list[tuple[float, float, int, bool]]:
        known = KnownSchemas()
        seen: list[tuple[float, float, int, bool]] = []
        while not stop.is_set():
            value = (number + len(seen)) % 2
            began_at = time.monotonic()
            try:
                enforcement.publish(world.database, known, key_hash, _new(str(value).encode()))
                accepted = True
            except Invalid:
                accepted = False
            seen.append((began_at, time.monotonic(), value, accepted))
            turns.release()
        return seen

    in_force: list[tuple[float, float, int]] = []
    with ThreadPoolExecutor(3) as pool:
        publishers = [pool.submit(publish, number) for number in range(3)]
        for turn in range(30):
            _change(world, {"const": turn % 2})
            since = time.monotonic()
            for _ in range(12):
                assert turns.acquire(timeout=30)
            in_force.append((since, time.monotonic(), turn % 2))
        stop.set()
        seen = [each for publisher in publishers for each in publisher.result(30)]
    judged = [
        (value == constant, accepted)
        for since, until, constant in in_force
        for began_at, ended_at, value, accepted in seen
        if since <= began_at and ended_at <= until
    ]
    assert {(True, True), (False, False)} <= set(judged)
    assert all(fits == accepted for fits, accepted in judged)


@pytest.mark.usefixtures("order_paid")
def test_a_type_that_changes_with_every_look_is_given_up_with_advice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, key_hash = KnownSchemas(), hash_api_key(world.key())
    keep = known.keep

    def keep_and_change(owner: bytes | UUID, event_type: str, met: SchemaInForce) -> None:
        keep(owner, event_type, met)
        _change(world, {**SCHEMA, "title": str(met.version)})

    monkeypatch.setattr(known, "keep", keep_and_change)
    with pytest.raises(Conflict, match="send the request again"):
        enforcement.publish(world.database, known, key_hash, _new(json.dumps(FITS).encode()))
    assert _count(world) == 0


@pytest.mark.usefixtures("order_paid")
def test_a_stored_schema_that_this_release_cannot_use_is_the_tenants_to_change(
    world: World, lambdas: Lambdas
) -> None:
    world.sql(
        "update leasehook.event_types set schema = %s, version = version + 1",
        '{"$ref": "http://x/"}',
    )
    answer = lambdas.publish(_event(FITS))
    assert answer.status == 409
    assert "change the event type" in answer.json["detail"]
    assert _count(world) == 0


@pytest.mark.usefixtures("order_paid")
def test_the_command_lines_way_in_is_held_to_the_schema(world: World) -> None:
    with pytest.raises(Invalid, match=r"payload\.items: is required"):
        enforcement.publish_as_tenant(world.database, KnownSchemas(), world.tenant_id, _new(b"{}"))
    assert _count(world) == 0
    fits = _new(json.dumps(FITS).encode(), idempotency_key="k")
    first = enforcement.publish_as_tenant(world.database, KnownSchemas(), world.tenant_id, fits)
    _change(world, {"type": "array"})
    again = enforcement.publish_as_tenant(world.database, KnownSchemas(), world.tenant_id, fits)
    assert (again.event_id, again.repeated) == (first.event_id, True)


@pytest.mark.usefixtures("order_paid")
def test_a_store_call_that_skips_the_judging_publishes_nothing(world: World) -> None:
    with pytest.raises(TypesRefused) as caught:
        world.publish(b"{}")
    assert [(each.name, each.version, each.archived) for each in caught.value.types] == [
        ("order.paid", 1, False)
    ]
    assert _count(world) == 0


@pytest.mark.usefixtures("order_paid")
def test_sql_callers_are_trusted(world: World) -> None:
    world.sql("select leasehook.publish(%s, 'order.paid', '{}'::json)", world.tenant_id)
    assert _count(world) == 1


def test_what_is_kept_stays_within_its_bound_and_the_least_used_goes_first() -> None:
    schema = compile_schema({"anyOf": [{}] * 9})
    known = KnownSchemas(max_extent=25)
    for name in ("a", "b"):
        known.keep(b"key", name, SchemaInForce(1, schema))
    assert known.get(b"key", "a") is not None
    known.keep(b"key", "c", SchemaInForce(1, schema))
    assert [known.get(b"key", name) is None for name in ("a", "b", "c")] == [False, True, False]
    for version in range(10):
        known.keep(b"key", "a", SchemaInForce(version, schema))
    assert known.get(b"key", "c") is not None
    found = known.get(b"key", "a")
    assert found is not None
    assert found.version == 9
    assert known.get(b"other", "a") is None


@pytest.mark.usefixtures("order_paid")
def test_a_publish_survives_a_bound_that_keeps_nothing(world: World) -> None:
    known, key_hash = KnownSchemas(max_extent=0), hash_api_key(world.key())
    event = _new(json.dumps(FITS).encode())
    assert len(enforcement.publish_batch(world.database, known, key_hash, [event] * 3)) == 3
    with pytest.raises(Unauthorized):
        enforcement.publish(world.database, known, b"\0" * 32, event)
