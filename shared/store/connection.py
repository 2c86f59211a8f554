"""Connections: one per Lambda environment, checked before use without a round trip, replaced when dead."""

import select
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from shared.errors import ConfigurationError, DatabaseUnavailable
from shared.store.queries import query

Row = dict[str, Any]
Connection = psycopg.Connection[Row]

# A black-holed connection is noticed within about five seconds instead of a minute and more.
_NETWORK = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
    "target_session_attrs": "read-write",
    "application_name": "leasehook",
}

# Not the caller's fault, and gone after a while: the server is stopping, full, read-only after a failover,
# out of memory, or a statement ran into a timeout, a deadlock or a serialization failure.
_PASSING = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    pg.ReadOnlySqlTransaction,
    pg.InsufficientResources,
    pg.OperatorIntervention,
    pg.TransactionRollback,
    pg.LockNotAvailable,
    pg.IdleInTransactionSessionTimeout,
)


class Database:
    """Lends connections to one database; safe for several threads.

    A connection serves one borrower at a time and is kept for the next one. A Lambda environment runs one
    invocation at a time, so it never holds more than one; a local server holds one per busy thread.
    """

    def __init__(self, url: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # The driver's message repeats the text, which holds a password.
            raise ConfigurationError(
                "DATABASE_URL: expected a PostgreSQL connection URL such as "
                "postgresql://user:password@host:5432/database, got text that is none"
            ) from None
        self._parameters: dict[str, Any] = {**_NETWORK, **given}
        self._idle: list[Connection] = []
        self._lock = threading.Lock()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Borrow a connection in autocommit mode: each statement is its own transaction.

        Raises:
            DatabaseUnavailable: no connection could be made, or the one in use failed. Whether a statement that was
                under way has been committed is then unknown.
        """
        try:
            connection = self._take() or self._connect()
        except _PASSING as error:
            raise DatabaseUnavailable(_reason(error)) from None
        try:
            yield connection
        except _PASSING as error:
            connection.close()
            raise DatabaseUnavailable(_reason(error)) from error
        finally:
            self._give_back(connection)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Borrow a connection inside a transaction: committed at the end, rolled back on an exception.

        Raises:
            DatabaseUnavailable: see `connection`.
        """
        with self.connection() as connection, connection.transaction():
            yield connection

    @contextmanager
    def as_tenant(self, tenant_id: UUID) -> Iterator[Connection]:
        """Borrow a connection inside a transaction that row-level security confines to a tenant's rows.

        Both settings end with the transaction, so they are safe behind transaction-mode poolers.

        Raises:
            DatabaseUnavailable: see `connection`.
        """
        with self.transaction() as connection:
            connection.execute(
                "select set_config('leasehook.tenant_id', %s, true), set_config('role', 'leasehook_tenant', true)",
                [str(tenant_id)],
            )
            yield connection

    def fetch(self, name: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Run a named query as a transaction of its own and return its rows.

        Raises:
            DatabaseUnavailable: see `connection`.
        """
        with self.connection() as connection:
            return fetch(connection, name, parameters)

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _connect(self) -> Connection:
        return psycopg.connect(
            **self._parameters,
            autocommit=True,
            # Prepared statements break behind transaction-mode poolers, and gain little at one statement a batch.
            prepare_threshold=None,
            row_factory=dict_row,
        )

    def _take(self) -> Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if _is_alive(connection):
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        idle = psycopg.pq.TransactionStatus.IDLE
        if connection.closed or connection.info.transaction_status != idle:
            # In the middle of something: an interrupted statement must not leak into the next use.
            connection.close()
            return
        with self._lock:
            self._idle.append(connection)


def fetch(connection: Connection, name: str, parameters: Mapping[str, Any]) -> list[Row]:
    """Run a named query on a connection and return its rows, none if it returns none."""
    # Binary results: payloads come as bytes instead of hexadecimal text of twice the length.
    with connection.cursor(binary=True) as cursor:
        cursor.execute(query(name), parameters)
        return cursor.fetchall() if cursor.description else []


def _is_alive(connection: Connection) -> bool:
    """Whether an idle connection is still up, without a round trip.

    A server has nothing to say on an idle connection, so one that is readable has been closed, or is about to be
    (an administrator's shutdown message). A container may have been frozen for hours since its last use.
    """
    if connection.closed:
        return False
    readable, _, _ = select.select([connection.fileno()], [], [], 0)
    return not readable


def _reason(error: psycopg.Error) -> str:
    """What happened, without the server's words: they may name hosts, users and databases."""
    code = f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""
    return f"the database did not answer: {type(error).__name__}{code}"
