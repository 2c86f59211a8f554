"""What a workload costs on AWS, and whether a deployment carries it.

    python -m infra.scale --deliveries-per-day 5e6 --latency-median 0.3 --drains-per-tick 2 --database rds
    python -m infra.scale --write     # puts the tables of SCALE.md in order

Costs and bounds are computed; waits and queue lengths are simulated for the busiest minutes of a day.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from infra.scale.capacity import (
    bounds,
    connections,
    database_ceiling,
    database_vcpus,
    drains_needed,
    stored,
)
from infra.scale.costs import Database, bill, choose_instance, polling_gigabyte_seconds
from infra.scale.page import PAGE, figure, money, render, run
from infra.scale.prices import HOLD_FOR, LIST, Prices, with_own
from infra.scale.workload import Deployment, Receivers, Workload

_SIMULATED = 50_000
"""Deliveries that a simulation handles unless it is told its seconds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer the question that the arguments ask; the exit code is 2 if they cannot be used."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.write:
        PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    try:
        prices = _prices(given.prices)
        workload, deployment = _workload(given), _deployment(given)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    answer = examine(
        workload,
        deployment,
        Database(given.database),
        prices,
        seconds=given.seconds,
        burst=given.burst,
        seed=given.seed,
    )
    sys.stdout.write(json.dumps(answer, indent=2) + "\n" if given.json else _text(answer))
    return 0


def examine(
    workload: Workload,
    deployment: Deployment,
    database: Database,
    prices: Prices = LIST,
    *,
    seconds: float | None = None,
    burst: int = 0,
    seed: int = 1,
) -> dict[str, Any]:
    """Everything about one case, in plain values."""
    month = bill(workload, deployment, database, prices=prices)
    found = bounds(workload, deployment)
    instance = choose_instance(workload, deployment)
    most = _SIMULATED / workload.peak_per_second
    result = run(
        workload,
        deployment,
        seconds or min(max(most, 10.0), 3600.0),
        events=burst,
        seed=seed,
    )
    return {
        "prices": HOLD_FOR,
        "month": {
            "usd": month.usd,
            "usd_per_million_deliveries": month.usd_per_million,
            "lines": [{**asdict(line), "usd": line.usd} for line in month.lines],
            "polling_floor_usd": polling_gigabyte_seconds(deployment) * prices["lambda_arm64"],
        },
        "peak_per_second": workload.peak_per_second,
        "drain": {
            **asdict(found),
            "attempts_per_second": found.drain,
            "limited_by": found.reason,
        },
        "drains_needed": drains_needed(workload, deployment),
        "database": {
            "vcpus_at_peak": database_vcpus(workload.peak_per_second, workload, deployment),
            "instance": instance.name,
            "deliveries_per_second_at_most": database_ceiling(workload, deployment, instance.vcpus),
            "connections": asdict(connections(workload, deployment)),
            **asdict(stored(workload, deployment)),
        },
        "simulated": asdict(result),
    }


def _text(answer: dict[str, Any]) -> str:
    month, drain, database = answer["month"], answer["drain"], answer["database"]
    lines = [f"{'a month':28}{'quantity':>22}{'USD':>12}"]
    for line in month["lines"]:
        quantity = f"{figure(line['quantity'])} {line['unit']}"
        lines.append(f"{line['what']:28}{quantity:>22}{money(line['usd']):>12}")
    lines += [
        f"{'all':28}{'':22}{money(month['usd']):>12}",
        f"{'per million deliveries':28}{'':22}{money(month['usd_per_million_deliveries']):>12}",
        f"Prices: {answer['prices']}; check them.",
        "",
        f"Peak: {figure(answer['peak_per_second'])} deliveries/s. One drain makes "
        f"{figure(drain['attempts_per_second'])} attempts/s ({drain['limited_by']}); "
        f"needed per tick: {answer['drains_needed']}.",
        f"Database at the peak: {figure(database['vcpus_at_peak'])} vCPUs busy, as on {database['instance']}; "
        f"{figure(database['gigabytes'])} GB kept.",
        "",
        "Simulated:",
        *(f"  {name:26}{figure(value):>14}" for name, value in answer["simulated"].items()),
    ]
    return "\n".join(lines) + "\n"


def _prices(file: Path | None) -> Prices:
    if file is None:
        return LIST
    try:
        return with_own(msgspec.json.decode(file.read_bytes(), type=dict[str, float]))
    except msgspec.MsgspecError as error:
        raise ValueError(f"{file}: expected an object of names and USD ({error})") from None


def _workload(given: argparse.Namespace) -> Workload:
    return Workload(
        deliveries_per_day=given.deliveries_per_day,
        peak_factor=given.peak_factor,
        fan_out=given.fan_out,
        http_share=given.http_share,
        payload_bytes=given.payload_bytes,
        receivers=Receivers(
            count=given.endpoints,
            median_seconds=given.latency_median,
            p99_seconds=given.latency_p99,
            timeout_share=given.timeout_share,
            new_connection_share=given.new_connections,
            never_answer=given.never_answer,
            hot_share=given.hot_share,
        ),
    )


def _deployment(given: argparse.Namespace) -> Deployment:
    return Deployment(
        drains_per_tick=given.drains_per_tick,
        drain_megabytes=given.memory,
        core_speed=given.core_speed,
        retention_days=given.retention_days,
        in_vpc=given.in_vpc,
        polls=not given.no_polling,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    workload, receivers, deployment = Workload(), Receivers(), Deployment()
    add = parser.add_argument
    add("--deliveries-per-day", type=float, default=workload.deliveries_per_day)
    add("--peak-factor", type=float, default=workload.peak_factor, help="peak over the day's mean")
    add("--fan-out", type=int, default=workload.fan_out, help="deliveries per event")
    add("--http-share", type=float, default=workload.http_share, help="events not from SQL")
    add("--payload-bytes", type=int, default=workload.payload_bytes)
    add("--endpoints", type=int, default=receivers.count)
    add("--latency-median", type=float, default=receivers.median_seconds, help="seconds")
    add("--latency-p99", type=float, default=receivers.p99_seconds, help="seconds")
    add("--timeout-share", type=float, default=receivers.timeout_share, help="attempts in silence")
    add("--new-connections", type=float, default=receivers.new_connection_share, help="a share")
    add("--never-answer", type=int, default=0, help="endpoints that are down")
    add("--hot-share", type=float, default=0.0, help="deliveries that go to one endpoint")
    add("--retention-days", type=float, default=deployment.retention_days)
    add("--drains-per-tick", type=int, default=deployment.drains_per_tick)
    add("--memory", type=int, default=deployment.drain_megabytes, help="MB of the drain")
    add(
        "--core-speed",
        type=float,
        default=deployment.core_speed,
        help="of a vCPU; the bench's is 1",
    )
    add("--no-polling", action="store_true", help="drains that end when nothing is due")
    add("--in-vpc", action="store_true", help="with one NAT gateway")
    add("--database", choices=list(Database), default=Database.EXISTING.value)
    add("--prices", type=Path, help="JSON file of names and USD, instead of the list's")
    add("--burst", type=int, default=0, help="simulate so many events at once instead of the peak")
    add("--seconds", type=float, help="how long to simulate")
    add("--seed", type=int, default=1)
    add("--json", action="store_true")
    add("--write", action="store_true", help="renew the tables of SCALE.md, and nothing else")
    return parser


if __name__ == "__main__":
    sys.exit(main())
