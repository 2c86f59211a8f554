"""Postgres is killed and comes back: what was acknowledged is there, and drains and publishers go on."""

import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from shared.store.connection import Database
from shared.store.migrations import migrate
from tests.crash.lambdas import Ingest, drain, publish_over_http
from tests.support.receiver import Receiver, answer
from tests.support.servers import PostgresServer
from tests.support.workers import Worker
from tests.support.world import World

pytestmark = pytest.mark.crash

PRODUCERS = 32
EVENTS_EACH = 8


@pytest.fixture
def durable_url(durable_server: PostgresServer) -> Iterator[str]:
    """A migrated database on the server that may be killed."""
    name = f"durable_{secrets.token_hex(4)}"
    with psycopg.connect(durable_server.url(), autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
    yield durable_server.url(name)
    with psycopg.connect(durable_server.url(), autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)".encode())


@pytest.fixture
def durable_world(durable_url: str) -> Iterator[World]:
    database = Database(durable_url)
    migrate(database)
    yield World(database)
    database.close()


def acknowledged(world: World, url: str, count: int) -> set[str]:
    """Publish events, and return the ids of those that were answered with 202."""
    with Ingest(world.environment(url), world.key()) as ingest:
        answers = [ingest.publish({"type": "a", "payload": n}) for n in range(count)]
    assert {each.status for each in answers} == {202}
    return {each.event_ids[0] for each in answers}


def stored_ids(world: World) -> set[str]:
    return {str(row["id"]) for row in world.sql("select id from leasehook.events")}


def test_a_drain_whose_postgres_is_killed_ends_well_and_the_next_one_delivers_the_rest(
    durable_server: PostgresServer, durable_world: World, durable_url: str, receiver: Receiver
) -> None:
    gate = receiver.gate()
    receiver.default = gate.then(answer())
    durable_world.endpoint(receiver.url())
    published = acknowledged(durable_world, durable_url, 20)
    environment = durable_world.environment(durable_url, LEASEHOOK_DRAIN_CONCURRENCY="8")

    with Worker("drain", environment) as worker:
        receiver.wait_for(8)
        assert durable_world.statuses() == {"in_progress": 8, "pending": 12}
        durable_server.kill()
        gate.open()
        summary = worker.answer()
    assert summary["unsettled"] == 8
    durable_server.start()

    assert stored_ids(durable_world) == published
    durable_world.pass_time(61)
    drain(environment)
    assert durable_world.statuses() == {"succeeded": 20}
    copies = Counter(request.webhook_id for request in receiver.received)
    assert set(copies) == published
    assert copies.total() == 20 + 8


def test_a_drain_settles_over_a_new_connection_when_postgres_is_back_in_time(
    durable_server: PostgresServer, durable_world: World, durable_url: str, receiver: Receiver
) -> None:
    gate = receiver.gate()
    receiver.default = gate.then(answer())
    durable_world.endpoint(receiver.url())
    published = acknowledged(durable_world, durable_url, 8)
    environment = durable_world.environment(durable_url, LEASEHOOK_DRAIN_CONCURRENCY="8")

    with Worker("drain", environment) as worker:
        receiver.wait_for(8)
        # A claim need not be on disk before it is used. This commit puts everything before it there.
        published |= acknowledged(durable_world, durable_url, 1)
        durable_server.kill()
        durable_server.start()
        gate.open()
        summary = worker.answer()

    assert summary["unsettled"] == 0
    assert durable_world.statuses() == {"succeeded": 9}
    copies = Counter(request.webhook_id for request in receiver.received)
    assert copies == dict.fromkeys(published, 1)


def test_what_32_publishers_were_promised_survives_a_crash_of_postgres(
    durable_server: PostgresServer, durable_world: World, durable_url: str
) -> None:
    key = durable_world.key()
    restarted = threading.Event()
    changed = threading.Condition()
    statuses: list[int] = []

    def publish_all(port: int, producer: int) -> list[str]:
        """Each event until it is accepted, with its key; the ids that were promised."""
        promised = []
        for n in range(EVENTS_EACH):
            event = {"type": "a", "payload": n, "idempotency_key": f"{producer}-{n}"}
            while True:
                answered = publish_over_http(port, key, event)
                with changed:
                    statuses.append(answered.status)
                    changed.notify_all()
                if answered.status == 202:
                    promised += answered.event_ids
                    break
                restarted.wait(30)
        return promised

    def wait_for(status: int, count: int) -> None:
        with changed:
            assert changed.wait_for(lambda: statuses.count(status) >= count, 30)

    with (
        Worker("serve", durable_world.environment(durable_url)) as server,
        ThreadPoolExecutor(PRODUCERS) as producers,
    ):
        port = int(server.line())
        running = [producers.submit(publish_all, port, producer) for producer in range(PRODUCERS)]
        try:
            wait_for(202, PRODUCERS)
            durable_server.kill()
            wait_for(503, PRODUCERS // 2)
            durable_server.start()
        finally:
            restarted.set()
        promised = [event_id for producer in running for event_id in producer.result(60)]

    assert set(statuses) == {202, 503}
    assert len(promised) == len(set(promised)) == PRODUCERS * EVENTS_EACH
    assert stored_ids(durable_world) == set(promised)
