"""200 warm environments are frozen for a night in which their connections die, and thaw together.

While an environment is frozen nothing of it runs: it neither notices nor answers. What it finds at its thaw is what is
tested: every publish is accepted, unless a loss shows only when the connection is used and the freeze was so short
that it is; then it is one 503.
"""

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from infra.postgres import Server, start_postgres
from shared.store.connection import Database
from shared.store.migrations import migrate
from tests.crash.lambdas import Answer, Ingest
from tests.support import pgbouncer
from tests.support.pgbouncer import PgBouncer
from tests.support.proxy import Proxy
from tests.support.world import World

pytestmark = pytest.mark.crash

ENVIRONMENTS = 200
AT_ONCE = 64
SESSIONS = """
    select count(*) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""
A_NAP_SECONDS = 60.0
"""Shorter than anything on the way forgets a silent connection in."""
A_NIGHT_SECONDS = 8 * 3600.0

on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="the kernel drops packets by a socket filter"
)


class Fleet:
    """Warm ingest environments, each with a connection of its own, that reach the server by one route."""

    def __init__(self, server: Server, route: Proxy, world: World) -> None:
        self.server = server
        self.route = route
        self.world = world
        self.accepted: list[str] = []
        self._frozen_seconds = 0.0
        self._rounds = itertools.count()
        # 64 at once on a busy machine may wait for their turn; a dead way is noticed quickly all the same.
        url = route.url_with(connect_timeout="10", tcp_user_timeout="500")
        key, variables = world.key(), world.environment(url)
        self._environments = [Ingest(variables, key) for _ in range(ENVIRONMENTS)]
        for environment in self._environments:
            environment._runtime.database._clock = self._clock

    def close(self) -> None:
        for environment in self._environments:
            environment.__exit__(None, None, None)

    @contextmanager
    def frozen_for(self, seconds: float) -> Iterator[None]:
        """Nothing of them runs inside the block, and so long has passed after it."""
        assert self.sessions() == ENVIRONMENTS
        yield
        self._frozen_seconds += seconds

    def publish(self, tries: int = 1) -> list[list[int]]:
        """Everybody publishes one event, together with all others, and repeats it until it is accepted.

        Returns the statuses that each environment saw.
        """
        number = next(self._rounds)

        def until_accepted(index: int) -> list[Answer]:
            key = f"{number}-{index}"
            event = {"type": "order.paid", "payload": {"n": index}, "idempotency_key": key}
            answers: list[Answer] = []
            while len(answers) < tries and not (answers and answers[-1].status == 202):
                answers.append(self._environments[index].publish(event))
            return answers

        with ThreadPoolExecutor(AT_ONCE) as invocations:
            seen = list(invocations.map(until_accepted, range(ENVIRONMENTS)))
        self.accepted += [each[-1].event_ids[0] for each in seen if each[-1].status == 202]
        return [[answer.status for answer in each] for each in seen]

    def sessions(self) -> int:
        """How many connections the server holds for them."""
        return int(self.world.one(f"select ({SESSIONS}) as count")["count"])

    def assert_one_session_each(self) -> None:
        """Nobody holds a second one; what the server was not told of, its own keepalives find out."""
        self.world.until(f"({SESSIONS}) <= {ENVIRONMENTS}")
        assert self.sessions() == ENVIRONMENTS

    def assert_nothing_is_lost_or_doubled(self) -> None:
        """Each accepted event is there once, with its delivery, and no other."""
        rows = self.world.sql("select event_id::text as id from leasehook.deliveries")
        assert sorted(row["id"] for row in rows) == sorted(self.accepted)
        assert self.world.one("select count(*) from leasehook.events")["count"] == len(rows)

    def _clock(self) -> float:
        return time.time() + self._frozen_seconds


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Everybody has published once. Each test leaves everybody with a live connection."""
    settings = {
        # For a while there are those that nobody has missed yet, too.
        "max_connections": str(2 * ENVIRONMENTS + 20),
        "synchronous_commit": "on",
        "tcp_keepalives_idle": "1",
        "tcp_keepalives_interval": "1",
        "tcp_keepalives_count": "2",
    }
    with ExitStack() as stack:
        data_dir = tmp_path_factory.mktemp("night")
        server = stack.enter_context(start_postgres(data_dir, durable=False, settings=settings))
        database = Database(server.url())
        stack.callback(database.close)
        migrate(database)
        world = World(database)
        world.endpoint()
        route = stack.enter_context(Proxy(server.url()))
        fleet = Fleet(server, route, world)
        stack.callback(fleet.close)
        assert fleet.publish() == ENVIRONMENTS * [[202]]
        yield fleet


def restart(fleet: Fleet) -> None:
    fleet.server.restart()
    fleet.route.wait_until_empty()


def crash(fleet: Fleet) -> None:
    fleet.server.kill()
    fleet.server.start()
    fleet.route.wait_until_empty()


def terminate(fleet: Fleet) -> None:
    ended = fleet.world.sql(SESSIONS.replace("count(*)", "pg_terminate_backend(pid) as is_told"))
    assert [row["is_told"] for row in ended] == ENVIRONMENTS * [True]
    fleet.route.wait_until_empty()


def reset(fleet: Fleet) -> None:
    fleet.route.reset()


def finish(fleet: Fleet) -> None:
    fleet.route.finish()


def vanishing(fleet: Fleet) -> AbstractContextManager[None]:
    """Neither side hears of the other again."""
    return fleet.route.vanishing()


def expiring(fleet: Fleet) -> AbstractContextManager[None]:
    """RST is the answer to an environment's next word; the server is not told."""
    return fleet.route.expiring()


@pytest.mark.parametrize("strike", [restart, crash, terminate, reset, finish])
def test_a_connection_whose_end_was_told_is_never_handed_out(
    fleet: Fleet, strike: Callable[[Fleet], None]
) -> None:
    """WH-048: however short the freeze was, the news waits in the environment's own socket."""
    with fleet.frozen_for(A_NAP_SECONDS):
        strike(fleet)

    assert fleet.publish() == ENVIRONMENTS * [[202]]
    fleet.assert_one_session_each()
    fleet.assert_nothing_is_lost_or_doubled()


@on_linux
@pytest.mark.parametrize("forgetting", [vanishing, expiring])
def test_a_connection_that_may_be_forgotten_is_not_trusted_after_a_night(
    fleet: Fleet, forgetting: Callable[[Fleet], AbstractContextManager[None]]
) -> None:
    """WH-048: a NAT gateway forgets a silent connection, and tells neither side."""
    with ExitStack() as night:
        with fleet.frozen_for(A_NIGHT_SECONDS):
            night.enter_context(forgetting(fleet))

        assert fleet.publish() == ENVIRONMENTS * [[202]]
        fleet.assert_one_session_each()
        fleet.assert_nothing_is_lost_or_doubled()


@on_linux
@pytest.mark.parametrize("forgetting", [vanishing, expiring])
def test_a_loss_that_only_its_use_shows_costs_an_environment_one_503(
    fleet: Fleet, forgetting: Callable[[Fleet], AbstractContextManager[None]]
) -> None:
    """WH-048."""
    with ExitStack() as night:
        with fleet.frozen_for(A_NAP_SECONDS):
            night.enter_context(forgetting(fleet))

        assert fleet.publish(tries=2) == ENVIRONMENTS * [[503, 202]]
        fleet.assert_one_session_each()
        fleet.assert_nothing_is_lost_or_doubled()


@pytest.mark.skipif(pgbouncer.MISSING is not None, reason=pgbouncer.MISSING or "it is here")
def test_a_pooler_that_throws_its_clients_out_costs_nothing(fleet: Fleet) -> None:
    """WH-048."""
    with PgBouncer(fleet.server.url(), default_pool_size="20") as pooler:
        fleet.route.lead_to(pooler.url)
        fleet.route.reset()
        assert fleet.publish() == ENVIRONMENTS * [[202]]
        assert 0 < fleet.sessions() <= 20

        pooler.command("KILL postgres")
        pooler.command("RESUME postgres")
        fleet.route.wait_until_empty()
        assert fleet.publish() == ENVIRONMENTS * [[202]]
        assert 0 < fleet.sessions() <= 20
        fleet.route.lead_to(fleet.server.url())

    # And now the pooler itself is gone.
    fleet.route.wait_until_empty()
    assert fleet.publish() == ENVIRONMENTS * [[202]]
    fleet.assert_one_session_each()
    fleet.assert_nothing_is_lost_or_doubled()
