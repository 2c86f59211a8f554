"""Providers' webhooks and processes that die: what was answered is committed, and the provider's retry stores it once."""

import http.client
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from shared.sources import NewSource, create_source
from tests.support.providers import GITHUB_SECRET, Signed, sign
from tests.support.proxy import Moment, Proxy
from tests.support.workers import Worker
from tests.support.world import World

pytestmark = pytest.mark.crash


@dataclass(frozen=True)
class Scene:
    """A source whose events go to two endpoints, and a webhook for it."""

    world: World
    database_url: str
    path: str
    webhook: Signed

    @property
    def event_count(self) -> int:
        return int(self.world.one("select count(*) as n from leasehook.events")["n"])

    def retries(self) -> list[str | None]:
        """The verdicts on the provider's retries, by a new process."""
        with Worker("serve", self.world.environment(self.database_url)) as server:
            port = int(server.line())
            answers = [post(port, self.path, self.webhook) for _ in range(2)]
        assert [status for status, _ in answers] == [200, 200]
        return [verdict for _, verdict in answers]

    def assert_stored_once(self) -> None:
        assert self.event_count == 1
        assert self.world.statuses() == {"pending": 2}
        accepted = self.world.sql("select 1 from leasehook.received where verdict = 'accepted'")
        assert len(accepted) == 1


@pytest.fixture
def scene(world: World, database_url: str) -> Scene:
    for _ in range(2):
        world.endpoint()
    new = NewSource(provider="github", secret=GITHUB_SECRET)
    source = create_source(world.database, world.sealer, world.tenant_id, new)
    webhook = sign("github", b'{"action": "opened"}', event="issues", message_id="id-1")
    return Scene(world, database_url, source["path"], webhook)


def post(port: int, path: str, request: Signed) -> tuple[int, str | None]:
    """Status and verdict of a server on this machine."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", path, request.body, dict(request.headers))
        response = connection.getresponse()
        response.read()
        return response.status, response.headers["leasehook-verdict"]
    finally:
        connection.close()


@contextmanager
def being_received(scene: Scene, database_url: str) -> Iterator[Worker]:
    """A server that was sent the webhook; its answer must never come."""
    environment = scene.world.environment(database_url)
    with Worker("serve", environment) as server, ThreadPoolExecutor(1) as client:
        answer = client.submit(post, int(server.line()), scene.path, scene.webhook)
        yield server
        with pytest.raises((OSError, http.client.HTTPException)):
            answer.result(10)


@pytest.mark.parametrize(
    ("statement", "moment"),
    [
        ("find_source", Moment.BEFORE),
        ("find_source", Moment.AFTER),
        ("receive", Moment.BEFORE),
        ("receive", Moment.AFTER),
    ],
)
def test_a_gateway_killed_between_any_two_statements_stores_the_retry_once(
    scene: Scene, proxy: Proxy, statement: str, moment: Moment
) -> None:
    """WH-112."""
    is_stored = (statement, moment) == ("receive", Moment.AFTER)
    with (
        proxy.hold(statement, moment) as trap,
        being_received(scene, proxy.url) as server,
    ):
        trap.wait()
        assert scene.event_count == int(is_stored)
        server.kill()

    first = "duplicate" if is_stored else "accepted"
    assert scene.retries() == [first, "duplicate"]
    scene.assert_stored_once()


@pytest.mark.parametrize("table", ["events", "deliveries", "received"])
def test_a_gateway_killed_inside_the_transaction_leaves_nothing_and_stores_the_retry_once(
    scene: Scene, table: str
) -> None:
    """WH-112: at each of the tables that the transaction writes."""
    world = scene.world
    with world.database.transaction() as connection:
        connection.execute(f"lock table leasehook.{table} in share mode".encode())
        with being_received(scene, scene.database_url) as server:
            world.until_somebody_waits_for_a_lock()
            server.kill()
            # A session whose client is gone notices only when it wants to answer.
            world.sql(
                """
                select pg_terminate_backend(pid)
                from pg_stat_activity
                where datname = current_database() and wait_event_type = 'Lock'
                """
            )
    world.until("not exists (select 1 from leasehook.events)")

    assert scene.retries() == ["accepted", "duplicate"]
    scene.assert_stored_once()


@pytest.mark.parametrize("moment", Moment)
def test_a_connection_cut_around_the_commit_is_503_and_the_retry_is_stored_once(
    scene: Scene, proxy: Proxy, moment: Moment
) -> None:
    """WH-112: never a 2xx for what is not known to be committed."""
    with (
        Worker("serve", scene.world.environment(proxy.url)) as server,
        proxy.cut("receive", moment) as trap,
    ):
        status, verdict = post(int(server.line()), scene.path, scene.webhook)
        trap.wait()
        assert (status, verdict) == (503, None)

    first = "accepted" if moment is Moment.BEFORE else "duplicate"
    assert scene.retries() == [first, "duplicate"]
    scene.assert_stored_once()


def test_a_provider_that_goes_on_sending_while_gateways_die_loses_and_doubles_nothing(
    scene: Scene,
) -> None:
    """Every webhook is sent until it is answered, by servers that are killed as they work."""
    world = scene.world
    waiting = {f"id-{n}": sign("github", b"{}", message_id=f"id-{n}") for n in range(60)}
    kills = 0
    while waiting:
        with Worker("serve", world.environment(scene.database_url)) as server:
            port = int(server.line())
            with ThreadPoolExecutor(8) as senders:
                sent = {
                    name: senders.submit(post, port, scene.path, w) for name, w in waiting.items()
                }
                if kills < 2:
                    while sum(each.done() for each in sent.values()) < 10:
                        time.sleep(0.001)
                    server.kill()
                    kills += 1
            for name, answer in sent.items():
                if answer.exception() is None and answer.result()[0] == 200:
                    del waiting[name]

    assert kills == 2
    ids = world.sql("select dedupe_id from leasehook.received where verdict = 'accepted'")
    assert sorted(row["dedupe_id"] for row in ids) == sorted(f"id-{n}" for n in range(60))
    assert scene.event_count == 60
    assert world.statuses() == {"pending": 120}
