"""A connection whose statements end in time, whatever the server and the network do.

The deadline is the client's own. `statement_timeout` would be a session's setting, which a transaction-mode pooler hands
on to others or refuses, and a server cannot time out what it never got; TCP's timeouts do not see a peer that
acknowledges and says nothing.
"""

import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.rows import DictRow

CANCEL_SECONDS = 1.0
"""How long telling the server to stop may take, on top."""


class StatementTimeout(psycopg.OperationalError):
    """A statement did not end in time; whether it has taken effect is not known."""


class BoundedConnection(psycopg.Connection[DictRow]):
    """`statement_seconds` bounds each statement from its sending to its last row; None does not.

    A statement that takes longer is cancelled, as far as that works within a second, and the connection is closed.
    """

    statement_seconds: float | None = None

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:  # noqa: ANN401  # psycopg's, whatever they are
        """Run one exchange with the server.

        Raises:
            StatementTimeout: it took longer than `statement_seconds`.
        """
        if self.statement_seconds is None:
            return super().wait(gen, *args, **kwargs)
        try:
            return super().wait(_until(gen, self.statement_seconds), *args, **kwargs)
        except StatementTimeout:
            with suppress(psycopg.Error):
                self.cancel_safe(timeout=CANCEL_SECONDS)
            self.close()
            raise


def _until(gen: PQGen[RV], seconds: float) -> Generator[Any, Any, RV]:
    """The same generator, which fails after so many seconds. psycopg wakes it ten times a second while it waits."""
    stop_at = time.monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            wanted = gen.send((yield wanted))
            # After the generator, so that an answer which is there counts.
            if time.monotonic() >= stop_at:
                raise StatementTimeout(f"a statement took longer than {seconds:g} s")
    except StopIteration as end:
        value: RV = end.value
        return value
