"""Names, the addresses they lead to, and the certificates found there."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Sequence

import pytest

from shared.config import Settings
from shared.domain.outcome import Answered, ErrorKind, Outcome, Unanswered
from shared.domain.targets import Target, TargetPolicy, parse_target
from shared.sender import resolver as resolver_module
from shared.sender.resolver import SystemResolver
from shared.sender.tls import client_context
from shared.sender.transport import Transport
from tests.sender.certificates import Authority
from tests.sender.servers import GOOD, LOOPBACK, Session, answering, serving

pytestmark = pytest.mark.anyio

NAME = "receiver.example"
ANSWERED = Answered(200, b"good")


class Names:
    """A resolver with given answers, one after the other; the last one stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def resolve(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not answer:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return answer

    def close(self) -> None:
        pass


async def _post(transport: Transport, target: Target, timeout_seconds: float = 5) -> Outcome:
    return await transport.post(target, [], b"{}", timeout_seconds=timeout_seconds)


def _unanswered(outcome: Outcome) -> Unanswered:
    assert isinstance(outcome, Unanswered), outcome
    return outcome


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["93.184.216.34", "::1"], ["::ffff:127.0.0.1"]],
)
async def test_a_name_with_one_forbidden_address_is_refused_without_connecting(
    addresses: list[str],
) -> None:
    """WH-073."""
    names = Names(addresses)
    transport = Transport(TargetPolicy(), resolver=names)
    async with serving(answering(GOOD)) as receiver:
        outcome = _unanswered(await _post(transport, receiver.target(host=NAME)))
        assert receiver.connections == 0
    await transport.aclose()
    assert outcome.kind is ErrorKind.TARGET_REFUSED
    assert names.asked == [NAME]


async def test_a_literal_address_is_judged_without_being_resolved() -> None:
    """WH-071."""
    names = Names(["93.184.216.34"])
    transport = Transport(TargetPolicy(), resolver=names)
    async with serving(answering(GOOD)) as receiver:
        for host in ("127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"):
            outcome = _unanswered(await _post(transport, receiver.target(host=host)))
            assert outcome.kind is ErrorKind.TARGET_REFUSED
        assert receiver.connections == 0
    await transport.aclose()
    assert names.asked == []


async def test_a_name_is_resolved_once_for_each_connection_and_judged_each_time() -> None:
    """WH-073."""
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    transport = Transport(LOOPBACK, resolver=names, max_age_seconds=0)
    async with serving(answering(GOOD)) as receiver:
        assert await _post(transport, receiver.target(host=NAME)) == ANSWERED
        assert names.asked == [NAME]
        outcome = _unanswered(await _post(transport, receiver.target(host=NAME)))
        assert receiver.connections == 1
    await transport.aclose()
    assert outcome.kind is ErrorKind.TARGET_REFUSED


async def test_the_next_address_is_tried_when_one_does_not_accept() -> None:
    transport = Transport(LOOPBACK, resolver=Names(["127.0.0.2", "::1", "127.0.0.1"]))
    async with serving(answering(GOOD)) as receiver:
        assert await _post(transport, receiver.target(host=NAME)) == ANSWERED
        assert receiver.requests[0].values(b"host") == [f"{NAME}:{receiver.port}".encode()]
    await transport.aclose()


async def test_an_address_that_swallows_packets_leaves_time_for_the_next() -> None:
    swallowing = socket.socket()
    swallowing.bind(("127.0.0.2", 0))
    swallowing.listen(0)
    # A full backlog makes the kernel drop what comes next, as a firewall would.
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(swallowing.getsockname())
    port = swallowing.getsockname()[1]
    server = await asyncio.start_server(_answer_once, "127.0.0.1", port)
    transport = Transport(LOOPBACK, resolver=Names(["127.0.0.2", "127.0.0.1"]))
    outcome = await _post(transport, parse_target(f"http://{NAME}:{port}/"), timeout_seconds=1)
    only_swallowing = Transport(LOOPBACK, resolver=Names(["127.0.0.2"]))
    late = await _post(only_swallowing, parse_target(f"http://{NAME}:{port}/"), timeout_seconds=0.2)
    await transport.aclose()
    await only_swallowing.aclose()
    server.close()
    for opened in (swallowing, *fillers):
        opened.close()
    assert outcome == ANSWERED
    assert late == Unanswered(ErrorKind.TIMEOUT, "no connection before the deadline")


async def _answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(GOOD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def test_a_name_that_does_not_resolve_is_a_dns_error() -> None:
    transport = Transport(LOOPBACK, resolver=Names([]))
    outcome = await _post(transport, parse_target(f"http://{NAME}/"))
    await transport.aclose()
    assert outcome == Unanswered(
        ErrorKind.DNS, "the host name does not resolve: name or service not known"
    )


async def test_a_name_that_resolves_too_late_is_a_dns_error() -> None:
    class Never(Names):
        async def resolve(self, host: str) -> Sequence[str]:
            self.asked.append(host)
            await asyncio.Event().wait()
            return ()

    transport = Transport(LOOPBACK, resolver=Never())
    outcome = await _post(transport, parse_target(f"http://{NAME}/"), timeout_seconds=0.05)
    await transport.aclose()
    assert _unanswered(outcome).kind is ErrorKind.DNS


async def test_the_systems_resolver_knows_localhost() -> None:
    transport = Transport(LOOPBACK)
    async with serving(answering(GOOD)) as receiver:
        assert await _post(transport, receiver.target(host="localhost")) == ANSWERED
    await transport.aclose()


class SlowSystem:
    """Stands in for the system's lookup, which cannot be made slow or counted."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.was_asked = threading.Event()
        self.may_answer = threading.Event()
        self.answered_at_once = ""

    def __call__(self, host: str) -> tuple[str, ...]:
        self.asked.append(host)
        self.was_asked.set()
        if host != self.answered_at_once:
            self.may_answer.wait(5)
        if host == "broken.example":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ("127.0.0.1",)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> SlowSystem:
    slow = SlowSystem()
    monkeypatch.setattr(resolver_module, "system_lookup", slow)
    return slow


async def test_concurrent_questions_for_one_name_share_one_lookup(system: SlowSystem) -> None:
    resolver = SystemResolver(threads=2)
    questions = [asyncio.create_task(resolver.resolve(NAME)) for _ in range(10)]
    await asyncio.sleep(0)
    questions.pop().cancel()
    system.may_answer.set()
    assert await asyncio.gather(*questions) == [("127.0.0.1",)] * 9
    assert await resolver.resolve(NAME) == ("127.0.0.1",)
    assert system.asked == [NAME]
    resolver.close()


async def test_as_many_hanging_names_as_a_drain_has_requests_make_nobody_wait(
    system: SlowSystem,
) -> None:
    system.answered_at_once = NAME
    resolver = SystemResolver()
    in_flight = Settings().drain_concurrency
    hanging = [asyncio.create_task(resolver.resolve(f"{n}.example")) for n in range(in_flight)]
    await asyncio.sleep(0)
    async with asyncio.timeout(2):
        assert await resolver.resolve(NAME) == ("127.0.0.1",)
    assert not any(task.done() for task in hanging)
    system.may_answer.set()
    await asyncio.gather(*hanging)
    resolver.close()


async def test_answers_are_forgotten_in_time_and_failures_at_once(system: SlowSystem) -> None:
    system.may_answer.set()
    resolver = SystemResolver(fresh_seconds=0)
    for _ in range(2):
        await resolver.resolve(NAME)
        with pytest.raises(socket.gaierror):
            await resolver.resolve("broken.example")
    assert system.asked == [NAME, "broken.example"] * 2
    resolver.close()


async def test_the_resolver_remembers_a_bounded_number_of_names(system: SlowSystem) -> None:
    system.may_answer.set()
    resolver = SystemResolver(max_names=2)
    for host in ("a.example", "b.example", "c.example", "c.example", "a.example"):
        await resolver.resolve(host)
    assert system.asked == ["a.example", "b.example", "c.example", "a.example"]
    resolver.close()


async def test_a_closed_resolver_fails_the_questions_that_wait(system: SlowSystem) -> None:
    resolver = SystemResolver(threads=1)
    under_way = asyncio.create_task(resolver.resolve("a.example"))
    assert await asyncio.to_thread(system.was_asked.wait, 5)
    waiting = asyncio.create_task(resolver.resolve("b.example"))
    await asyncio.sleep(0)
    resolver.close()
    system.may_answer.set()
    assert await under_way == ("127.0.0.1",)
    with pytest.raises(OSError, match="closed"):
        await waiting
    with pytest.raises(OSError, match="closed"):
        await resolver.resolve("c.example")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("certificates"))


def _transport(authority: Authority) -> Transport:
    return Transport(LOOPBACK, resolver=Names(["127.0.0.1"]), ssl_context=authority.client())


async def test_a_receiver_with_a_valid_certificate_is_reached_by_its_name(
    authority: Authority,
) -> None:
    """WH-075."""
    transport = _transport(authority)
    async with serving(answering(GOOD), authority.server(NAME)) as receiver:
        for _ in range(3):
            assert await _post(transport, receiver.target("https", NAME)) == ANSWERED
        assert receiver.connections == 1
        assert receiver.requests[0].values(b"host") == [f"{NAME}:{receiver.port}".encode()]
    await transport.aclose()


async def test_a_receiver_that_chooses_its_certificate_by_sni_is_told_the_name(
    authority: Authority,
) -> None:
    """WH-075."""
    default, chosen = authority.server("default.example"), authority.server(NAME)
    told: list[str | None] = []

    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        told.append(name)
        if name == NAME:
            connection.context = chosen

    default.sni_callback = choose
    transport = _transport(authority)
    async with serving(answering(GOOD), default) as receiver:
        assert await _post(transport, receiver.target("https", NAME)) == ANSWERED
    await transport.aclose()
    assert told == [NAME]


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        ([NAME], {"expired": True}, "expired"),
        ([NAME], {"self_signed": True}, "self-signed"),
        (["other.example"], {}, "mismatch"),
        (["127.0.0.1"], {}, "mismatch"),
    ],
)
async def test_a_certificate_that_does_not_hold_is_a_tls_error_in_words(
    authority: Authority, names: list[str], options: dict[str, bool], words: str
) -> None:
    """WH-075."""
    transport = _transport(authority)
    async with serving(answering(GOOD), authority.server(*names, **options)) as receiver:
        outcome = _unanswered(await _post(transport, receiver.target("https", NAME)))
        assert receiver.requests == []
    await transport.aclose()
    assert outcome.kind is ErrorKind.TLS
    assert words in outcome.detail.lower()


async def test_an_address_in_the_url_is_checked_against_the_certificate(
    authority: Authority,
) -> None:
    """WH-075."""
    transport = _transport(authority)
    async with serving(answering(GOOD), authority.server("127.0.0.1")) as receiver:
        assert await _post(transport, receiver.target("https")) == ANSWERED
    async with serving(answering(GOOD), authority.server(NAME)) as receiver:
        outcome = _unanswered(await _post(transport, receiver.target("https")))
    await transport.aclose()
    assert outcome.kind is ErrorKind.TLS


async def test_a_receiver_that_does_not_speak_tls_is_a_tls_error(authority: Authority) -> None:
    async def plain(session: Session) -> None:
        await session.send(b"HTTP/1.1 400 This is a plain port\r\n\r\n")
        await session.until_closed()

    transport = _transport(authority)
    async with serving(plain) as receiver:
        outcome = _unanswered(await _post(transport, receiver.target("https", NAME)))
    await transport.aclose()
    assert outcome == Unanswered(ErrorKind.TLS, "the TLS handshake failed: wrong version number")


async def test_a_handshake_that_never_completes_ends_at_the_deadline(authority: Authority) -> None:
    """WH-076."""

    async def silent(session: Session) -> None:
        await session.until_closed()

    transport = _transport(authority)
    async with serving(silent) as receiver:
        outcome = await _post(transport, receiver.target("https", NAME), timeout_seconds=0.2)
    await transport.aclose()
    assert outcome == Unanswered(
        ErrorKind.TIMEOUT, "the TLS handshake was not finished before the deadline"
    )


async def test_a_connection_that_ends_within_the_handshake_is_a_connect_error(
    authority: Authority,
) -> None:
    async def hang_up(session: Session) -> None:
        await session.reader.read(1)

    transport = _transport(authority)
    async with serving(hang_up) as receiver:
        outcome = _unanswered(await _post(transport, receiver.target("https", NAME)))
    await transport.aclose()
    assert outcome.kind is ErrorKind.CONNECT


async def test_a_connection_to_one_name_is_never_used_for_another(authority: Authority) -> None:
    transport = _transport(authority)
    async with serving(answering(GOOD), authority.server(NAME)) as receiver:
        assert await _post(transport, receiver.target("https", NAME)) == ANSWERED
        outcome = _unanswered(await _post(transport, receiver.target("https", "other.example")))
        assert len(receiver.requests) == 1
    await transport.aclose()
    assert outcome.kind is ErrorKind.TLS


async def test_a_tls_body_cut_off_by_a_reset_leaves_the_status_standing(
    authority: Authority,
) -> None:
    async def cut(session: Session) -> None:
        await session.request()
        await session.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await asyncio.sleep(0.02)
        session.reset()

    transport = _transport(authority)
    async with serving(cut, authority.server(NAME)) as receiver:
        outcome = await _post(transport, receiver.target("https", NAME))
    await transport.aclose()
    assert outcome == Answered(200, b"half", truncated=True)


async def test_a_receiver_that_could_speak_http_2_is_asked_for_http_1(authority: Authority) -> None:
    chosen: list[str | None] = []

    async def note_protocol(session: Session) -> None:
        chosen.append(session.writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await answering(GOOD)(session)

    server = authority.server(NAME)
    server.set_alpn_protocols(["h2", "http/1.1"])
    transport = _transport(authority)
    async with serving(note_protocol, server) as receiver:
        assert await _post(transport, receiver.target("https", NAME)) == ANSWERED
    await transport.aclose()
    assert chosen == ["http/1.1"]


def test_the_default_context_verifies_names_and_certificates() -> None:
    """WH-075."""
    context = client_context()
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
