"""What `leasehook doctor` judges: from facts about a gateway to verdicts, with what to do about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from shared.config import Settings
from shared.maintenance import QueueHealth

_OLDEST_SERVER = 15
_DUE_SECONDS_WARN, _DUE_SECONDS_FAIL = 60, 600
_SILENT_DRAIN_SECONDS = 120
_SILENT_UPKEEP_SECONDS = 26 * 3600
_TRANSACTION_SECONDS_WARN, _TRANSACTION_SECONDS_FAIL = 300, 3600
_DEAD_TUPLES_WARN = 100_000


class Verdict(StrEnum):
    """How it stands."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `advice`: what to do, unless it is fine."""

    name: str
    verdict: Verdict
    found: str
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Wall:
    """Row-level security. `unguarded`: tables that hold tenants' rows without it."""

    role_exists: bool
    is_member: bool
    unguarded: Sequence[str]


@dataclass(frozen=True, slots=True)
class Secrets:
    """How many stored secrets the configured keys open, of those that were tried."""

    opened: int
    key_missing: int
    damaged: int


@dataclass(frozen=True, slots=True)
class Pulse:
    """Ages in seconds: of the newest attempt or claim, the newest step of upkeep (None: there was none), the first migration."""

    drain_seconds: float | None
    upkeep_seconds: float | None
    installed_seconds: float


@dataclass(frozen=True, slots=True)
class Storage:
    """How the queue's table is kept clear."""

    oldest_transaction_seconds: float
    dead_tuples: int
    live_tuples: int


def worst(checks: Sequence[Check]) -> Verdict:
    """The verdict on all of them together."""
    verdicts = {check.verdict for check in checks}
    for verdict in (Verdict.FAIL, Verdict.WARN):
        if verdict in verdicts:
            return verdict
    return Verdict.OK


def judge_settings(settings: Settings) -> Check:
    """Whether the functions would find what they need."""
    if not settings.secret_keys:
        return Check(
            "configuration",
            Verdict.FAIL,
            "LEASEHOOK_SECRET_KEY is not set, so no secret can be stored or used",
            "set it to the key that the functions have",
        )
    return Check("configuration", Verdict.OK, "complete")


def judge_server(version: int) -> Check:
    """Whether the server is new enough; `version` as in server_version_num."""
    major = version // 10000
    if major < _OLDEST_SERVER:
        return Check(
            "database",
            Verdict.FAIL,
            f"PostgreSQL {major}",
            f"upgrade it to {_OLDEST_SERVER} or later",
        )
    return Check("database", Verdict.OK, f"PostgreSQL {major} answers")


def judge_migrations(pending: Sequence[str], applied_count: int) -> Check:
    """Whether the schema is the one that this program was written for."""
    if pending:
        return Check(
            "migrations",
            Verdict.FAIL,
            f"{len(pending)} not applied, from {pending[0]} on",
            "run `leasehook migrate`",
        )
    return Check("migrations", Verdict.OK, f"all {applied_count} applied")


def judge_wall(wall: Wall) -> Check:
    """Whether the database itself keeps tenants apart."""
    name = "row-level security"
    if not wall.role_exists:
        return Check(
            name,
            Verdict.FAIL,
            "the role leasehook_tenant does not exist",
            "have an administrator run: create role leasehook_tenant nologin; then `leasehook migrate`",
        )
    if not wall.is_member:
        return Check(
            name,
            Verdict.FAIL,
            "this user may not act as leasehook_tenant",
            "have an administrator grant leasehook_tenant to the user of DATABASE_URL",
        )
    if wall.unguarded:
        return Check(
            name,
            Verdict.FAIL,
            f"switched off for {', '.join(wall.unguarded)}",
            "have the owner run: alter table leasehook.… enable row level security",
        )
    return Check(name, Verdict.OK, "keeps tenants apart")


def judge_secrets(secrets: Secrets) -> Check:
    """Whether what is sealed can be opened."""
    tried = secrets.opened + secrets.key_missing + secrets.damaged
    if secrets.key_missing:
        return Check(
            "sealing key",
            Verdict.FAIL,
            f"{secrets.key_missing} of {tried} stored secrets were sealed with another key",
            "add the old key to LEASEHOOK_SECRET_KEY, behind the new one",
        )
    if secrets.damaged:
        return Check(
            "sealing key",
            Verdict.FAIL,
            f"{secrets.damaged} of {tried} stored secrets were changed or moved",
            "rotate the secrets, and set the headers anew, of endpoints that fail with 'unsendable'",
        )
    return Check(
        "sealing key",
        Verdict.OK,
        f"opens all of {tried} stored secrets" if tried else "nothing is sealed yet",
    )


def judge_queue(health: QueueHealth) -> Check:
    """Whether what is due is sent."""
    found = f"{health.due_count} due, the oldest for {health.due_age_seconds:.0f} s"
    if health.due_count == 0:
        return Check("queue", Verdict.OK, "nothing is due")
    if health.due_age_seconds < _DUE_SECONDS_WARN:
        return Check("queue", Verdict.OK, found)
    return Check(
        "queue",
        Verdict.FAIL if health.due_age_seconds >= _DUE_SECONDS_FAIL else Verdict.WARN,
        found,
        "`leasehook drain` sends it now; if the schedule runs, look for slow endpoints or raise the concurrency",
    )


def judge_drain(pulse: Pulse, health: QueueHealth) -> Check:
    """Whether anybody drains, which shows only while something is due."""
    silence = pulse.drain_seconds
    found = "no attempt yet" if silence is None else f"the newest attempt is {silence:.0f} s old"
    is_silent = silence is None or silence > _SILENT_DRAIN_SECONDS
    if is_silent and health.due_age_seconds > _SILENT_DRAIN_SECONDS:
        return Check(
            "drain",
            Verdict.FAIL,
            f"{found}, though deliveries are due",
            "see that the schedule of the drain is enabled and its function does not fail; `leasehook drain` sends now",
        )
    return Check("drain", Verdict.OK, found)


def judge_upkeep(pulse: Pulse) -> Check:
    """Whether maintenance is run."""
    silence = pulse.upkeep_seconds
    found = "not run yet" if silence is None else f"last run {silence:.0f} s ago"
    if (pulse.installed_seconds if silence is None else silence) > _SILENT_UPKEEP_SECONDS:
        return Check(
            "maintenance",
            Verdict.WARN,
            found,
            "see that the schedule of maintenance is enabled; `leasehook maintain` does it now",
        )
    return Check("maintenance", Verdict.OK, found)


def judge_transactions(storage: Storage) -> Check:
    """Whether a transaction that was left open keeps dead rows from being cleared away."""
    seconds = storage.oldest_transaction_seconds
    found = f"the oldest is {seconds:.0f} s old"
    if seconds < _TRANSACTION_SECONDS_WARN:
        return Check("transactions", Verdict.OK, found)
    return Check(
        "transactions",
        Verdict.FAIL if seconds >= _TRANSACTION_SECONDS_FAIL else Verdict.WARN,
        found,
        "find it in pg_stat_activity by xact_start and end it: claiming slows down while it is open",
    )


def judge_bloat(storage: Storage) -> Check:
    """Whether dead rows pile up in the queue's table."""
    found = f"{storage.dead_tuples} dead and {storage.live_tuples} live in the queue's table"
    if storage.dead_tuples < max(_DEAD_TUPLES_WARN, storage.live_tuples):
        return Check("dead rows", Verdict.OK, found)
    return Check(
        "dead rows",
        Verdict.WARN,
        found,
        "see that autovacuum runs, or run: vacuum (analyze) leasehook.deliveries",
    )
