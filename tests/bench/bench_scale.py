"""Measures on this machine what the model is computed from: the real functions on an embedded, durable Postgres.

    python -m tests.bench.bench_scale

Postgres, the receiver and the drain share the machine's cores, so rates are lower than with a machine each; CPU,
bytes and WAL per delivery are not affected.
"""

import asyncio
import io
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid4

from infra.postgres import Server, start_postgres
from infra.scale.workload import Receivers
from shared.config import Settings
from shared.crypto import Sealer
from shared.dispatch import Summary, drain, make_tools
from shared.domain.circuit import CircuitPolicy
from shared.domain.targets import TargetPolicy, parse_networks
from shared.endpoints import NewEndpoint, create_endpoint
from shared.keys import SCOPES, create_key
from shared.maintenance import maintain, queue_health
from shared.runtime import Runtime
from shared.sender.transport import Transport
from shared.store import queue, tenancy
from shared.store.connection import Database, Row
from shared.store.migrations import migrate
from shared.telemetry import attempt_log
from tests.bench.slow_receiver import Manner, SlowReceiver, make_certificate

SEALING_KEY = bytes(range(32))
LOOPBACK = TargetPolicy(parse_networks("127.0.0.0/8"))
_BATCHES = (1, 20, 50, 100, 200)
_ROUNDS = 15
_TABLES = ("events", "deliveries", "attempts", "idempotency_keys")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spent:
    """What a piece of work cost: seconds of the clock, of the database's CPU and of this process's, and WAL."""

    seconds: float
    database_cpu_seconds: float
    process_cpu_seconds: float
    wal_bytes: int
    wal_full_page_images: int

    def per(self, count: int) -> dict[str, float]:
        """For one of `count`."""
        return {
            "ms": self.seconds * 1e3 / count,
            "database_cpu_ms": self.database_cpu_seconds * 1e3 / count,
            "process_cpu_ms": self.process_cpu_seconds * 1e3 / count,
            "wal_bytes": self.wal_bytes / count,
            "wal_full_page_images": self.wal_full_page_images / count,
        }


class Bench:
    """A tenant on a real server, and what is measured around it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.database = Database(server.url())
        migrate(self.database)
        self.tenant_id: UUID = tenancy.ensure_tenant(self.database, "default")
        self._spent: Spent | None = None

    def sql(self, statement: str, *parameters: object) -> list[Row]:
        """Run any SQL and return its rows."""
        with self.database.connection() as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def clear(self) -> None:
        """No events, no endpoints, and a checkpoint behind us."""
        self.sql(
            "truncate leasehook.events, leasehook.endpoints, leasehook.idempotency_keys cascade"
        )
        self.sql("checkpoint")

    def endpoints(self, receiver: SlowReceiver, count: int) -> None:
        """Make endpoints of a receiver that take everything."""
        for number in range(count):
            create_endpoint(
                self.database,
                Sealer([SEALING_KEY]),
                LOOPBACK,
                self.tenant_id,
                NewEndpoint(url=receiver.url(f"/{number}")),
            )

    def publish(self, events: int, payload_bytes: int) -> None:
        """Publish events in one transaction each."""
        payload = json.dumps({"pad": "x" * (payload_bytes - 11)})
        for number in range(events):
            self.sql(
                "select leasehook.publish(%s, 'order.paid', %s::json, idempotency_key => %s)",
                self.tenant_id,
                payload,
                f"order-{number}",
            )

    def publish_many(self, events: int, payload_bytes: int) -> None:
        """Publish events in one transaction."""
        self.sql(
            "select leasehook.publish(%s, 'order.paid', %s::json) from generate_series(1, %s)",
            self.tenant_id,
            json.dumps({"pad": "x" * (payload_bytes - 11)}),
            events,
        )

    def drain(self, settings: Settings) -> Summary:
        """One drain until nothing is due."""
        runtime = Runtime(settings)
        transport = Transport(settings.targets, body_cap_bytes=settings.response_bytes)
        tools = make_tools(
            runtime, transport, attempt_log(io.StringIO()), lambda: datetime.now(UTC)
        )

        async def run() -> Summary:
            summary = await drain(tools, settings.drain_budget_seconds)
            await transport.aclose()
            return summary

        summary = asyncio.run(run())
        runtime.database.close()
        return summary

    def settings(self, budget_seconds: float = 600.0, linger_seconds: float = 0.0) -> Settings:
        """The defaults, with this server's address, and loopback open."""
        return Settings(
            database_url=self._server.url(),
            secret_keys=(SEALING_KEY,),
            targets=LOOPBACK,
            drain_budget_seconds=budget_seconds,
            drain_linger_seconds=linger_seconds,
        )

    @contextmanager
    def spending(self) -> Iterator[list[Spent]]:
        """Measures what happens inside; the list holds the result afterwards."""
        result: list[Spent] = []
        before = self._counters()
        started, cpu = time.perf_counter(), time.process_time()
        yield result
        seconds, used = time.perf_counter() - started, time.process_time() - cpu
        after = self._counters()
        result.append(
            Spent(
                seconds,
                after[0] - before[0],
                used,
                int(after[1] - before[1]),
                int(after[2] - before[2]),
            )
        )

    def sizes(self) -> dict[str, dict[str, int]]:
        """Bytes of each table with its TOAST, and of its indexes."""
        return {
            table: self.sql(
                "select pg_table_size(%s::regclass) as heap, pg_indexes_size(%s::regclass) as indexes",
                f"leasehook.{table}",
                f"leasehook.{table}",
            )[0]
            for table in _TABLES
        }

    def _counters(self) -> tuple[float, float, float]:
        [row] = self.sql(
            "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn as bytes, wal_fpi from pg_stat_wal"
        )
        return _cpu_seconds(self._server.pid), float(row["bytes"]), float(row["wal_fpi"])


def _cpu_seconds(postmaster: int) -> float:
    """CPU of a server so far: of its running processes, and of those that have ended. Linux only."""
    total = 0.0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text()
        except OSError:  # it has ended meanwhile; the postmaster has its time
            continue
        columns = text.rpartition(")")[2].split()
        if int(folder.name) == postmaster:
            total += sum(map(int, columns[11:15])) / _TICKS_PER_SECOND
        elif int(columns[1]) == postmaster:
            total += sum(map(int, columns[11:13])) / _TICKS_PER_SECOND
    return total


def measure_database(bench: Bench, payload_bytes: int, events: int) -> dict[str, Any]:
    """WAL and CPU per step of the path, and what a row leaves on disk."""
    found: dict[str, Any] = {}
    with SlowReceiver(Manner()) as receiver:
        for fan_out in (1, 4):
            bench.clear()
            bench.endpoints(receiver, fan_out)
            with bench.spending() as spent:
                bench.publish(events, payload_bytes)
            found[f"publish, fan-out {fan_out}, per event"] = spent[0].per(events)
            keys = bench.sizes()["idempotency_keys"]
            found["idempotency key, bytes"] = sum(keys.values()) / events
        bench.clear()
        bench.endpoints(receiver, 50)
        deliveries, rounds = 0, 10
        spending: list[Spent] = []
        claims = settles = 0
        for _ in range(rounds):
            bench.publish_many(events // 50, payload_bytes)
            deliveries += events // 50 * 50
            with bench.spending() as spent:
                summary = bench.drain(bench.settings())
            spending += spent
            claims, settles = claims + summary.claims, settles + summary.settles
    found["drain, per delivery"] = {
        name: sum(each.per(deliveries // rounds)[name] for each in spending) / rounds
        for name in spending[0].per(1)
    } | {"per_claim": deliveries / claims, "per_settle": deliveries / settles}
    found["rows"] = bench.sql(
        "select (select count(*) from leasehook.events) as events,"
        " (select count(*) from leasehook.deliveries) as deliveries,"
        " (select count(*) from leasehook.attempts) as attempts"
    )[0]
    bench.sql("vacuum analyze leasehook.deliveries")
    found["sizes"] = bench.sizes()
    for table, columns in {
        "deliveries": ("created_at", "finished_at"),
        "events": ("created_at",),
    }.items():
        moved = ", ".join(f"{column} = {column} - interval '60 days'" for column in columns)
        bench.sql(f"update leasehook.{table} set {moved}")  # names from above
    bench.sql("vacuum analyze leasehook.deliveries")
    bench.sql("vacuum analyze leasehook.events")
    bench.sql("checkpoint")
    with bench.spending() as spent:
        upkeep = maintain(bench.database, bench.settings(), lambda: False)
    found["prune, per delivery"] = spent[0].per(upkeep.deliveries_pruned)
    with bench.spending() as spent:
        for _ in range(100):
            queue_health(bench.database)
    found["queue health, each"] = spent[0].per(100)
    return found


def measure_statements(bench: Bench) -> dict[str, Any]:
    """Median ms of a claim and a settle, by batch, and their fit by a fixed part and one per row."""
    bench.clear()
    with SlowReceiver(Manner()) as receiver:
        bench.endpoints(receiver, 50)
    bench.publish_many(400, 1000)
    bench.sql("vacuum analyze leasehook.deliveries")
    medians: dict[str, dict[int, float]] = {"claim": {}, "settle": {}}
    for batch in _BATCHES:
        rounds = [_claim_and_settle(bench, batch) for _ in range(_ROUNDS)]
        medians["claim"][batch] = statistics.median(claim for claim, _ in rounds)
        medians["settle"][batch] = statistics.median(settle for _, settle in rounds)
    fits = {
        f"{name}, fixed and per row": (line.intercept, line.slope)
        for name, points in medians.items()
        for line in [statistics.linear_regression(list(points), list(points.values()))]
    }
    return medians | fits


def _claim_and_settle(bench: Bench, batch: int) -> tuple[float, float]:
    token = uuid4()
    request = queue.ClaimRequest(
        token, batch, 60.0, queue.START, max(2 * batch, 64), 100, [], [], 15, 1000.0
    )
    with bench.database.connection() as connection:
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
        return (claimed_at - started) * 1e3, (time.perf_counter() - settling_at) * 1e3


def measure_throughput(
    bench: Bench, latency_seconds: float, endpoints: int, deliveries: int
) -> dict[str, float]:
    """The rate of one drain when the receiver takes this long."""
    bench.clear()
    with SlowReceiver(Manner((latency_seconds,))) as receiver:
        bench.endpoints(receiver, endpoints)
        bench.publish_many(deliveries // endpoints, 1000)
        bench.sql("vacuum analyze leasehook.deliveries")
        with bench.spending() as spent:
            summary = bench.drain(bench.settings())
    return {
        "latency_seconds": latency_seconds,
        "endpoints": endpoints,
        "deliveries": summary.succeeded,
        "per_second": summary.succeeded / spent[0].seconds,
        "cpu_ms": spent[0].process_cpu_seconds * 1e3 / summary.succeeded,
        "database_cpu_ms": spent[0].database_cpu_seconds * 1e3 / summary.succeeded,
        "claims": summary.claims,
        "settles": summary.settles,
    }


def measure_paced(bench: Bench, per_second: float, seconds: float) -> dict[str, float]:
    """What a polling drain does with events that come one by one, to receivers of the default latency."""
    bench.clear()
    quantiles = tuple(Receivers().quantiles(15.0))
    chance = random.Random(1)  # a simulation's
    with SlowReceiver(Manner(quantiles)) as receiver, ThreadPoolExecutor(1) as publisher:
        bench.endpoints(receiver, 50)
        bench.publish_many(1, 1000)
        bench.drain(bench.settings())
        endpoint_ids = [row["id"] for row in bench.sql("select id from leasehook.endpoints")]
        # One endpoint takes each event, as in a deployment without fan-out.
        for number, endpoint_id in enumerate(endpoint_ids):
            bench.sql(
                "update leasehook.endpoints set event_types = array[%s] where id = %s",
                f"order.{number}",
                endpoint_id,
            )

        def publish() -> None:
            started = at = time.perf_counter()
            while at - started < seconds:
                bench.sql(
                    "select leasehook.publish(%s, %s, %s::json)",
                    bench.tenant_id,
                    f"order.{chance.randrange(50)}",
                    json.dumps({"pad": "x" * 989}),
                )
                at += chance.expovariate(per_second)
                time.sleep(max(at - time.perf_counter(), 0.0))

        settings = bench.settings(seconds + 21, seconds + 21)
        with bench.spending() as spent:
            publishing = publisher.submit(publish)
            summary = bench.drain(settings)
            publishing.result()
    [waits] = bench.sql(
        "select percentile_cont(array[0.5, 0.99]) within group (order by"
        " extract(epoch from a.started_at - d.created_at)) as percentiles"
        " from leasehook.attempts as a join leasehook.deliveries as d on a.delivery_id = d.id"
        " where d.created_at > (select min(created_at) + interval '2 seconds' from leasehook.deliveries)"
    )
    return {
        "per_second": summary.succeeded / seconds,
        "claims_per_second": summary.claims / seconds,
        "settles_per_second": summary.settles / seconds,
        "database_cores": spent[0].database_cpu_seconds / seconds,
        "drain_cores": spent[0].process_cpu_seconds / seconds,
        "wait_p50_ms": waits["percentiles"][0] * 1e3,
        "wait_p99_ms": waits["percentiles"][1] * 1e3,
    }


def measure_tls(bench: Bench, folder: Path, deliveries: int) -> dict[str, float]:
    """CPU of a drain per delivery in ms: plain, over kept TLS connections, over a new one each."""
    certificate = make_certificate(folder)
    os.environ["SSL_CERT_FILE"] = str(certificate)
    manners = {
        "kept HTTP": Manner(),
        "kept TLS": Manner(certificate=certificate),
        "new TLS": Manner(certificate=certificate, closes=True),
    }
    found = {}
    for name, manner in manners.items():
        bench.clear()
        with SlowReceiver(manner) as receiver:
            bench.endpoints(receiver, 50)
            bench.publish_many(deliveries // 50, 1000)
            bench.sql("vacuum analyze leasehook.deliveries")
            with bench.spending() as spent:
                summary = bench.drain(bench.settings())
        found[name] = spent[0].process_cpu_seconds * 1e3 / (summary.succeeded or 1)
        found[f"{name}, retried"] = summary.retried
    del os.environ["SSL_CERT_FILE"]
    return found


def measure_ingest(bench: Bench, server: Server, events: int) -> dict[str, float]:
    """CPU of the ingest function per publish over its Lambda handler, and of the database."""
    os.environ["DATABASE_URL"] = server.url()
    from functions.ingest import handler  # reads the environment on first use

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    bench.clear()
    with SlowReceiver(Manner()) as receiver:
        bench.endpoints(receiver, 1)
    key = create_key(bench.database, bench.tenant_id, "bench", SCOPES)["key"]

    def publish(number: int) -> None:
        body = {
            "type": "order.paid",
            "payload": {"pad": "x" * 989},
            "idempotency_key": f"order-{number}",
        }
        answer = handler(_request(str(key), json.dumps(body)), None)
        if answer["statusCode"] != 202:
            raise RuntimeError(f"publish was answered with {answer['statusCode']}")

    publish(-1)
    with bench.spending() as spent:
        for number in range(events):
            publish(number)
    asyncio.set_event_loop(None)
    loop.close()
    return spent[0].per(events)


def _request(key: str, body: str) -> dict[str, Any]:
    return {
        "version": "2.0",
        "routeKey": "POST /v1/events",
        "rawPath": "/v1/events",
        "rawQueryString": "",
        "headers": {
            "host": "bench",
            "authorization": f"Bearer {key}",
            "content-type": "application/json",
        },
        "requestContext": {
            "stage": "$default",
            "http": {
                "method": "POST",
                "path": "/v1/events",
                "protocol": "HTTP/1.1",
                "sourceIp": "198.51.100.7",
                "userAgent": "bench",
            },
        },
        "body": body,
        "isBase64Encoded": False,
    }


def measure() -> dict[str, Any]:
    """Everything, in a few minutes."""
    with (
        TemporaryDirectory() as folder,
        start_postgres(
            Path(folder) / "data", settings={"shared_buffers": "512MB", "max_wal_size": "4GB"}
        ) as server,
    ):
        bench = Bench(server)
        found: dict[str, Any] = {}
        found["database"] = measure_database(bench, 1000, 5000)
        found["statements, ms"] = measure_statements(bench)
        found["throughput"] = [
            measure_throughput(bench, *case)
            for case in (
                (0.0, 50, 20_000),
                (0.05, 50, 20_000),
                (0.2, 50, 10_000),
                (0.2, 1, 5_000),
                (1.0, 50, 3_000),
            )
        ]
        found["paced"] = [measure_paced(bench, rate, 20.0) for rate in (10.0, 50.0, 100.0)]
        found["drain CPU per delivery, ms"] = measure_tls(bench, Path(folder), 10_000)
        found["ingest, per publish"] = measure_ingest(bench, server, 2000)
        bench.database.close()
    return found


def main() -> None:
    """Measure and print."""
    sys.stdout.write(json.dumps(measure(), indent=2) + "\n")


if __name__ == "__main__":
    main()
