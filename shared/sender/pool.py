"""Connections that wait for their next request. No I/O of its own; `now` is an argument."""

from typing import TypeAlias

from shared.sender.connection import Connection

Origin: TypeAlias = tuple[str, str, int]
"""Scheme, host and port: a connection is only ever reused for the very same three."""


class IdlePool:
    """Idle connections by origin, last in first out, so that surplus ones age and are closed.

    Putting, taking and evicting cost the same however many are kept: dictionaries serve as ordered sets.
    """

    __slots__ = ("_by_origin", "_max_idle", "_oldest_first")

    def __init__(self, max_idle: int) -> None:
        self._max_idle = max_idle
        self._by_origin: dict[Origin, dict[Connection, float]] = {}
        self._oldest_first: dict[Connection, Origin] = {}

    def __len__(self) -> int:
        return len(self._oldest_first)

    def put(self, origin: Origin, connection: Connection, *, idle_until: float) -> None:
        """Keep a quiet connection until the loop's clock shows `idle_until`; a full pool closes its oldest."""
        if self._max_idle == 0:
            connection.abort()
            return
        if len(self._oldest_first) >= self._max_idle:
            oldest = next(iter(self._oldest_first))
            self._forget(oldest)
            oldest.abort()
        self._by_origin.setdefault(origin, {})[connection] = idle_until
        self._oldest_first[connection] = origin

    def take(self, origin: Origin, now: float) -> Connection | None:
        """The connection used last that is still fit for use, or None. Unfit ones on the way are closed."""
        while idle := self._by_origin.get(origin):
            connection, idle_until = idle.popitem()
            del self._oldest_first[connection]
            if not idle:
                del self._by_origin[origin]
            if now < idle_until and connection.is_quiet():
                return connection
            connection.abort()
        return None

    def purge(self, origin: Origin) -> None:
        """Close every idle connection of an origin."""
        for connection in self._by_origin.pop(origin, {}):
            del self._oldest_first[connection]
            connection.abort()

    def sweep(self, now: float) -> None:
        """Close what expired or was closed by the receiver, so that a quiet origin holds no sockets."""
        unfit = [
            connection
            for idle in self._by_origin.values()
            for connection, idle_until in idle.items()
            if idle_until <= now or not connection.is_open
        ]
        for connection in unfit:
            self._forget(connection)
            connection.abort()

    def drain(self) -> list[Connection]:
        """Empty the pool without closing anything: the caller does."""
        connections = list(self._oldest_first)
        self._oldest_first.clear()
        self._by_origin.clear()
        return connections

    def _forget(self, connection: Connection) -> None:
        origin = self._oldest_first.pop(connection)
        idle = self._by_origin[origin]
        del idle[connection]
        if not idle:
            del self._by_origin[origin]
