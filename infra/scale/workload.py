"""What is asked of a deployment, and what it is made of: the arguments of the model."""

import math
from dataclasses import dataclass, field
from statistics import NormalDist

from shared.config import CLAIM_SECONDS, Settings

DAY_SECONDS = 86_400
MONTH_DAYS = 365 / 12
MONTH_HOURS = MONTH_DAYS * 24
TICK_SECONDS = 60.0
"""The grain of the schedule that starts drains."""
FULL_CORE_MEGABYTES = 1769
"""Lambda gives one vCPU at this much memory, and proportionally less below it."""
_P99 = NormalDist().inv_cdf(0.99)
_STEPS = 2048
_DEVIATIONS = [NormalDist().inv_cdf((step + 0.5) / _STEPS) for step in range(_STEPS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivers:
    """How receivers answer: lognormal latency by its median and 99th percentile, and a share of silence.

    `new_connection_share` is how many attempts open a TLS connection instead of using a kept one. `never_answer` of
    the endpoints are down. `hot_share` of the deliveries go to one endpoint; the rest evenly.
    """

    count: int = 50
    median_seconds: float = 0.2
    p99_seconds: float = 1.0
    timeout_share: float = 0.005
    new_connection_share: float = 0.2
    never_answer: int = 0
    hot_share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.median_seconds <= self.p99_seconds:
            raise ValueError("the latency's median must be over 0 and not over its p99")
        for name in ("timeout_share", "new_connection_share", "hot_share"):
            if not 0 <= getattr(self, name) < 1 and not (
                name == "new_connection_share" and self.new_connection_share == 1
            ):
                raise ValueError(f"{name} must be a share: from 0, and below 1")
        if not 0 <= self.never_answer < self.count:
            raise ValueError("at least one endpoint must answer")

    def quantiles(self, timeout_seconds: float) -> list[float]:
        """Equally likely durations of an attempt that is answered, cut at its deadline, to the microsecond.

        A table and not a formula per draw: fast, and the same on every machine.
        """
        sigma = math.log(self.p99_seconds / self.median_seconds) / _P99
        return [
            round(min(self.median_seconds * math.exp(sigma * deviation), timeout_seconds), 6)
            for deviation in _DEVIATIONS
        ]

    def mean_seconds(self, timeout_seconds: float) -> float:
        """How long an attempt takes on average, silence included."""
        answered = self.quantiles(timeout_seconds)
        mean = sum(answered) / len(answered)
        return (1 - self.timeout_share) * mean + self.timeout_share * timeout_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is asked. The peak is `peak_factor` times the day's mean; an event has `fan_out` deliveries.

    `http_share` of the events come over HTTP, one each request; the others from SQL, in their own transactions.
    """

    deliveries_per_day: float = 1_000_000
    peak_factor: float = 4.0
    fan_out: int = 1
    http_share: float = 1.0
    payload_bytes: int = 1000
    response_bytes: int = 100
    receivers: Receivers = Receivers()

    def __post_init__(self) -> None:
        if self.deliveries_per_day <= 0 or self.peak_factor < 1 or self.fan_out < 1:
            raise ValueError(
                "deliveries a day must be over 0, the peak factor and the fan-out at least 1"
            )
        if not 0 <= self.http_share <= 1:
            raise ValueError("http_share must be a share: from 0 to 1")
        if self.fan_out > self.receivers.count:
            raise ValueError("an event cannot have more deliveries than there are endpoints")

    @property
    def mean_per_second(self) -> float:
        """Deliveries."""
        return self.deliveries_per_day / DAY_SECONDS

    @property
    def peak_per_second(self) -> float:
        """Deliveries."""
        return self.mean_per_second * self.peak_factor

    @property
    def deliveries_per_month(self) -> float:
        """In a mean month."""
        return self.deliveries_per_day * MONTH_DAYS

    def attempts_per_delivery(self, settings: Settings) -> float:
        """Each attempt fails with the share of timeouts, independently, until the schedule ends."""
        failing = self.receivers.timeout_share
        attempts = settings.schedule.max_attempts
        return (1 - failing**attempts) / (1 - failing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What it runs on. `core_speed` is one vCPU there, in cores of the machine that was measured: an assumption."""

    settings: Settings = field(default_factory=Settings)
    drains_per_tick: int = 1
    drain_megabytes: int = 512
    ingest_megabytes: int = 512
    core_speed: float = 0.7
    round_trip_seconds: float = 0.001
    retention_days: float = 30.0
    in_vpc: bool = False
    polls: bool = True
    """Drains linger until their time is used, as the template has it; else each ends when nothing is due."""

    def __post_init__(self) -> None:
        if self.drains_per_tick < 1 or self.drain_megabytes < 128 or self.core_speed <= 0:
            raise ValueError(
                "a deployment has at least one drain, 128 MB and a core's speed over 0"
            )

    @property
    def drain_cores(self) -> float:
        """What a drain has of a measured core. Its Python runs on one, so memory over FULL_CORE_MEGABYTES adds none."""
        return min(self.drain_megabytes / FULL_CORE_MEGABYTES, 1.0) * self.core_speed

    @property
    def ingest_cores(self) -> float:
        """What an ingest function has of a measured core."""
        return min(self.ingest_megabytes / FULL_CORE_MEGABYTES, 1.0) * self.core_speed

    @property
    def claiming_seconds(self) -> float:
        """How long a drain claims: its budget without an attempt, the settle margin and a claim."""
        settings = self.settings
        return (
            settings.drain_budget_seconds
            - settings.timeout_seconds
            - settings.settle_margin_seconds
            - CLAIM_SECONDS
        )
