"""The tables of SCALE.md, from the model: `python -m infra.scale --write` puts them there, a test compares them."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from infra.scale.capacity import (
    DRAINS_OFFERED,
    bounds,
    connections,
    database_vcpus,
    drains_to_set,
    ingest_seconds,
    statements_per_second,
    stored,
)
from infra.scale.costs import Database, bill, choose_instance
from infra.scale.measured import BACKLOGS, MEASURED, MEASURED_ON, PACED
from infra.scale.prices import INSTANCES
from infra.scale.printed import attempt_line_bytes
from infra.scale.simulation import Result, backlog, burst, diurnal, simulate
from infra.scale.workload import FULL_CORE_MEGABYTES, Deployment, Receivers, Workload
from shared.config import Settings

PAGE = Path(__file__).parents[1] / "SCALE.md"
_SLOT = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_SEED = 1

FAST = Receivers(median_seconds=0.05, p99_seconds=0.2, timeout_share=0.001)
USUAL = Receivers()
SLOW = Receivers(median_seconds=1.0, p99_seconds=5.0, timeout_share=0.02)
_RECEIVERS = {
    "50 ms, 200 ms, 0.1 %": FAST,
    "200 ms, 1 s, 0.5 %": USUAL,
    "1 s, 5 s, 2 %": SLOW,
}
_VOLUMES = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)

Rows = Sequence[Sequence[str]]


def tables() -> dict[str, str]:
    """Every table by its name, as Markdown."""
    return {name: make() for name, make in _TABLES.items()}


def render(page: str) -> str:
    """The page with its tables as the model has them now.

    Raises:
        ValueError: the page has not exactly one place for each table.
    """
    places = [name for _, name, _, _ in _SLOT.findall(page)]
    if sorted(places) != sorted(_TABLES):
        raise ValueError(f"{PAGE.name} has places for {places}, the model has {list(_TABLES)}")
    made = tables()
    return _SLOT.sub(lambda slot: f"{slot[1]}{made[slot[2]]}\n{slot[4]}", page)


def figure(value: float) -> str:
    """Three significant digits, with thousands apart."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    text = f"{round(value, digits):,.{min(max(digits, 0), 3)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def money(value: float) -> str:
    """USD."""
    return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"


def _table(heads: Sequence[str], rows: Rows) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _drain(megabytes: int, slots: int) -> Deployment:
    return Deployment(
        drain_megabytes=megabytes, settings=replace(Settings(), drain_concurrency=slots)
    )


_DRAINS = (_drain(512, 200), _drain(FULL_CORE_MEGABYTES, 200), _drain(FULL_CORE_MEGABYTES, 600))


def _sized(per_day: float, receivers: Receivers = USUAL) -> tuple[Workload, Deployment]:
    """The first of _DRAINS of which DrainsPerTick offers enough; else the most of the last."""
    workload = Workload(deliveries_per_day=per_day, receivers=receivers)
    for drain in _DRAINS:
        if drains := drains_to_set(workload, drain):
            return workload, replace(drain, drains_per_tick=drains)
    return workload, replace(_DRAINS[-1], drains_per_tick=DRAINS_OFFERED[-1])


def _named(deployment: Deployment) -> str:
    slots = deployment.settings.drain_concurrency
    return f"{deployment.drains_per_tick} of {deployment.drain_megabytes} MB, {slots} slots"


def _bill() -> str:
    workload, deployment = Workload(), Deployment()
    base = bill(workload, deployment, Database.EXISTING)
    rows = [
        [line.what, f"{figure(line.quantity)} {line.unit}", f"{line.price:.10g}", money(line.usd)]
        for line in base.lines
    ]
    rows.append(["**with a database that you have**", "", "", f"**{money(base.usd)}**"])
    for database, name in ((Database.RDS, "RDS"), (Database.AURORA, "Aurora Serverless v2")):
        whole = bill(workload, deployment, database)
        rows += [
            [
                f"+ {line.what}",
                f"{figure(line.quantity)} {line.unit}",
                f"{line.price:.10g}",
                money(line.usd),
            ]
            for line in whole.lines[len(base.lines) :]
        ]
        rows.append([f"**with {name}**", "", "", f"**{money(whole.usd)}**"])
    in_vpc = bill(workload, replace(deployment, in_vpc=True))
    from_sql = bill(replace(workload, http_share=0.0), deployment)
    unpolled = bill(workload, replace(deployment, polls=False))
    rows += [
        ["a VPC with one NAT gateway adds", "", "", money(in_vpc.usd - base.usd)],
        ["publishing from SQL only takes off", "", "", money(base.usd - from_sql.usd)],
        ["drains that do not linger take off", "", "", money(base.usd - unpolled.usd)],
    ]
    return _table(["a month", "quantity", "USD for one", "USD"], rows)


def _volumes() -> str:
    rows = []
    for per_day in _VOLUMES:
        workload, deployment = _sized(per_day)
        bills = {each: bill(workload, deployment, each) for each in Database}
        rows.append(
            [
                figure(per_day),
                figure(workload.peak_per_second),
                _named(deployment),
                choose_instance(workload, deployment).name,
                *(money(each.usd) for each in bills.values()),
                *(money(each.usd_per_million) for each in bills.values()),
            ]
        )
    return _table(
        [
            "deliveries a day",
            "peak/s",
            "drains",
            "RDS",
            "own: USD/month",
            "RDS",
            "Aurora",
            "own: USD/million",
            "RDS",
            "Aurora",
        ],
        rows,
    )


def _latency() -> str:
    rows = []
    for name, receivers in _RECEIVERS.items():
        for deployment in _DRAINS:
            found = bounds(Workload(receivers=receivers), deployment)
            needed = [
                drains_to_set(Workload(deliveries_per_day=per_day, receivers=receivers), deployment)
                for per_day in _VOLUMES[2:]
            ]
            rows.append(
                [
                    name,
                    figure(receivers.mean_seconds(deployment.settings.timeout_seconds)),
                    f"{deployment.drain_megabytes}, {deployment.settings.drain_concurrency}",
                    figure(found.cpu),
                    figure(found.slots),
                    figure(found.endpoint),
                    f"**{figure(found.drain)}** ({found.reason})",
                    *(str(drains) if drains else "over 8" for drains in needed),
                ]
            )
    return _table(
        [
            "median, p99, silent",
            "mean s",
            "MB, slots",
            "CPU/s",
            "slots/s",
            "one endpoint/s",
            "one drain/s",
            "drains for 46/s",
            "463/s",
            "4,630/s",
        ],
        rows,
    )


def _database() -> str:
    rows = []
    for per_day in _VOLUMES:
        workload, deployment = _sized(per_day)
        peak = workload.peak_per_second
        attempts = peak * workload.attempts_per_delivery(deployment.settings)
        claims, settles = statements_per_second(attempts, deployment)
        wal = stored(workload, deployment).wal_bytes_per_delivery
        links = connections(workload, deployment)
        rows.append(
            [
                figure(peak),
                figure(claims),
                figure(settles),
                figure(database_vcpus(peak, workload, deployment)),
                figure(peak * wal / 1e6),
                str(links.drains),
                str(links.ingest),
                figure(links.ingest_stalled),
            ]
        )
    return _table(
        [
            "peak/s",
            "claims/s",
            "settles/s",
            "vCPUs busy",
            "WAL MB/s",
            "connections: drains",
            "ingest",
            "ingest, database hangs",
        ],
        rows,
    )


def _storage() -> str:
    rows = []
    for payload_bytes, fan_out in ((1000, 1), (1000, 10), (10_000, 1), (100_000, 1)):
        workload = Workload(payload_bytes=payload_bytes, fan_out=fan_out)
        rows.append(
            [
                figure(payload_bytes),
                str(fan_out),
                figure(stored(workload, Deployment()).gigabytes_per_million),
                *(
                    figure(stored(workload, Deployment(retention_days=days)).gigabytes)
                    for days in (7, 30, 90)
                ),
            ]
        )
    return _table(
        ["payload bytes", "fan-out", "GB per million", "1 M a day: 7 days", "30 days", "90 days"],
        rows,
    )


def _simulated() -> str:
    usual, one = _sized(1e6)
    ten, two = _sized(1e7)
    slow, eight = _sized(1e7, SLOW)
    hundred, four = _sized(1e8)
    down = replace(usual, receivers=replace(USUAL, never_answer=5))
    cases: list[tuple[str, Workload, Deployment, float, int]] = [
        ("1x", usual, one, 200, 0),
        ("1x, 5 of 50 endpoints never answer", down, one, 400, 0),
        ("1x, and 10,000 events at once", usual, one, 150, 10_000),
        ("10x", ten, one, 30, 0),
        ("10x", ten, two, 30, 0),
        ("10x, slow receivers", slow, two, 30, 0),
        ("10x, slow receivers", slow, eight, 30, 0),
        ("100x", hundred, replace(one, drains_per_tick=8), 6, 0),
        ("100x", hundred, four, 6, 0),
    ]
    rows = []
    for name, workload, deployment, seconds, events in cases:
        result = run(workload, deployment, seconds, events=events)
        rows.append(
            [
                name,
                _named(deployment),
                figure(seconds),
                figure(result.answering_wait_p50_seconds),
                figure(result.answering_wait_p99_seconds),
                figure(result.due_max),
                f"{result.slots_used:.0%}",
                f"{result.cpu_used:.0%}",
                figure(result.database_cores_used),
            ]
        )
    return _table(
        [
            "case",
            "drains",
            "seconds",
            "wait p50 s",
            "p99 s",
            "most due",
            "slots",
            "drain CPU",
            "database vCPUs",
        ],
        rows,
    )


def run(
    workload: Workload,
    deployment: Deployment,
    seconds: float,
    *,
    events: int = 0,
    seed: int = _SEED,
) -> Result:
    """Simulate the peak of the day for `seconds`, or, with `events`, a burst of so many on an even day."""
    traffic, chance = Random(seed), Random(seed + 1)  # noqa: S311  # a simulation is to be repeatable
    arrivals = (
        burst(workload, events, seconds, traffic.random)
        if events
        else diurnal(workload, seconds, traffic.random)
    )
    return simulate(
        workload,
        deployment,
        arrivals,
        chance.random,
        seconds=seconds,
        database_cores=choose_instance(workload, deployment).vcpus,
    )


def _validated() -> str:
    bench = Deployment(
        core_speed=1.0, drain_megabytes=FULL_CORE_MEGABYTES, round_trip_seconds=0.0, polls=False
    )
    rows = []
    for real in BACKLOGS:
        latency = max(real.latency_seconds, 0.001)
        receivers = Receivers(
            count=real.endpoints,
            median_seconds=latency,
            p99_seconds=latency,
            timeout_share=0.0,
            new_connection_share=0.0,
        )
        measured = replace(MEASURED, tls_cpu_ms=real.cpu_ms)
        workload = Workload(receivers=receivers)
        result = simulate(
            workload,
            bench,
            backlog(real.deliveries),
            Random(_SEED).random,  # noqa: S311
            seconds=59,
            measured=measured,
            ends_when_empty=True,
        )
        limit = min(
            bounds(workload, bench, measured).drain,
            bounds(workload, bench, measured).endpoint * real.endpoints,
        )
        rows.append(
            [
                f"{figure(real.deliveries)} due, {real.endpoints} endpoints, {real.latency_seconds:g} s",
                "deliveries/s",
                figure(real.per_second),
                figure(result.per_second),
                f"{result.per_second / real.per_second:.2f}",
                figure(limit),
            ]
        )
    for paced in PACED:
        receivers = replace(USUAL, timeout_share=0.0, new_connection_share=0.0)
        workload = Workload(
            deliveries_per_day=paced.per_second * 86_400, peak_factor=1, receivers=receivers
        )
        result = run(workload, replace(bench, polls=True), 59)
        claims, settles = statements_per_second(paced.per_second, replace(bench, polls=True))
        compared = {
            "claims/s": (paced.claims_per_second, result.claims / result.seconds, claims),
            "settles/s": (paced.settles_per_second, result.settles / result.seconds, settles),
            "wait p50 ms": (paced.wait_p50_ms, result.wait_p50_seconds * 1e3, None),
            "wait p99 ms": (paced.wait_p99_ms, result.wait_p99_seconds * 1e3, None),
        }
        rows += [
            [
                f"{paced.per_second:g} a second, polling",
                what,
                figure(real_value),
                figure(simulated),
                f"{simulated / real_value:.2f}",
                "" if formula is None else figure(formula),
            ]
            for what, (real_value, simulated, formula) in compared.items()
        ]
    return _table(["case", "figure", "measured", "simulated", "ratio", "formula"], rows)


def _measured() -> str:
    rows = [
        [
            "drain's CPU per attempt: kept HTTP, kept TLS, new TLS",
            f"{MEASURED.http_cpu_ms}, {MEASURED.tls_cpu_ms}, {MEASURED.new_tls_cpu_ms} ms",
        ],
        ["ingest's CPU per publish", f"{MEASURED.ingest_cpu_ms} ms"],
        ["a claim of n", f"{MEASURED.claim_fixed_ms} + {MEASURED.claim_row_ms} n ms"],
        ["a settle of n", f"{MEASURED.settle_fixed_ms} + {MEASURED.settle_row_ms} n ms"],
        [
            "database's CPU: event, each delivery of it, its pruning",
            f"{MEASURED.event_database_cpu_ms}, {MEASURED.delivery_database_cpu_ms}, {MEASURED.prune_database_cpu_ms} ms",
        ],
        [
            "WAL: event without payload, delivery, its drain, its pruning",
            f"{MEASURED.event_wal_bytes:.0f}, {MEASURED.delivery_wal_bytes:.0f}, {MEASURED.drain_wal_bytes:.0f}, {MEASURED.prune_wal_bytes:.0f} bytes",
        ],
        [
            "on disk: event without payload, key, delivery (rows + indexes), attempt",
            f"{MEASURED.event_bytes:.0f}, {MEASURED.key_bytes:.0f}, {MEASURED.delivery_heap_bytes:.0f} + {MEASURED.delivery_index_bytes:.0f}, {MEASURED.attempt_bytes:.0f} bytes",
        ],
        ["log line of an attempt, on Lambda", f"{attempt_line_bytes()} bytes"],
    ]
    return _table([f"on {MEASURED_ON}", "measured"], rows)


def _ingest() -> str:
    parts = []
    for megabytes in (512, FULL_CORE_MEGABYTES):
        seconds = ingest_seconds(Deployment(ingest_megabytes=megabytes))
        parts.append(
            f"at {megabytes} MB in {figure(seconds * 1e3)} ms ({figure(1 / seconds)} a second per connection)"
        )
    limits = ", ".join(f"{each.name} {each.max_connections:,}" for each in INSTANCES[:4])
    return f"A publish is done {', '.join(parts)}. RDS allows by default: {limits}."


_TABLES: dict[str, Callable[[], str]] = {
    "bill": _bill,
    "volumes": _volumes,
    "latency": _latency,
    "database": _database,
    "ingest": _ingest,
    "storage": _storage,
    "simulated": _simulated,
    "validated": _validated,
    "measured": _measured,
}
