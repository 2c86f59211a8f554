"""What a month costs: quantities by the model, times the list prices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from infra.scale.capacity import (
    COMFORT,
    bounds,
    database_vcpus,
    ingest_seconds,
    statements_per_second,
    stored,
)
from infra.scale.measured import MEASURED, Measured
from infra.scale.prices import INSTANCES, LIST, Instance, Prices
from infra.scale.printed import attempt_line_bytes, metric_names, metrics_line_bytes
from infra.scale.workload import (
    DAY_SECONDS,
    MONTH_DAYS,
    MONTH_HOURS,
    TICK_SECONDS,
    Deployment,
    Workload,
)

_TEMPLATE = Path(__file__).parents[2] / "template.yaml"

# Assumed, not measured.
PLATFORM_LINES_BYTES = 700
"""Lambda's own start and report lines of an invocation in JSON, and CloudWatch's 26 bytes for each."""
ACCESS_LINE_BYTES = 280
LINE_OVERHEAD_BYTES = 26
LOG_COMPRESSION = 0.15
LOG_RETENTION_MONTHS = 1.0
REQUEST_HEAD_BYTES = 600
ANSWER_HEAD_BYTES = 300
TLS_SENT_BYTES = 1500
TLS_RECEIVED_BYTES = 4500
"""A handshake."""
IDLE_RUN_SECONDS = 0.5
"""Of a drain that does not linger and finds nothing."""
MAINTAIN_SECONDS = 0.2
MAINTAIN_MEGABYTES = 256
ACU_VCPUS = 0.25
MINIMUM_ACUS = 0.5
SMALLEST_VOLUME_GIGABYTES = 20
IO_BYTES = 4096
"""Aurora counts what is written by records of up to this much, at least one for each commit."""


class Database(StrEnum):
    """Who pays for Postgres."""

    EXISTING = "existing"
    """It is there already, and has room."""
    RDS = "rds"
    """The smallest instance in one zone that carries the peak."""
    AURORA = "aurora"
    """Aurora Serverless v2, Standard."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the bill: `quantity` of `unit` at `price` USD for one."""

    what: str
    quantity: float
    unit: str
    price: float

    @property
    def usd(self) -> float:
        """A month of it."""
        return self.quantity * self.price


@dataclass(frozen=True, slots=True)
class Bill:
    """A month's lines."""

    lines: Sequence[Line]
    deliveries: float

    @property
    def usd(self) -> float:
        """All of it."""
        return sum(line.usd for line in self.lines)

    @property
    def usd_per_million(self) -> float:
        """Of deliveries."""
        return self.usd / self.deliveries * 1e6


@dataclass(frozen=True, slots=True)
class _Case:
    workload: Workload
    deployment: Deployment
    prices: Prices
    measured: Measured

    @property
    def publishes(self) -> float:
        """Over HTTP, a month."""
        workload = self.workload
        return workload.deliveries_per_month / workload.fan_out * workload.http_share

    @property
    def attempts(self) -> float:
        """A month."""
        per_delivery = self.workload.attempts_per_delivery(self.deployment.settings)
        return self.workload.deliveries_per_month * per_delivery


_TICKS = MONTH_DAYS * DAY_SECONDS / TICK_SECONDS
"""Of a schedule, a month."""


def alarm_count() -> int:
    """Alarms in the template."""
    return _TEMPLATE.read_text(encoding="utf-8").count("Type: AWS::CloudWatch::Alarm")


def polling_gigabyte_seconds(deployment: Deployment) -> float:
    """A month of drains that poll until they may no longer claim: the floor, whatever is sent."""
    runs = _TICKS * deployment.drains_per_tick
    return runs * deployment.claiming_seconds * deployment.drain_megabytes / 1024


def bill(
    workload: Workload,
    deployment: Deployment,
    database: Database = Database.EXISTING,
    *,
    prices: Prices = LIST,
    measured: Measured = MEASURED,
) -> Bill:
    """A month of this workload on this deployment."""
    case = _Case(workload, deployment, prices, measured)
    lines = [*_functions(case), *_logs(case), *_network(case), *_DATABASES[database](case)]
    return Bill(lines, workload.deliveries_per_month)


def choose_instance(
    workload: Workload, deployment: Deployment, measured: Measured = MEASURED
) -> Instance:
    """The smallest that carries the peak with COMFORT, and the mean all day; the largest if none does."""
    peak = database_vcpus(workload.peak_per_second, workload, deployment, measured) / COMFORT
    mean = database_vcpus(workload.mean_per_second, workload, deployment, measured)
    fits = (
        instance
        for instance in INSTANCES
        if instance.vcpus >= peak and instance.sustained_vcpus >= mean
    )
    return next(fits, INSTANCES[-1])


def _functions(case: _Case) -> list[Line]:
    deployment, prices = case.deployment, case.prices
    drains = _TICKS * deployment.drains_per_tick
    # After its last claim a drain waits for what is in flight: for an attempt's mean, about, if anything is.
    waiting = case.workload.receivers.mean_seconds(deployment.settings.timeout_seconds)
    busy = min(case.workload.deliveries_per_month / drains, 1.0)
    ingest_gigabytes = deployment.ingest_megabytes / 1024
    second = prices["lambda_arm64"]
    claiming = polling_gigabyte_seconds(deployment)
    if not deployment.polls:
        rate = bounds(case.workload, deployment, case.measured).drain
        sending = IDLE_RUN_SECONDS + case.attempts / drains / rate
        claiming *= min(sending / deployment.claiming_seconds, 1.0)
    return [
        Line("drain, claiming", claiming, "GB-s", second),
        Line(
            "drain, its last requests",
            drains * busy * waiting * deployment.drain_megabytes / 1024,
            "GB-s",
            second,
        ),
        Line(
            "ingest",
            case.publishes * ingest_seconds(deployment, case.measured) * ingest_gigabytes,
            "GB-s",
            second,
        ),
        Line("maintain", _TICKS * MAINTAIN_SECONDS * MAINTAIN_MEGABYTES / 1024, "GB-s", second),
        Line(
            "Lambda requests",
            (case.publishes + drains + _TICKS) / 1e6,
            "million",
            prices["lambda_request"],
        ),
        Line("HTTP API", case.publishes / 1e6, "million", prices["http_api"]),
        Line("schedules", (drains + _TICKS) / 1e6, "million", prices["scheduler"]),
    ]


def _logs(case: _Case) -> list[Line]:
    prices = case.prices
    runs = _TICKS * (case.deployment.drains_per_tick + 1)
    quantities = {
        "log: attempts": case.attempts * (attempt_line_bytes() + LINE_OVERHEAD_BYTES),
        "log: Lambda's own lines": (case.publishes + runs) * PLATFORM_LINES_BYTES,
        "log: API access": case.publishes * (ACCESS_LINE_BYTES + LINE_OVERHEAD_BYTES),
        "log: metrics": runs * (metrics_line_bytes() + LINE_OVERHEAD_BYTES),
    }
    kept = sum(quantities.values()) * LOG_COMPRESSION * LOG_RETENTION_MONTHS
    return [
        *(
            Line(what, quantity / 1e9, "GB", prices["logs_ingested"])
            for what, quantity in quantities.items()
        ),
        Line("logs, kept", kept / 1e9, "GB-month", prices["logs_stored"]),
        Line("metrics", metric_names(), "metric", prices["metric"]),
        Line("alarms", alarm_count(), "alarm", prices["alarm"]),
    ]


def _network(case: _Case) -> list[Line]:
    workload, prices = case.workload, case.prices
    new = workload.receivers.new_connection_share
    sent = workload.payload_bytes + REQUEST_HEAD_BYTES + new * TLS_SENT_BYTES
    received = workload.response_bytes + ANSWER_HEAD_BYTES + new * TLS_RECEIVED_BYTES
    lines = [Line("data out", case.attempts * sent / 1e9, "GB", prices["data_out"])]
    if case.deployment.in_vpc:
        hour = prices["nat_hour"] + prices["public_address"]
        lines += [
            Line("NAT gateway", MONTH_HOURS, "hour", hour),
            Line("NAT data", case.attempts * (sent + received) / 1e9, "GB", prices["nat_data"]),
        ]
    return lines


def _existing(_case: _Case) -> list[Line]:
    return []


def _rds(case: _Case) -> list[Line]:
    instance = choose_instance(case.workload, case.deployment, case.measured)
    kept = stored(case.workload, case.deployment, case.measured).gigabytes
    gigabytes = max(kept / COMFORT, SMALLEST_VOLUME_GIGABYTES)
    return [
        Line(f"RDS {instance.name}", MONTH_HOURS, "hour", case.prices[instance.name]),
        Line("RDS storage", gigabytes, "GB-month", case.prices["rds_storage"]),
    ]


def _aurora(case: _Case) -> list[Line]:
    workload, deployment, measured = case.workload, case.deployment, case.measured
    mean = database_vcpus(workload.mean_per_second, workload, deployment, measured)
    acus = max(mean / COMFORT / ACU_VCPUS, MINIMUM_ACUS)
    kept = stored(workload, deployment, measured)
    attempts = workload.mean_per_second * workload.attempts_per_delivery(deployment.settings)
    _, settles = statements_per_second(attempts, deployment, measured)
    # A claim that finds nothing writes nothing; one that finds something is followed by about one settle.
    commits = workload.mean_per_second / workload.fan_out + 2 * settles
    records = workload.mean_per_second * kept.wal_bytes_per_delivery / IO_BYTES
    written = max(commits, records) * MONTH_DAYS * DAY_SECONDS
    return [
        Line("Aurora capacity", acus * MONTH_HOURS, "ACU-hour", case.prices["aurora_acu"]),
        Line("Aurora writes", written / 1e6, "million", case.prices["aurora_io"]),
        Line("Aurora storage", kept.gigabytes, "GB-month", case.prices["aurora_storage"]),
    ]


_DATABASES: dict[Database, Callable[[_Case], list[Line]]] = {
    Database.EXISTING: _existing,
    Database.RDS: _rds,
    Database.AURORA: _aurora,
}
