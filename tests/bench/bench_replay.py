"""What a bulk replay of 100,000 dead deliveries does to everybody else, and what it costs.

One tenant's endpoint has the dead deliveries, another tenant publishes an event every few milliseconds. Drains run in
processes of their own, the replay's steps in another one. Compared in one run: how long the other tenant's events take
from publish to their settled success, and how long a claim takes, before the replay and while it goes on.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from infra.postgres import start_postgres
from shared import replay
from shared.replay import ReplayFilter
from shared.store import queue
from shared.store.connection import Database
from shared.store.migrations import migrate
from shared.store.tenancy import ensure_tenant
from tests.bench.sink import Sink
from tests.support.world import World

DRAIN = """
import sys
from functions.drain import handler
sys.stderr = open("/dev/null", "w")
print("ready", flush=True)
while True:
    handler({}, None)
"""

STEPS = """
import json, resource, time
from shared import replay
from shared.runtime import process_runtime
database = process_runtime().database
print("ready", flush=True)
input()
steps, sizes = [], []
while True:
    started = time.perf_counter()
    taken = replay.step(database)
    if taken is None:
        break
    steps.append(time.perf_counter() - started)
    sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(json.dumps({"steps": steps, "first_kib": sizes[4], "last_kib": sizes[-1]}), flush=True)
"""


@dataclass(frozen=True)
class Latency:
    """Seconds, sorted."""

    seconds: list[float]

    def at(self, share: float) -> float:
        """A quantile in milliseconds."""
        return self.seconds[min(int(len(self.seconds) * share), len(self.seconds) - 1)] * 1000

    def __str__(self) -> str:
        return f"p50 {self.at(0.5):6.1f} ms   p95 {self.at(0.95):6.1f} ms   p99 {self.at(0.99):6.1f} ms"


@contextmanager
def process(source: str, environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A child that is ready, killed at the end."""
    child = subprocess.Popen(
        [sys.executable, "-c", source],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
    finally:
        child.kill()
        child.wait()


def publish_and_claim(world: World, tenant_id: UUID, until: threading.Event) -> Latency:
    """Publish a small event every 10 ms until told to stop; how long claims of nothing much take meanwhile."""
    claims = []
    while not until.wait(0.01):
        world.sql("select leasehook.publish(%s, 'order.paid', '{}'::json)", tenant_id)
        with world.database.connection() as connection, connection.transaction(force_rollback=True):
            request = queue.ClaimRequest(
                uuid4(), 50, 60.0, queue.START, 400, 20, [], [], 15, 1000.0
            )
            started = time.perf_counter()
            queue.claim(connection, request)
            claims.append(time.perf_counter() - started)
    return Latency(sorted(claims))


def latency_of(world: World, tenant_id: UUID, since: object) -> Latency:
    """From publish to settled success, of what a tenant published since then."""
    deadline = time.monotonic() + 30
    while world.sql(
        "select 1 from leasehook.deliveries where tenant_id = %s and claimable_at is not null limit 1",
        tenant_id,
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    rows = world.sql(
        """
        select extract(epoch from finished_at - created_at)::float8 as seconds
        from leasehook.deliveries
        where tenant_id = %s and created_at >= %s and status = 'succeeded'
        order by 1
        """,
        tenant_id,
        since,
    )
    return Latency([row["seconds"] for row in rows])


def bury(world: World, url: str, count: int) -> None:
    """An endpoint with so many dead deliveries."""
    world.endpoint(url)
    world.publish_many(count)
    world.sql(
        """
        update leasehook.deliveries
        set status = 'dead', dead_reason = 'attempts_exhausted', attempt_count = 16, claimable_at = null,
            finished_at = now()
        """
    )
    world.sql("vacuum analyze leasehook.deliveries")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dead", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Sink() as sink,
        start_postgres(
            Path(folder) / "data", settings={"shared_buffers": "512MB", "max_wal_size": "4GB"}
        ) as server,
    ):
        database = Database(server.url())
        migrate(database)
        world = World(database)
        bury(world, sink.url("/dead"), arguments.dead)
        other = ensure_tenant(database, "other")
        for number in range(10):
            world.endpoint(sink.url(f"/live/{number}"), tenant_id=other)
        environment = world.environment(server.url(), LEASEHOOK_DRAIN_BUDGET_SECONDS="600")
        with (
            process(DRAIN, environment),
            process(STEPS, environment) as stepper,
        ):
            assert stepper.stdin is not None
            assert stepper.stdout is not None

            since = world.now()
            stop = threading.Event()
            threading.Timer(arguments.seconds, stop.set).start()
            claims_before = publish_and_claim(world, other, stop)
            before = latency_of(world, other, since)

            started = time.perf_counter()
            job = replay.create(database, world.tenant_id, ReplayFilter())
            counted = time.perf_counter() - started
            since, stop = world.now(), threading.Event()
            stepper.stdin.write("go\n")
            stepper.stdin.flush()
            line: list[str] = []

            def wait_for_it() -> None:
                assert stepper.stdout is not None
                line.append(stepper.stdout.readline())
                # The replayed deliveries are still on their way.
                stop.wait(arguments.seconds)
                stop.set()

            waiting = threading.Thread(target=wait_for_it)
            waiting.start()
            claims_during = publish_and_claim(world, other, stop)
            waiting.join()
            during = latency_of(world, other, since)
        report = json.loads(line[0])
        done = replay.get(database, world.tenant_id, job["id"])
        assert (done["state"], done["replayed_count"]) == ("finished", arguments.dead), done
        assert (
            world.sql("select 1 from leasehook.deliveries where attempt_base not in (0, 16)") == []
        )
        delivered = sink.count()
        database.close()
    steps = report["steps"]
    lines = [
        f"counting {arguments.dead} matches: {counted * 1000:.0f} ms, and the job is made",
        f"replaying them: {len(steps)} steps in {sum(steps):.1f} s, {statistics.median(steps) * 1000:.0f} ms a step "
        f"(max {max(steps) * 1000:.0f} ms), memory {report['first_kib'] / 1024:.1f} MiB after 5 steps, "
        f"{report['last_kib'] / 1024:.1f} MiB at the end",
        f"requests received in all: {delivered}",
        f"other tenant, publish to success, before: {before}",
        f"other tenant, publish to success, during: {during}",
        f"claim, before: {claims_before}",
        f"claim, during: {claims_during}",
        f"during / before: delivery p50 {during.at(0.5) / before.at(0.5):.2f}, "
        f"p95 {during.at(0.95) / before.at(0.95):.2f}; "
        f"claim p50 {claims_during.at(0.5) / claims_before.at(0.5):.2f}, "
        f"p95 {claims_during.at(0.95) / claims_before.at(0.95):.2f}",
    ]
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
