"""Turning names into addresses without blocking the event loop."""

import asyncio
import queue
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeAlias

Addresses: TypeAlias = tuple[str, ...]


class Resolver(Protocol):
    """What the transport needs to know about names."""

    async def resolve(self, host: str) -> Sequence[str]:
        """Every address of a name, in the order to try them.

        Raises:
            OSError: the name does not resolve; `socket.gaierror` says it best.
        """
        ...

    def close(self) -> None:
        """Let go of threads and sockets."""
        ...


class _Lookup(NamedTuple):
    found: "Future[Addresses]"
    fresh_until: float


class _Job(NamedTuple):
    host: str
    found: "Future[Addresses]"


def system_lookup(host: str) -> Addresses:
    """Ask the system's resolver; blocks.

    Raises:
        OSError: the name does not resolve.
    """
    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in answers))


class SystemResolver:
    """`getaddrinfo` on threads, with a short memory.

    Concurrent questions for one name share one lookup, so a name that never answers holds one thread, not all; and
    there may be more threads than a drain has requests in flight, so that nobody's names make others wait. Threads are
    made when they are needed.
    Answers are kept for `fresh_seconds`; failures are not kept. The threads are daemons: a lookup that hangs for
    half a minute must not hold up the end of the process, which is what `ThreadPoolExecutor` does.
    """

    __slots__ = (
        "_closed",
        "_fresh_seconds",
        "_idle",
        "_jobs",
        "_lookups",
        "_max_names",
        "_threads",
        "_width",
    )

    def __init__(
        self, *, threads: int = 256, fresh_seconds: float = 5.0, max_names: int = 4096
    ) -> None:
        self._width = threads
        self._fresh_seconds = fresh_seconds
        self._max_names = max_names
        self._lookups: OrderedDict[str, _Lookup] = OrderedDict()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0
        self._closed = False

    async def resolve(self, host: str) -> Addresses:
        """See `Resolver.resolve`."""
        lookup = self._lookups.get(host)
        if lookup is None or not _is_useful(lookup):
            lookup = self._start(host)
        if not lookup.found.done():
            await _done(lookup.found)
        return lookup.found.result()

    def close(self) -> None:
        """Stop the threads as they become free; questions that still wait for one fail."""
        self._closed = True
        self._lookups.clear()
        with suppress(queue.Empty):
            while (job := self._jobs.get_nowait()) is not None:
                job.found.set_exception(OSError("the resolver was closed"))
        for _ in range(self._threads):
            self._jobs.put(None)

    def _start(self, host: str) -> _Lookup:
        if self._closed:
            raise OSError("the resolver was closed")
        lookup = _Lookup(Future(), time.monotonic() + self._fresh_seconds)
        self._lookups[host] = lookup
        self._lookups.move_to_end(host)
        if len(self._lookups) > self._max_names:
            self._lookups.popitem(last=False)
        self._jobs.put(_Job(host, lookup.found))
        if not self._idle.acquire(blocking=False) and self._threads < self._width:
            self._threads += 1
            name = f"leasehook-dns-{self._threads}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        return lookup

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                addresses = system_lookup(job.host)
            except (OSError, UnicodeError) as error:
                job.found.set_exception(error)
            else:
                job.found.set_result(addresses)
            self._idle.release()


def _is_useful(lookup: _Lookup) -> bool:
    """A lookup under way can be joined, however long it takes; a finished one is kept only if it succeeded."""
    if not lookup.found.done():
        return True
    return lookup.found.exception() is None and time.monotonic() < lookup.fresh_until


async def _done(found: "Future[Addresses]") -> None:
    """Wait without owning: a waiter that is cancelled takes nothing from the others."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def wake_from_thread(_: "Future[Addresses]") -> None:
        with suppress(RuntimeError):  # the waiter's loop has been closed
            loop.call_soon_threadsafe(wake)

    found.add_done_callback(wake_from_thread)
    await waiter
