"""The writer changes: what was acknowledged is on the new one, and publishers and drains find their way to it.

Clients reach the writer by a name, as they reach a cluster's endpoint: a proxy that leads to the new writer some time
after there is one.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from infra.postgres import Server, start_postgres
from shared.store.connection import Database
from shared.store.migrations import migrate
from tests.crash.lambdas import Ingest, drain
from tests.support.proxy import Proxy
from tests.support.receiver import Receiver, answer
from tests.support.standby import restart_as_standby, start_standby
from tests.support.world import World

pytestmark = pytest.mark.crash

ENVIRONMENTS = 16
EVENTS_BEFORE = 20
EVENTS_AROUND = 3
"""Of each environment, before and after."""


@dataclass
class Cluster:
    """A writer and its synchronous standby: what is acknowledged is on both. The world is the writer's."""

    writer: Server
    writer_dir: Path
    standby: Server
    name: Proxy
    world: World

    def promote(self) -> None:
        """Make the standby a writer."""
        with psycopg.connect(self.standby.url()) as connection:
            assert connection.execute("select pg_promote()").fetchone() == (True,)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        writer_dir = tmp_path / "writer"
        writer = stack.enter_context(start_postgres(writer_dir))
        world = open_world(writer, stack)
        standby = stack.enter_context(start_standby(writer, writer_dir, tmp_path / "standby"))
        world.sql("alter system set synchronous_standby_names = '*'")
        world.sql("select pg_reload_conf()")
        world.until("exists (select 1 from pg_stat_replication where sync_state = 'sync')")
        name = stack.enter_context(Proxy(writer.url()))
        yield Cluster(writer, writer_dir, standby, name, world)


def open_world(server: Server, stack: ExitStack) -> World:
    database = Database(server.url())
    stack.callback(database.close)
    migrate(database)
    return World(database)


def kill(cluster: Cluster) -> None:
    """The writer crashes."""
    cluster.writer.kill()
    cluster.promote()


def turn_read_only(cluster: Cluster) -> None:
    """The writer hands over, and goes on to serve whoever is connected, but reads only."""
    world = cluster.world
    world.sql("alter system set default_transaction_read_only = on")
    world.sql("select pg_reload_conf()")
    world.until("current_setting('default_transaction_read_only')::boolean")
    world.until(
        """
        not exists (
            select 1 from pg_stat_activity
            where backend_type = 'client backend' and state <> 'idle' and pid <> pg_backend_pid()
        )
        and (select replay_lsn >= pg_current_wal_lsn() from pg_stat_replication)
        """
    )
    cluster.promote()


def swap_roles(cluster: Cluster) -> None:
    """The writer stops in good order and comes back as the standby of the one that took its place."""
    cluster.writer.stop()
    cluster.promote()
    restart_as_standby(cluster.writer, cluster.writer_dir, cluster.standby)


class Publisher:
    """A warm ingest environment whose caller repeats each event with its key until it is accepted.

    Refused, it waits for the name to move, as `retry-after` asks it to wait.
    """

    def __init__(self, ingest: Ingest, number: int, has_moved: threading.Event) -> None:
        self._ingest = ingest
        self._number = number
        self._has_moved = has_moved
        self.is_warm = threading.Event()
        self.accepted: list[str] = []
        self.statuses: list[int] = []

    def run(self) -> None:
        """Publish some events before the failover, all through it, and some after it."""
        left = EVENTS_AROUND
        for n in itertools.count():
            left -= self._has_moved.is_set()
            self._publish({"type": "a", "payload": n, "idempotency_key": f"{self._number}-{n}"})
            if n == EVENTS_AROUND:
                self.is_warm.set()
            if not left:
                return

    def _publish(self, event: dict[str, object]) -> None:
        while True:
            answered = self._ingest.publish(event)
            self.statuses.append(answered.status)
            if answered.status == 202:
                self.accepted += answered.event_ids
                return
            assert self.statuses.count(503) == 1
            assert int(answered.headers["retry-after"]) > 0
            assert self._has_moved.wait(60)


@pytest.mark.parametrize("fail_over", [kill, turn_read_only, swap_roles])
def test_a_failover_costs_an_environment_one_503_and_nobody_an_event(
    cluster: Cluster, receiver: Receiver, fail_over: Callable[[Cluster], None]
) -> None:
    """WH-048."""
    gate = receiver.gate()
    receiver.default = gate.then(answer())
    cluster.world.endpoint(receiver.url())
    key = cluster.world.key()
    url = cluster.name.url_with(connect_timeout="10", tcp_user_timeout="2000")
    environment = cluster.world.environment(url, LEASEHOOK_DRAIN_CONCURRENCY="8")
    has_moved = threading.Event()

    with ExitStack() as stack:
        ingests = [stack.enter_context(Ingest(environment, key)) for _ in range(ENVIRONMENTS)]
        answers = [ingests[0].publish({"type": "a", "payload": n}) for n in range(EVENTS_BEFORE)]
        accepted = [event_id for each in answers for event_id in each.event_ids]
        publishers = [Publisher(ingest, n, has_moved) for n, ingest in enumerate(ingests)]
        threads = stack.enter_context(ThreadPoolExecutor(ENVIRONMENTS + 1))
        stack.callback(gate.open)
        stack.callback(has_moved.set)
        draining = threads.submit(drain, environment)
        receiver.wait_for(8)
        publishing = [threads.submit(each.run) for each in publishers]
        assert all(each.is_warm.wait(30) for each in publishers)

        fail_over(cluster)
        cluster.name.lead_to(cluster.standby.url())
        has_moved.set()
        for each in publishing:
            each.result(60)
        gate.open()
        summary = draining.result(60)

        world = open_world(cluster.standby, stack)
        accepted += [event_id for each in publishers for event_id in each.accepted]
        assert sorted(accepted) == sorted(stored_ids(world))
        assert {status for each in publishers for status in each.statuses} == {202, 503}

        assert summary.unsettled == 0
        assert summary.stopped in {"idle", "time"} or "did not answer" in summary.stopped
        drain(environment)
        assert world.statuses() == {"succeeded": len(accepted)}
        copies = Counter(request.webhook_id for request in receiver.received)
        assert copies == dict.fromkeys(accepted, 1)


def stored_ids(world: World) -> list[str]:
    return [str(row["id"]) for row in world.sql("select id from leasehook.events")]
