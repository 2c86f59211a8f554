"""A tenant and what tests do around it. Everything is real: rows are made by the code that makes them in production."""

import base64
import ipaddress
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from shared.crypto import Sealer
from shared.domain.circuit import CircuitPolicy
from shared.domain.targets import TargetPolicy
from shared.endpoints import NewEndpoint, create_endpoint
from shared.keys import SCOPES, create_key
from shared.store import queue, tenancy
from shared.store.connection import Database, Row
from shared.store.publishing import NewEvent, Published, publish_as_tenant
from shared.store.queue import Claimed, ClaimRequest, Harvest, Report, Settlement

SEALING_KEY = bytes(range(32))
LOOPBACK = TargetPolicy((ipaddress.ip_network("127.0.0.0/8"),))
SHIFTED = {
    "circuits": [
        "claimable_at",
        "changed_at",
        "failing_since",
        "recovered_at",
        "held_until",
        "paced_until",
    ],
    "deliveries": ["created_at", "claimable_at", "claimed_at", "finished_at"],
    "endpoints": ["created_at", "url_set_at", "disabled_at"],
    "endpoint_secrets": ["created_at", "expires_at"],
    "events": ["created_at", "deliver_at"],
    "idempotency_keys": ["created_at"],
}


class World:
    """The tenant `default`, its database, and shorthands."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.sealer = Sealer([SEALING_KEY])
        self.tenant_id = tenancy.ensure_tenant(database, "default")

    def environment(self, url: str, **more: str) -> dict[str, str]:
        """Environment variables for a function that works on this world, with loopback open to deliveries."""
        return {
            "DATABASE_URL": url,
            "LEASEHOOK_SECRET_KEY": base64.b64encode(SEALING_KEY).decode(),
            "LEASEHOOK_ALLOW_TARGETS": "127.0.0.0/8",
            **more,
        }

    def key(self, scopes: Sequence[str] = SCOPES, tenant_id: UUID | None = None) -> str:
        """A new API key's text."""
        return str(create_key(self.database, tenant_id or self.tenant_id, "test", scopes)["key"])

    def endpoint(
        self, url: str = "http://127.0.0.1:9/", *, tenant_id: UUID | None = None, **fields: Any
    ) -> Row:
        """A new endpoint with its `id` and `secret`."""
        return create_endpoint(
            self.database,
            self.sealer,
            LOOPBACK,
            tenant_id or self.tenant_id,
            NewEndpoint(url=url, **fields),
        )

    def publish(
        self,
        payload: bytes = b"{}",
        event_type: str = "order.paid",
        *,
        tenant_id: UUID | None = None,
        **fields: Any,
    ) -> Published:
        """A committed event."""
        event = NewEvent(
            event_type, payload, fields.pop("content_type", "application/json"), **fields
        )
        return publish_as_tenant(self.database, tenant_id or self.tenant_id, event)

    def publish_many(self, count: int) -> None:
        """`count` small events, quickly."""
        self.sql(
            "select leasehook.publish(%s, 'order.paid', '{}'::json) from generate_series(1, %s)",
            self.tenant_id,
            count,
        )

    def claim(self, limit: int = 100, **changes: Any) -> Harvest:
        """One claim over all endpoints."""
        request: dict[str, Any] = {
            "lease_token": uuid4(),
            "limit": limit,
            "lease_seconds": 60.0,
            "after": queue.START,
            "visit_limit": 1000,
            "endpoint_limit": 1000,
            "busy_endpoint_ids": [],
            "busy_endpoint_room": [],
            "timeout_seconds": 15,
            "remaining_seconds": 1000.0,
        }
        with self.database.connection() as connection:
            return queue.claim(connection, ClaimRequest(**(request | changes)))

    def settle(self, *reports: Report, policy: CircuitPolicy | None = None) -> Settlement:
        """Settle under the lease."""
        with self.database.connection() as connection:
            return queue.settle(connection, reports, policy or CircuitPolicy())

    def report(self, claimed: Claimed, verb: str = "succeed", **fields: Any) -> Report:
        """The result of a claimed delivery, with the token its row has now (or `lease_token`)."""
        evidence = {"succeed": "success", "retry": "failure", "bury": "failure", "release": "none"}[
            verb
        ]
        defaults: dict[str, Any] = {
            "lease_token": None,
            "sent": verb != "release",
            "evidence": evidence,
            "delay_seconds": 30.0 if verb == "retry" else None,
            "dead_reason": "attempts_exhausted" if verb == "bury" else None,
        }
        values = defaults | fields
        values["lease_token"] = (
            values["lease_token"] or self.row(claimed.delivery_id)["lease_token"] or uuid4()
        )
        return Report(
            delivery_id=claimed.delivery_id, attempt=claimed.attempt_count, verb=verb, **values
        )

    def row(self, delivery_id: UUID) -> Row:
        """A delivery's row."""
        return self.one("select * from leasehook.deliveries where id = %s", delivery_id)

    def circuit(self, endpoint_id: UUID) -> Row:
        """An endpoint's circuit."""
        return self.one(
            """
            select state, claimable_at, consecutive_failures, open_count, failing_since, claim_count,
                nullif(changed_at, '-infinity') as changed_at,
                nullif(recovered_at, '-infinity') as recovered_at,
                nullif(held_until, '-infinity') as held_until
            from leasehook.circuits
            where endpoint_id = %s
            """,
            endpoint_id,
        )

    def statuses(self) -> dict[str, int]:
        """How many deliveries there are in each state."""
        rows = self.sql(
            "select status, count(*) as count from leasehook.deliveries group by status"
        )
        return {row["status"]: row["count"] for row in rows}

    def sql(self, statement: str, *parameters: Any) -> list[Row]:
        """Run any SQL and return its rows."""
        with self.database.connection() as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def one(self, statement: str, *parameters: Any) -> Row:
        """The only row of any SQL."""
        [row] = self.sql(statement, *parameters)
        return row

    def until(self, condition: str, *parameters: Any, timeout_seconds: float = 20.0) -> None:
        """Wait until an SQL condition holds, asked in a new transaction each time."""
        deadline = time.monotonic() + timeout_seconds
        while not self.one(f"select ({condition}) as holds", *parameters)["holds"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"still not so: {condition}")

    def until_somebody_waits_for_a_lock(self) -> None:
        """Wait until a session of this database is blocked by another."""
        self.until(
            "exists (select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')"
        )

    def now(self) -> datetime:
        """The database's now."""
        now: datetime = self.one("select clock_timestamp() as now")["now"]
        return now

    def pass_time(self, seconds: float, shifted: Mapping[str, Sequence[str]] = SHIFTED) -> None:
        """Let time pass without waiting: every stored instant moves into the past."""
        for table, columns in shifted.items():
            changes = ", ".join(
                f"{column} = {column} - %(s)s * interval '1 second'" for column in columns
            )
            with self.database.connection() as connection:
                connection.execute(
                    f"update leasehook.{table} set {changes}".encode(), {"s": seconds}
                )
