"""Deliveries per second of the whole path (claim, open, sign, POST, settle), beside stock httpx on the same receiver.

Everything runs on this machine at the same time: Postgres (durable), the receiver and the drains share its cores, so
compare figures of one run only.
"""

import argparse
import asyncio
import base64
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from infra.postgres import start_postgres
from shared.store.connection import Database
from shared.store.migrations import migrate
from tests.bench.sink import Sink
from tests.support.world import SEALING_KEY, World

DRAIN = """
import json, sys, time
from functions.drain import handler
sys.stderr = open("/dev/null", "w")
print("ready", flush=True)
sys.stdin.readline()
started, cpu = time.perf_counter(), time.process_time()
summary = handler({}, None)
summary["seconds"], summary["cpu_seconds"] = time.perf_counter() - started, time.process_time() - cpu
print(json.dumps(summary))
"""


def seed(world: World, sink: Sink, endpoints: int, deliveries: int, payload_bytes: int) -> None:
    """Make endpoints and due deliveries for them."""
    world.sql("truncate leasehook.events cascade")
    if not world.sql("select 1 from leasehook.endpoints limit 1"):
        for number in range(endpoints):
            world.endpoint(sink.url(f"/{number}"))
    payload = json.dumps({"pad": "x" * payload_bytes})
    world.sql(
        "select leasehook.publish(%s, 'order.paid', %s::json) from generate_series(1, %s)",
        world.tenant_id,
        payload,
        deliveries // endpoints,
    )
    world.sql("vacuum analyze leasehook.deliveries")


def drain(url: str, processes: int) -> list[dict[str, float]]:
    """Run overlapping drains in processes of their own; their summaries."""
    environment = {
        **os.environ,
        "DATABASE_URL": url,
        "LEASEHOOK_SECRET_KEY": base64.b64encode(SEALING_KEY).decode(),
        "LEASEHOOK_ALLOW_TARGETS": "127.0.0.0/8",
        "LEASEHOOK_DRAIN_BUDGET_SECONDS": "300",
    }
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", DRAIN],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    for worker in workers:
        assert worker.stdout is not None
        worker.stdout.readline()
    summaries = []
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        assert worker.stdout is not None
        summaries.append(json.loads(worker.stdout.readline()))
        worker.wait()
    return summaries


async def _with_httpx(url: str, requests: int, concurrency: int, body: bytes) -> float:
    async with httpx.AsyncClient(
        trust_env=False, limits=httpx.Limits(max_connections=concurrency)
    ) as client:
        numbers = iter(range(requests))

        async def work() -> None:
            for number in numbers:
                await client.post(f"{url}{number % 50}", content=body)

        started = time.perf_counter()
        await asyncio.gather(*[work() for _ in range(concurrency)])
        return requests / (time.perf_counter() - started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deliveries", type=int, default=20_000)
    parser.add_argument("--endpoints", type=int, default=50)
    parser.add_argument("--payload-bytes", type=int, default=1000)
    arguments = parser.parse_args()
    multiprocessing.set_start_method("spawn")
    with tempfile.TemporaryDirectory() as folder, Sink() as sink:
        with start_postgres(
            Path(folder) / "data", settings={"shared_buffers": "512MB", "max_wal_size": "4GB"}
        ) as server:
            database = Database(server.url())
            migrate(database)
            world = World(database)
            for processes in (1, 2):
                seed(
                    world, sink, arguments.endpoints, arguments.deliveries, arguments.payload_bytes
                )
                before = sink.count()
                summaries = drain(server.url(), processes)
                seconds = max(summary["seconds"] for summary in summaries)
                cpu = sum(summary["cpu_seconds"] for summary in summaries)
                left = world.statuses()
                assert left == {"succeeded": arguments.deliveries}, left
                assert sink.count() - before == arguments.deliveries, "duplicates"
                print(
                    f"{processes} drain(s): {arguments.deliveries / seconds:7.0f} deliveries/s, "
                    f"{arguments.deliveries / cpu:7.0f} per second of drain CPU, "
                    f"{sum(s['claims'] for s in summaries):4.0f} claims, {sum(s['settles'] for s in summaries):4.0f} settles"
                )
            database.close()
        stock = asyncio.run(_with_httpx(sink.url("/"), 2000, 200, b"x" * arguments.payload_bytes))
        print(
            f"stock httpx:  {stock:7.0f} POSTs/s to the same receiver, 200 at once: no queue, no signature"
        )


if __name__ == "__main__":
    main()
