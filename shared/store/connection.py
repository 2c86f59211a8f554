"""Connections: one per Lambda environment, checked before use without a round trip, replaced when dead or too old."""

import copy
import selectors
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from uuid import UUID

import psycopg
from psycopg import errors as pg

from shared.errors import DatabaseUnavailable, SchemaOutdated
from shared.secret_values import SecretValues
from shared.store.connector import Connector, Parameters
from shared.store.credentials import Credentials, InUrl
from shared.store.deadline import BoundedConnection
from shared.store.queries import query

Row = dict[str, Any]
Connection = psycopg.Connection[Row]

_IDLE_SECONDS = 240.0
"""NAT gateways and load balancers forget a connection that was silent for 350 seconds, and tell nobody."""

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

# A statement names what the database does not have: the migrations that came with this release are still to be run.
_SCHEMA_IS_OLD = (
    pg.InvalidSchemaName,
    pg.UndefinedTable,
    pg.UndefinedColumn,
    pg.UndefinedObject,
    pg.UndefinedFunction,
)


class Database:
    """Lends connections to one database; safe for several threads.

    A connection serves one borrower at a time and is kept for the next one. A Lambda environment runs one
    invocation at a time, so it never holds more than one; a local server holds one per busy thread.
    """

    def __init__(
        self,
        url: str,
        credentials: Credentials = InUrl(),  # noqa: B008 - frozen, and has no fields
        *,
        secrets: SecretValues | None = None,
        statement_seconds: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is connected yet.

        Args:
            url: what libpq understands; may lack what the credentials bring along.
            credentials: where the password comes from.
            secrets: what fetches it, if it is not in the URL.
            statement_seconds: how long a statement may take; None is for ever.
            clock: the wall clock, in seconds. While a Lambda environment is frozen the monotonic clock may stand
                still with it; the wall clock is put right when it thaws.

        Raises:
            ConfigurationError: the URL is none, or does not go with the credentials.
        """
        self._connector = Connector(url, credentials, secrets or SecretValues())
        self._statement_seconds = statement_seconds
        self._clock = clock
        self._idle: list[tuple[BoundedConnection, float]] = []
        self._lock = threading.Lock()

    def allowing(self, statement_seconds: float | None) -> Self:
        """The same connections, for statements that may take so long; None is for ever."""
        other = copy.copy(self)
        other._statement_seconds = statement_seconds  # noqa: SLF001 - our own
        return other

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Borrow a connection in autocommit mode: each statement is its own transaction.

        Raises:
            DatabaseUnavailable: no connection could be made, or the one in use failed or did not answer in time.
                Whether a statement that was under way has been committed is then unknown.
            ConfigurationError: the secret with the password cannot be read, or makes no sense.
        """
        try:
            connection = self._take() or self._connector.connect()
        except _PASSING as error:
            raise DatabaseUnavailable(f"{_reason(error)}: {_why_not_connected(error)}") from None
        connection.statement_seconds = self._statement_seconds
        try:
            yield connection
        except _PASSING as error:
            connection.close()
            raise DatabaseUnavailable(_reason(error)) from error
        except _SCHEMA_IS_OLD as error:
            raise SchemaOutdated(
                "Leasehook's tables are missing or older than this release: run `leasehook migrate` or the migrate function"
            ) from error
        finally:
            self._give_back(connection)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Borrow a connection inside a transaction: committed at the end, rolled back on an exception.

        Raises:
            DatabaseUnavailable: see `connection`.
        """
        with self.connection() as connection:
            with connection.transaction():
                yield connection
            if connection.closed:
                # psycopg commits nothing on a lost connection, and says nothing if the loss itself was not raised.
                raise psycopg.OperationalError("the connection was lost before the commit")

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
            idle = list(self._idle)
            self._idle.clear()
        for connection, _ in idle:
            connection.close()

    @property
    def _parameters(self) -> Parameters:
        return self._connector.parameters()

    def _take(self) -> BoundedConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection, idle_since = self._idle.pop()
            # Backwards, the clock was put right, and nobody knows.
            if 0 <= self._clock() - idle_since <= _IDLE_SECONDS and _is_alive(connection):
                return connection
            connection.close()

    def _give_back(self, connection: BoundedConnection) -> None:
        idle = psycopg.pq.TransactionStatus.IDLE
        if connection.closed or connection.info.transaction_status != idle:
            # In the middle of something: an interrupted statement must not leak into the next use.
            connection.close()
            return
        with self._lock:
            self._idle.append((connection, self._clock()))


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
    # Not `select`, which refuses the descriptors above 1023 that a busy drain's sockets reach.
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        return not selector.select(0)


def _why_not_connected(error: psycopg.Error) -> str:
    """What an operator looks at first, in words of ours."""
    pgconn = getattr(error, "pgconn", None)
    if pgconn is not None and pgconn.used_password:
        return "the server refused the user, the password or the database"
    said = str(error)
    for words, meaning in _CAUSES.items():
        if words in said:
            return meaning
    return "no connection was made"


# The first that fits. Parts of what libpq and psycopg say, which is never passed on.
_CAUSES = {
    "invalid integer value": "the connection's parameters are none that PostgreSQL takes",
    "invalid sslmode value": "the connection's parameters are none that PostgreSQL takes",
    "certificate file": "the file of certificates that sslrootcert names is not there",
    "certificate": "the server's certificate was not accepted",
    "SSL": "TLS was not agreed on",
    "resolve": "its host's name is not known",
    "translate host name": "its host's name is not known",
    "refused": "nothing listens at its host and port",
    "timeout": "its host did not answer in time",
    "timed out": "its host did not answer in time",
    "read-only": "the server only reads, and no other was named",
}


def _reason(error: psycopg.Error) -> str:
    """What happened, without the server's words: they may name hosts, users and databases."""
    code = f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""
    return f"the database did not answer: {type(error).__name__}{code}"
