"""Every setting: its key, default, range and meaning. Read once, by the composition root, never at import."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from shared.domain.circuit import CircuitPolicy
from shared.domain.retry import DEFAULT_SCHEDULE, Schedule
from shared.domain.targets import TargetPolicy, parse_networks
from shared.errors import ConfigurationError
from shared.secret_values import SecretReference, parse_reference
from shared.store.credentials import SETTING as CREDENTIALS_KEY
from shared.store.credentials import Credentials, FromSecret, parse_credentials

MAX_TIMEOUT_SECONDS = 30
"""No endpoint's attempt may take longer."""

CLAIM_SECONDS = 1.0
"""How long a claim's round trip may take; what is left of the lease and the invocation is planned with it."""

# `int` and `float` also take underscores and other scripts' digits, and refuse thousands of digits with words of their own.
_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?", re.ASCII)
_SEALING_KEY = "LEASEHOOK_SECRET_KEY"
_SEALING_KEY_FORM = "the base64 of 32 random bytes (openssl rand -base64 32); several, separated by commas, to rotate"


def _text(text: str) -> str:
    return text


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (_WHOLE.fullmatch(text) and low <= int(text) <= high):
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if not (_NUMBER.fullmatch(text) and low <= float(text) <= high):
            raise ValueError(f"a number from {low:g} to {high:g}")
        return float(text)

    return parse


def _delays(low: int, high: int) -> Callable[[str], tuple[float, ...]]:
    each = _whole(low, high)

    def parse(text: str) -> tuple[float, ...]:
        try:
            return tuple(float(each(item.strip())) for item in text.split(","))
        except ValueError:
            raise ValueError(f"whole seconds from {low} to {high}, separated by commas") from None

    return parse


def _targets(text: str) -> TargetPolicy:
    try:
        return TargetPolicy(parse_networks(text))
    except ValueError as error:
        raise ValueError(f"networks separated by commas ({error})") from None


def parse_secret_keys(text: str) -> tuple[bytes, ...]:
    """Sealing keys from their text; empty if there is none.

    Raises:
        ValueError: one is no base64 of 32 bytes; the message says what is expected.
    """
    keys = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        try:
            key = base64.b64decode(item, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(_SEALING_KEY_FORM) from None
        if len(key) != 32:
            raise ValueError(_SEALING_KEY_FORM)
        keys.append(key)
    return tuple(keys)


def _secret_keys(text: str) -> tuple[bytes, ...] | SecretReference:
    return parse_reference(_SEALING_KEY, text) or parse_secret_keys(text)


def _setting(
    key: str, parse: Callable[[str], Any], default: str, meaning: str, *, secret: bool = False
) -> Any:  # noqa: ANN401  # what dataclasses.field returns, too
    return field(
        default_factory=lambda: parse(default),
        repr=not secret,
        metadata={
            "key": key,
            "parse": parse,
            "default": default,
            "meaning": meaning,
            "secret": secret,
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings in force. `Settings.read(os.environ)` reads them; `Settings()` holds the defaults."""

    database_url: str = _setting(
        "DATABASE_URL",
        _text,
        "",
        "PostgreSQL connection URL. Required, unless a secret says all of it.",
        secret=True,
    )
    database_credentials: Credentials = _setting(
        CREDENTIALS_KEY,
        parse_credentials,
        "",
        "Where the database's password comes from if not from the URL: `secretsmanager:` and a name or ARN, `ssm:` and "
        "a parameter's name, or `iam`. A secret holds a connection URL, RDS's JSON or a password; DATABASE_URL says "
        "what it lacks.",
        # Its name invites a password.
        secret=True,
    )
    # With five seconds for connecting and one for cancelling, less than the 20 that ingest has for its answer; and enough
    # for the largest batch, 1000 events, to reach 50 endpoints each on a small database.
    statement_timeout_seconds: float = _setting(
        "LEASEHOOK_STATEMENT_TIMEOUT_SECONDS",
        _number(0.1, 900),
        "10",
        "A statement that takes longer is cancelled, and its connection replaced. Migrations have no limit, steps of "
        "the upkeep a minute.",
    )
    secret_keys: tuple[bytes, ...] | SecretReference = _setting(
        _SEALING_KEY,
        _secret_keys,
        "",
        "Seals signing secrets and custom headers at rest: base64 of 32 bytes, or where it is: `secretsmanager:` and a "
        "name or ARN, `ssm:` and a parameter's name. Required to send and to create endpoints. To rotate, put the new "
        "key before the old one, separated by a comma.",
        secret=True,
    )
    targets: TargetPolicy = _setting(
        "LEASEHOOK_ALLOW_TARGETS",
        _targets,
        "",
        "Networks that deliveries may reach although they are not public, such as `127.0.0.0/8,10.1.0.0/16`.",
    )
    timeout_seconds: int = _setting(
        "LEASEHOOK_TIMEOUT_SECONDS",
        _whole(1, MAX_TIMEOUT_SECONDS),
        "15",
        "One clock for a whole attempt: DNS, connect, TLS, request and response. Endpoints may set their own.",
    )
    lease_seconds: float = _setting(
        "LEASEHOOK_LEASE_SECONDS",
        _number(1, 3600),
        "60",
        "How long a claimed delivery belongs to its drain before another may take it.",
    )
    settle_margin_seconds: float = _setting(
        "LEASEHOOK_SETTLE_MARGIN_SECONDS",
        _number(0.1, 60),
        "5",
        "Time kept free after an attempt's deadline to write its result, within the lease and the invocation.",
    )
    schedule: Schedule = _setting(
        "LEASEHOOK_RETRY_DELAYS_SECONDS",
        lambda text: Schedule(_delays(1, 86400)(text)),
        ",".join(f"{delay:g}" for delay in DEFAULT_SCHEDULE.delays_seconds),
        "Base delays before the second, third, … attempt, each jittered by half. Endpoints may set their own.",
    )
    circuit_failures: int = _setting(
        "LEASEHOOK_CIRCUIT_FAILURES",
        _whole(1, 1_000_000),
        "10",
        "Consecutive failures that open an endpoint's circuit.",
    )
    circuit_cooldowns_seconds: tuple[float, ...] = _setting(
        "LEASEHOOK_CIRCUIT_COOLDOWNS_SECONDS",
        _delays(1, 86400),
        "30,60,120,300,600,1800,3600",
        "How long a circuit stays open, the first, second, … time in a row; the last one repeats.",
    )
    drain_budget_seconds: float = _setting(
        "LEASEHOOK_DRAIN_BUDGET_SECONDS",
        _number(1, 900),
        "85",
        "How long one drain runs at most; never longer than its Lambda invocation has left.",
    )
    drain_linger_seconds: float = _setting(
        "LEASEHOOK_DRAIN_LINGER_SECONDS",
        _number(0, 900),
        "0",
        "How long a drain that finds nothing due keeps polling before it ends.",
    )
    drain_poll_seconds: float = _setting(
        "LEASEHOOK_DRAIN_POLL_SECONDS",
        _number(0.01, 60),
        "0.2",
        "Pause between two looks at a queue that has nothing due.",
    )
    drain_concurrency: int = _setting(
        "LEASEHOOK_DRAIN_CONCURRENCY",
        _whole(1, 2000),
        "200",
        "Requests that one drain has in flight at the most; a claim never takes more than can start at once.",
    )
    drain_endpoint_concurrency: int = _setting(
        "LEASEHOOK_DRAIN_ENDPOINT_CONCURRENCY",
        _whole(1, 2000),
        "100",
        "Requests that one drain has in flight to one endpoint at the most, so that a slow one leaves room.",
    )
    drain_max_deliveries: int = _setting(
        "LEASEHOOK_DRAIN_MAX_DELIVERIES",
        _whole(1, 10_000_000),
        "100000",
        "Deliveries that one drain claims at the most.",
    )
    response_bytes: int = _setting(
        "LEASEHOOK_RESPONSE_BYTES",
        _whole(0, 65536),
        "2048",
        "How much of a response's body is kept with the attempt.",
    )
    max_payload_bytes: int = _setting(
        "LEASEHOOK_MAX_PAYLOAD_BYTES",
        _whole(1, 4_000_000),
        "1048576",
        "The largest payload of one event. A whole request may have 4,000,000 bytes (Lambda's limit is 6 MB, and "
        "base64 adds a third).",
    )
    api_requests_per_minute: int = _setting(
        "LEASEHOOK_API_REQUESTS_PER_MINUTE",
        _whole(0, 1_000_000),
        "600",
        "Requests to the management API per API key; all of a minute's may come at once. `0`: no limit.",
    )
    retention_days: int = _setting(
        "LEASEHOOK_RETENTION_DAYS",
        _whole(1, 3650),
        "30",
        "Finished deliveries, their attempts and events are pruned after this.",
    )
    dead_retention_days: int = _setting(
        "LEASEHOOK_DEAD_RETENTION_DAYS",
        _whole(1, 3650),
        "90",
        "Dead deliveries are pruned after this.",
    )
    parked_days: int = _setting(
        "LEASEHOOK_PARKED_DAYS",
        _whole(1, 3650),
        "30",
        "Deliveries waiting for a disabled endpoint are dead after this.",
    )
    idempotency_days: int = _setting(
        "LEASEHOOK_IDEMPOTENCY_DAYS",
        _whole(1, 3650),
        "30",
        "How long an idempotency key answers with its first result.",
    )
    disable_after_days: int = _setting(
        "LEASEHOOK_DISABLE_AFTER_DAYS",
        _whole(1, 3650),
        "5",
        "An endpoint that has failed for this long without one success is disabled.",
    )
    maintain_budget_seconds: float = _setting(
        "LEASEHOOK_MAINTAIN_BUDGET_SECONDS",
        _number(1, 900),
        "240",
        "How long one maintenance run prunes at most; the next run goes on where it stopped.",
    )

    metrics_namespace: str = _setting(
        "POWERTOOLS_METRICS_NAMESPACE",
        _text,
        "",
        "CloudWatch namespace of the metrics; without it none are printed.",
    )

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Settings":
        """Read the settings from environment variables; an empty one counts as absent.

        Raises:
            ConfigurationError: a value is wrong; the message names key, expected and (unless it is secret) got.
        """
        values = {}
        for each in fields(cls):
            text = environment.get(each.metadata["key"], "").strip()
            if not text:
                continue
            try:
                values[each.name] = each.metadata["parse"](text)
            except ValueError as error:
                got = "a value that is not shown" if each.metadata["secret"] else repr(text)
                raise ConfigurationError(
                    f"{each.metadata['key']}: expected {error}, got {got}"
                ) from None
        settings = cls(**values)
        settings._check_leases()
        return settings

    @property
    def circuit(self) -> CircuitPolicy:
        """When circuits open and for how long."""
        return CircuitPolicy(self.circuit_failures, self.circuit_cooldowns_seconds)

    def require_database_url(self) -> str:
        """The database URL; empty only where a secret may say all of it.

        Raises:
            ConfigurationError: it is not set.
        """
        if not self.database_url and not isinstance(self.database_credentials, FromSecret):
            raise ConfigurationError(
                "DATABASE_URL: expected postgresql://user:password@host:5432/database, got nothing"
            )
        return self.database_url

    def require_secret_keys(self) -> tuple[bytes, ...] | SecretReference:
        """The keys that seal secrets (the first one seals, all of them open), or where they are.

        Raises:
            ConfigurationError: none is set.
        """
        if not self.secret_keys:
            raise ConfigurationError(f"{_SEALING_KEY}: expected {_SEALING_KEY_FORM}, got nothing")
        return self.secret_keys

    def _check_leases(self) -> None:
        """A lease must outlive the longest attempt and the writing of its result, or a live worker loses its rows."""
        shortest = self.timeout_seconds + self.settle_margin_seconds + CLAIM_SECONDS
        if self.lease_seconds < shortest:
            raise ConfigurationError(
                f"LEASEHOOK_LEASE_SECONDS: expected at least {shortest:g} (LEASEHOOK_TIMEOUT_SECONDS + "
                f"LEASEHOOK_SETTLE_MARGIN_SECONDS + {CLAIM_SECONDS:g}), got {self.lease_seconds:g}"
            )


def describe() -> list[tuple[str, str, str]]:
    """Key, default and meaning of every setting, in the order of the README's table."""
    return [
        (each.metadata["key"], each.metadata["default"], each.metadata["meaning"])
        for each in fields(Settings)
    ]
