"""`leasehook dev`: everything in one process on one machine, with an embedded Postgres beside it.

What lies in the data directory, each file readable by its owner only:

    postgres/     the database, see `infra.postgres`
    secret_key    seals secrets at rest, unless LEASEHOOK_SECRET_KEY is set
    api_key       of the tenant `default`, the same in every run
    demo.json     the demo receiver's endpoint, port and signing secret
"""

import asyncio
import base64
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol
from uuid import UUID

import httpx
import msgspec
import uvicorn

from functions.api import create_app
from infra.drainer import drain_until
from infra.postgres import PostgresError, Server, start_postgres
from infra.receiver import Received, receiver_app
from infra.state import DevState, published, state_directory
from shared import replay
from shared.config import Settings
from shared.crypto import hash_api_key
from shared.dispatch import AttemptLog
from shared.endpoints import NewEndpoint, create_endpoint, get_endpoint
from shared.errors import DatabaseUnavailable, Forbidden, LeasehookError, NotFound, Unauthorized
from shared.keys import create_key
from shared.maintenance import maintain
from shared.runtime import Runtime
from shared.store.migrations import migrate
from shared.store.publishing import authorize
from shared.store.tenancy import ensure_tenant

HOST = "127.0.0.1"
TENANT = "default"
_DEMO_FILTER = "demo.*"
_FIRST_TYPE = "demo.hello"
_FIRST_EVENT_SECONDS = 15.0
_MAINTAIN_EVERY_SECONDS = 300.0
_REPLAY_EVERY_SECONDS = 1.0
_STARTED_POLL_SECONDS = 0.01


class CannotRun(LeasehookError):
    """Something that `leasehook dev` needs is missing or taken; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user chooses. `port` 0 takes a free one; `allow_targets` are networks beside those of the environment."""

    port: int
    data_dir: Path
    allow_targets: tuple[str, ...] = ()
    drain: bool = True
    demo: bool = True
    first_event: bool = True


class Narrator(Protocol):
    """Whom it is told to."""

    def step(self, text: str) -> None:
        """Something was done, or begins."""

    def received(self, webhook: Received) -> None:
        """The demo receiver got a request."""

    def ready(self, state: DevState) -> None:
        """Everything answers."""

    @property
    def attempts(self) -> AttemptLog:
        """Takes the lines of the attempt log."""
        ...


class _DemoEndpoint(msgspec.Struct, frozen=True):
    """The demo receiver's registration, as it is kept between runs."""

    endpoint_id: UUID
    port: int
    secret: str


@dataclass(frozen=True, slots=True, repr=False)
class _Demo:
    secret: str
    listener: socket.socket


def run_dev(options: Options, environment: Mapping[str, str], narrator: Narrator) -> None:
    """Run until SIGINT, SIGTERM or SIGHUP, then stop everything that was started.

    Raises:
        CannotRun: the port or the data directory cannot be used, or Postgres does not start.
        ConfigurationError: a setting in `environment` is wrong.
        StateError: see `infra.state.published`.
    """
    for number in _stop_signals():
        signal.signal(number, _interrupt)
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        listener = stack.enter_context(closing(_listen(options.port)))
        port: int = listener.getsockname()[1]
        targets = _allowed_targets(options, environment)
        Settings.read({**environment, "LEASEHOOK_ALLOW_TARGETS": targets})
        narrator.step(f"Starting Postgres in {options.data_dir}")
        server = _start_database(options.data_dir)
        stack.callback(server.stop)
        settings = {
            "DATABASE_URL": server.url(),
            "LEASEHOOK_DATABASE_CREDENTIALS": "",
            "LEASEHOOK_SECRET_KEY": _secret_key(environment, options.data_dir / "secret_key"),
            "LEASEHOOK_ALLOW_TARGETS": targets,
        }
        runtime = Runtime.read({**environment, **settings})
        stack.callback(runtime.database.close)
        for name in migrate(runtime.database):
            narrator.step(f"Applied the migration {name}")
        tenant_id = ensure_tenant(runtime.database, TENANT)
        state = DevState(
            pid=os.getpid(),
            url=f"http://{HOST}:{port}",
            api_key=_api_key(runtime, tenant_id, options.data_dir / "api_key"),
            settings=settings,
        )
        demo = None
        if options.demo:
            demo = _open_demo(runtime, tenant_id, options.data_dir / "demo.json", narrator)
        if demo is not None:
            stack.enter_context(closing(demo.listener))
        stack.enter_context(_serving(create_app(runtime), listener))
        stack.enter_context(published(state, state_directory(environment), port))
        # By then the event loop has given the signals back; a second one must not cut the clearing up short.
        stack.callback(_ignore_signals)
        asyncio.run(_live(options, runtime, state, demo, narrator))


async def _live(
    options: Options, runtime: Runtime, state: DevState, demo: _Demo | None, narrator: Narrator
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _stop_signals():
        loop.add_signal_handler(number, stop.set)
    inbox: asyncio.Queue[Received] = asyncio.Queue()
    with ExitStack() as stack:
        if demo is not None:
            app = receiver_app(demo.secret, _into(inbox, loop))
            stack.enter_context(_serving(app, demo.listener))
        async with asyncio.TaskGroup() as group:
            group.create_task(_maintain(stop, runtime, narrator))
            if options.drain:
                group.create_task(drain_until(stop, runtime, narrator.attempts, narrator.step))
            first = options.first_event and options.drain and demo is not None
            conversation = group.create_task(_converse(state, inbox, narrator, first_event=first))
            await stop.wait()
            narrator.step("Stopping")
            conversation.cancel()


def _into(
    inbox: "asyncio.Queue[Received]", loop: asyncio.AbstractEventLoop
) -> Callable[[Received], None]:
    def put(webhook: Received) -> None:
        loop.call_soon_threadsafe(inbox.put_nowait, webhook)

    return put


async def _converse(
    state: DevState, inbox: "asyncio.Queue[Received]", narrator: Narrator, *, first_event: bool
) -> None:
    """Send the first event through, say that all is ready, and then tell what the demo receiver gets."""
    if first_event:
        began_at = time.monotonic()
        event_id = await asyncio.to_thread(_publish_first, state)
        try:
            async with asyncio.timeout(_FIRST_EVENT_SECONDS):
                while (await _next(inbox, narrator)).message_id != event_id:
                    pass
        except TimeoutError:
            narrator.step(
                f"The first event has not arrived within {_FIRST_EVENT_SECONDS:.0f} s: "
                "`leasehook deliveries list` shows its state"
            )
        else:
            took_ms = (time.monotonic() - began_at) * 1000
            narrator.step(
                f"A first event went all the way, from POST /v1/events to the receiver, in {took_ms:.0f} ms"
            )
    narrator.ready(state)
    while True:
        await _next(inbox, narrator)


async def _next(inbox: "asyncio.Queue[Received]", narrator: Narrator) -> Received:
    webhook = await inbox.get()
    narrator.received(webhook)
    return webhook


async def _maintain(stop: asyncio.Event, runtime: Runtime, narrator: Narrator) -> None:
    """What the schedules do on Lambda: step bulk replays all the time, and everything else now and then."""

    def step_replays() -> None:
        replay.work(runtime.database, stop.is_set)

    def keep_up() -> None:
        maintain(runtime.database, runtime.settings, stop.is_set)

    async with asyncio.TaskGroup() as group:
        for every_seconds, work in (
            (_REPLAY_EVERY_SECONDS, step_replays),
            (_MAINTAIN_EVERY_SECONDS, keep_up),
        ):
            group.create_task(_repeat(stop, every_seconds, work, narrator))


async def _repeat(
    stop: asyncio.Event, every_seconds: float, work: Callable[[], None], narrator: Narrator
) -> None:
    """Do some work again and again until `stop` is set. Trouble that goes on is told once."""
    trouble = ""
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), every_seconds)
            return
        try:
            await asyncio.to_thread(work)
            trouble = ""
        except DatabaseUnavailable as error:
            if str(error) != trouble:
                narrator.step(f"Maintenance failed and will be tried again: {error}")
            trouble = str(error)


def _publish_first(state: DevState) -> str:
    answer = httpx.post(
        f"{state.url}/v1/events",
        headers={"authorization": f"Bearer {state.api_key}"},
        json={"type": _FIRST_TYPE, "payload": {"text": "Hello from Leasehook"}},
        trust_env=False,
    )
    answer.raise_for_status()
    return str(answer.json()["id"])


def _stop_signals() -> list[signal.Signals]:
    """What ends the program; not the closing of the terminal if whoever started it asked for that (nohup)."""
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    _ignore_signals()
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for number in _stop_signals():
        signal.signal(number, signal.SIG_IGN)


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port), backlog=256)
    except OSError as error:
        raise CannotRun(
            f"port {port} of {HOST} cannot be used ({error.strerror}): stop what listens there, or choose another "
            "one with --port (0 takes a free one)"
        ) from None


def _allowed_targets(options: Options, environment: Mapping[str, str]) -> str:
    given = environment.get("LEASEHOOK_ALLOW_TARGETS", "").strip()
    demo = [f"{HOST}/32"] if options.demo else []
    return ",".join(dict.fromkeys([*filter(None, [given]), *options.allow_targets, *demo]))


def _start_database(data_dir: Path) -> Server:
    try:
        # Others may pass through, which is what Postgres needs when root starts it, but not look around.
        data_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        (data_dir / ".gitignore").write_text("*\n")
        return start_postgres(data_dir / "postgres", durable=True)
    except OSError as error:
        raise CannotRun(
            f"{data_dir} cannot be used ({error.strerror}): choose another directory with --data-dir"
        ) from None
    except PostgresError as error:
        raise CannotRun(str(error)) from None


def _secret_key(environment: Mapping[str, str], path: Path) -> str:
    given = environment.get("LEASEHOOK_SECRET_KEY", "").strip()
    if given:
        return given
    kept = _read(path)
    if kept is None:
        kept = base64.b64encode(secrets.token_bytes(32)).decode("ascii")
        _write_private(path, kept)
    return kept


def _api_key(runtime: Runtime, tenant_id: UUID, path: Path) -> str:
    """The key of the runs before, so that a command in the shell's history still works; a new one if it was revoked."""
    kept = _read(path)
    if kept is not None:
        with suppress(Unauthorized, Forbidden):
            authorize(runtime.database, hash_api_key(kept), "publish")
            return kept
    made: str = create_key(runtime.database, tenant_id, "leasehook dev")["key"]
    _write_private(path, made)
    return made


def _open_demo(runtime: Runtime, tenant_id: UUID, path: Path, narrator: Narrator) -> _Demo | None:
    """The demo receiver's socket and secret, on the port that its endpoint has known since the first run."""
    text = _read(path)
    kept = None if text is None else msgspec.json.decode(text, type=_DemoEndpoint)
    if kept is None or not _exists(runtime, tenant_id, kept):
        listener = _listen(0)
        port: int = listener.getsockname()[1]
        new = NewEndpoint(
            url=_demo_url(port), event_types=[_DEMO_FILTER], description="demo receiver"
        )
        row = create_endpoint(
            runtime.database, runtime.sealer, runtime.settings.targets, tenant_id, new
        )
        made = _DemoEndpoint(row["id"], port, row["secret"])
        _write_private(path, msgspec.json.encode(made).decode())
        return _Demo(made.secret, listener)
    try:
        return _Demo(kept.secret, _listen(kept.port))
    except CannotRun:
        narrator.step(
            f"The demo receiver is off in this run: something else uses its port {kept.port}"
        )
        return None


def _exists(runtime: Runtime, tenant_id: UUID, kept: _DemoEndpoint) -> bool:
    try:
        found = get_endpoint(runtime.database, runtime.sealer, tenant_id, kept.endpoint_id)
    except NotFound:
        return False
    return bool(found["url"] == _demo_url(kept.port))


def _demo_url(port: int) -> str:
    return f"http://{HOST}:{port}/"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


def _write_private(path: Path, text: str) -> None:
    staging = path.with_name(path.name + ".new")
    descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    staging.replace(path)


@contextmanager
def _serving(app: Callable[..., Any], listener: socket.socket) -> Iterator[None]:
    """Serve an ASGI application in a thread of its own while the block runs."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise CannotRun("the HTTP server ended before it had started: see the log above")
            time.sleep(_STARTED_POLL_SECONDS)
        yield
    finally:
        server.should_exit = True
        thread.join()
