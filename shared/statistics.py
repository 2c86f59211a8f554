"""How an endpoint, a tenant's queue and the whole gateway are doing, each at a bounded cost."""

from datetime import datetime, timedelta
from uuid import UUID

from shared.domain.time_ids import first_id_at
from shared.errors import NotFound
from shared.listing import bounded
from shared.maintenance import queue_health
from shared.prometheus import Gauge, gauge
from shared.store.connection import Database, Row, fetch

MOST_ATTEMPTS = 5_000
MOST_DELIVERIES = 5_000
MOST_ENDPOINTS = 1_000
MOST_DEAD = 100_000
THROUGHPUT_PERIOD = timedelta(hours=1)
CIRCUIT_STATES = ("closed", "open", "half_open")


def endpoint_statistics(
    database: Database, tenant_id: UUID, endpoint_id: UUID, window_seconds: int
) -> Row:
    """What became of an endpoint's attempts within the last `window_seconds`.

    `attempts`, `successes`, `success_rate` (0 to 1), `latency_ms` (p50, p95, p99 of the attempts that were answered)
    and `last_error`; what there is nothing of is None. `sampled`: there were more than MOST_ATTEMPTS, and all of it is
    about the newest of them.

    Raises:
        NotFound: the tenant has no such endpoint.
        DatabaseUnavailable: see `Database.connection`.
    """
    key = {"tenant_id": tenant_id, "endpoint_id": endpoint_id}
    with bounded(database, tenant_id) as connection:
        if not fetch(connection, "endpoint_exists", key):
            raise NotFound(f"there is no endpoint {endpoint_id}")
        [row] = fetch(
            connection,
            "endpoint_statistics",
            {**key, "window_seconds": window_seconds, "limit": MOST_ATTEMPTS},
        )
    attempts, latencies = row["attempts"], row["latencies_ms"]
    return {
        "endpoint_id": endpoint_id,
        "window_seconds": window_seconds,
        "attempts": attempts,
        "successes": row["successes"],
        "success_rate": row["successes"] / attempts if attempts else None,
        "latency_ms": latencies and dict(zip(("p50", "p95", "p99"), latencies, strict=True)),
        "last_error": row["failed_at"]
        and {
            "at": row["failed_at"],
            "kind": row["error_kind"],
            "status_code": row["status_code"],
            "detail": row["error_detail"],
        },
        "sampled": row["sampled"],
    }


def tenant_statistics(database: Database, tenant_id: UUID, now: datetime) -> Row:
    """A tenant's `queue` now, and its `throughput` by the minute over the last hour.

    Both are counted over a bounded number of rows: `capped` says that there are more, and that the counts are the
    least there is. The throughput is then complete for the minutes from `complete_from` on; older ones are left out.

    Args:
        database: where they are.
        tenant_id: whose.
        now: aware; the hour ends here.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    hour_ago = now - THROUGHPUT_PERIOD
    with bounded(database, tenant_id) as connection:
        [queue] = fetch(
            connection,
            "tenant_queue",
            {"tenant_id": tenant_id, "limit": MOST_DELIVERIES, "endpoint_limit": MOST_ENDPOINTS},
        )
        minutes = fetch(
            connection,
            "tenant_throughput",
            {"tenant_id": tenant_id, "from_id": first_id_at(hour_ago), "limit": MOST_DELIVERIES},
        )
    capped = bool(minutes) and bool(minutes[0]["capped"])
    # The sample ends somewhere inside the oldest minute that it has.
    complete = minutes[1:] if capped else minutes
    complete_from = hour_ago if not capped else minutes[0]["minute_at"] + timedelta(minutes=1)
    return {
        "queue": queue,
        "throughput": {
            "minutes": complete,
            "capped": capped,
            "complete_from": complete_from,
        },
    }


def gateway_gauges(database: Database) -> list[Gauge]:
    """The state of everything, for the operator: queue, circuits, endpoints, dead letters, database.

    Costs in proportion to what is unfinished and to the number of endpoints, not to history.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    health = queue_health(database)
    with database.connection() as connection:
        [dead] = fetch(connection, "dead_count", {"limit": MOST_DEAD})
        [endpoints] = fetch(connection, "endpoint_counts", {})
        circuits = {row["state"]: row["total"] for row in fetch(connection, "circuit_counts", {})}
        [store] = fetch(connection, "database_health", {})
    return [
        gauge("leasehook_due_deliveries", "Deliveries that may be sent now.", health.due_count),
        gauge(
            "leasehook_due_age_seconds",
            "How long the oldest delivery that may be sent has been due.",
            health.due_age_seconds,
        ),
        gauge(
            "leasehook_in_progress_deliveries",
            "Deliveries that a drain has claimed.",
            health.in_progress_count,
        ),
        gauge(
            "leasehook_lapsed_deliveries",
            "Claimed deliveries whose lease has run out.",
            health.lapsed_count,
        ),
        gauge(
            "leasehook_waiting_deliveries",
            "Deliveries that are due later.",
            health.waiting_count,
        ),
        gauge(
            "leasehook_parked_deliveries",
            "Deliveries that wait for their endpoint to be enabled.",
            health.parked_count,
        ),
        gauge(
            "leasehook_dead_deliveries",
            f"Deliveries in the dead-letter queue, counted up to {MOST_DEAD}.",
            dead["total"],
        ),
        gauge("leasehook_endpoints", "Endpoints.", endpoints["endpoints"]),
        gauge(
            "leasehook_disabled_endpoints", "Endpoints that are disabled.", endpoints["disabled"]
        ),
        Gauge(
            "leasehook_circuits",
            "Endpoints by the state of their circuit.",
            {state: circuits.get(state, 0) for state in CIRCUIT_STATES},
            label="state",
        ),
        gauge(
            "leasehook_oldest_transaction_age_seconds",
            "Age of the oldest open transaction: it keeps dead rows from being cleared away.",
            store["oldest_transaction_age_seconds"],
        ),
        gauge(
            "leasehook_deliveries_dead_tuples",
            "Row versions of the queue's table that wait to be cleared away (an estimate).",
            store["dead_tuples"],
        ),
        gauge(
            "leasehook_deliveries_live_tuples",
            "Rows of the queue's table (an estimate).",
            store["live_tuples"],
        ),
    ]
