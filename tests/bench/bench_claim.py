"""What a claim and a settle of 200 cost, on an empty history and on a full one, in the same run.

The full one: a million finished deliveries, a hundred thousand due, as many due behind open circuits, over a thousand
endpoints.
"""

import statistics
import tempfile
import time
from pathlib import Path
from uuid import UUID, uuid4

from infra.postgres import start_postgres
from shared.domain.circuit import CircuitPolicy
from shared.store import queue
from shared.store.connection import Database
from shared.store.migrations import migrate
from tests.store.test_plans import BATCH, ENDPOINTS, crowd
from tests.support.world import World

ROUNDS = 60


def measure(world: World) -> tuple[float, float]:
    """Median milliseconds of claim and settle, each over ROUNDS full batches."""
    claims: list[float] = []
    settles: list[float] = []
    after = queue.START
    with world.database.connection() as connection:
        while len(claims) < ROUNDS:
            token = uuid4()
            request = queue.ClaimRequest(
                token, BATCH, 60.0, after, 2 * BATCH, 100, [], [], 15, 1000.0
            )
            started = time.perf_counter()
            harvest = queue.claim(connection, request)
            claimed_at = time.perf_counter()
            reports = [
                queue.Report(
                    each.delivery_id,
                    token,
                    each.attempt_count,
                    "succeed",
                    sent=True,
                    evidence="success",
                    status_code=200,
                )
                for each in harvest.claimed
            ]
            settling_at = time.perf_counter()
            queue.settle(connection, reports, CircuitPolicy())
            settled_at = time.perf_counter()
            full = len(harvest.claimed) == BATCH
            after = (
                max(each.endpoint_id for each in harvest.claimed)
                if full
                else harvest.swept_to or UUID(int=0)
            )
            if full:
                claims.append(claimed_at - started)
                settles.append(settled_at - settling_at)
    return statistics.median(claims) * 1000, statistics.median(settles) * 1000


def main() -> None:
    """Measure and print."""
    settings = {"shared_buffers": "1GB", "max_wal_size": "8GB"}
    with (
        tempfile.TemporaryDirectory() as folder,
        start_postgres(Path(folder) / "data", settings=settings) as server,
    ):
        database = Database(server.url())
        migrate(database)
        world = World(database)
        results = {}
        for name, finished, blocked in (
            ("empty history", 0, 0),
            ("1 M finished, 100 k blocked", 1_000_000, 100_000),
        ):
            world.sql("truncate leasehook.endpoints, leasehook.events cascade")
            crowd(world, server.url(), finished=finished, due=100_000, blocked=blocked)
            results[name] = measure(world)
        database.close()
    for name, (claim, settle) in results.items():
        print(f"{name:30} claim of {BATCH}: {claim:6.2f} ms   settle of {BATCH}: {settle:6.2f} ms")
    (claim_empty, settle_empty), (claim_full, settle_full) = results.values()
    print(
        f"full / empty: claim {claim_full / claim_empty:.2f}, settle {settle_full / settle_empty:.2f} "
        f"(100 k due in both, {ENDPOINTS} endpoints)"
    )


if __name__ == "__main__":
    main()
