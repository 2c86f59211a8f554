"""List prices that the cost model starts from: inputs to check, not findings."""

from collections.abc import Mapping
from dataclasses import dataclass

HOLD_FOR = "us-east-1, list prices of early 2026, in USD, unchecked since, without free tiers"


@dataclass(frozen=True, slots=True)
class Price:
    """`usd` for one `unit`; `check` is where AWS publishes it."""

    what: str
    usd: float
    unit: str
    check: str


_LAMBDA = "aws.amazon.com/lambda/pricing"
_LOGS = "aws.amazon.com/cloudwatch/pricing"
_AURORA = "aws.amazon.com/rds/aurora/pricing"
_RDS = "aws.amazon.com/rds/postgresql/pricing"
_NETWORK = "aws.amazon.com/vpc/pricing"

PRICES: dict[str, Price] = {
    "lambda_arm64": Price("Lambda, arm64", 0.0000133334, "GB-second", _LAMBDA),
    "lambda_x86_64": Price("Lambda, x86_64", 0.0000166667, "GB-second", _LAMBDA),
    "lambda_request": Price("Lambda requests", 0.20, "million", _LAMBDA),
    "http_api": Price("HTTP API requests", 1.00, "million", "aws.amazon.com/api-gateway/pricing"),
    "scheduler": Price(
        "EventBridge Scheduler", 1.00, "million invocations", "aws.amazon.com/eventbridge/pricing"
    ),
    "logs_ingested": Price("CloudWatch Logs, taken in", 0.50, "GB", _LOGS),
    "logs_stored": Price("CloudWatch Logs, kept (compressed)", 0.03, "GB-month", _LOGS),
    "metric": Price("Custom metric", 0.30, "metric-month", _LOGS),
    "alarm": Price("Alarm", 0.10, "alarm-month", _LOGS),
    "data_out": Price(
        "Data out to the internet", 0.09, "GB", "aws.amazon.com/ec2/pricing/on-demand"
    ),
    "nat_hour": Price("NAT gateway", 0.045, "hour", _NETWORK),
    "nat_data": Price("NAT gateway, data", 0.045, "GB", _NETWORK),
    "public_address": Price("Public IPv4 address", 0.005, "hour", _NETWORK),
    "aurora_acu": Price("Aurora Serverless v2, Standard", 0.12, "ACU-hour", _AURORA),
    "aurora_io": Price("Aurora Standard I/O", 0.20, "million requests", _AURORA),
    "aurora_storage": Price("Aurora Standard storage", 0.10, "GB-month", _AURORA),
    "rds_storage": Price("RDS gp3 storage, single zone", 0.115, "GB-month", _RDS),
    "rds_proxy": Price("RDS Proxy", 0.015, "vCPU-hour", "aws.amazon.com/rds/proxy/pricing"),
}


@dataclass(frozen=True, slots=True)
class Instance:
    """An RDS PostgreSQL class in one zone. `sustained_vcpus` is what a burstable one may use all day."""

    name: str
    vcpus: float
    sustained_vcpus: float
    memory_gib: float
    usd_per_hour: float

    @property
    def max_connections(self) -> int:
        """RDS's default: LEAST(DBInstanceClassMemory / 9531392, 5000); the memory is a little below its name."""
        return min(int(self.memory_gib * 0.95 * 2**30 / 9531392), 5000)


INSTANCES: tuple[Instance, ...] = (
    Instance("db.t4g.small", 2, 0.4, 2, 0.032),
    Instance("db.t4g.medium", 2, 0.4, 4, 0.065),
    Instance("db.m7g.large", 2, 2, 8, 0.168),
    Instance("db.m7g.xlarge", 4, 4, 16, 0.337),
    Instance("db.m7g.2xlarge", 8, 8, 32, 0.674),
    Instance("db.m7g.4xlarge", 16, 16, 64, 1.348),
    Instance("db.m7g.8xlarge", 32, 32, 128, 2.696),
)
"""From the smallest that has memory worth the name."""


Prices = Mapping[str, float]
"""USD for one unit, by the names of PRICES and the instances' names."""

LIST: Prices = {name: price.usd for name, price in PRICES.items()} | {
    instance.name: instance.usd_per_hour for instance in INSTANCES
}


def with_own(own: Mapping[str, float]) -> Prices:
    """The list prices, with these instead where they are given.

    Raises:
        ValueError: a name is not in the list, or a price is negative.
    """
    if unknown := sorted(own.keys() - LIST.keys()):
        raise ValueError(f"unknown prices: {', '.join(unknown)}; known are {', '.join(LIST)}")
    if any(price < 0 for price in own.values()):
        raise ValueError("a price is negative")
    return {**LIST, **own}
