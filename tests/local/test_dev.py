import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from infra.receiver import signature_fault
from shared.domain.signing import HmacSecret, hmac_signer, parse_secret, signature_header
from tests.support.command_line import CommandLine, Dev
from tests.support.receiver import Receiver, answer

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CommandLine, Dev]]:
    """One `leasehook dev` for the tests that leave it as it was."""
    command_line = CommandLine(tmp_path_factory.mktemp("dev"))
    with command_line.dev() as dev:
        yield command_line, dev


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A folder whose cluster is made once, for the tests that end what they start in it."""
    return CommandLine(tmp_path_factory.mktemp("stopped"))


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


def _listens(url: str) -> bool:
    address = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((address.hostname, address.port)) == 0


def _wait_until_gone(command_line: CommandLine) -> None:
    deadline = time.monotonic() + 10
    while command_line.processes():
        assert time.monotonic() < deadline, command_line.processes()
        time.sleep(0.02)


def test_an_event_published_over_http_arrives_with_a_good_signature(
    running: tuple[CommandLine, Dev], receiver: Receiver
) -> None:
    command_line, dev = running
    endpoint = command_line.json(
        "endpoints", "create", "--url", receiver.url(), "--event-types", "order.*"
    )

    published = dev.publish("order.paid", {"amount": 12})

    [request] = receiver.wait_for(1)
    assert published["deliveries"] == 1
    assert request.webhook_id == published["id"]
    request.verify(endpoint["secret"])


def test_a_receiver_that_hangs_keeps_no_other_waiting(
    running: tuple[CommandLine, Dev], receiver: Receiver
) -> None:
    command_line, dev = running
    gate = receiver.gate()
    receiver.answers["/hangs"] = gate.then(answer())
    for kind in ("hangs", "quick"):
        command_line.json(
            "endpoints", "create", "--url", receiver.url(f"/{kind}"), "--event-types", f"{kind}.*"
        )

    dev.publish("hangs.now", {})
    receiver.wait_for(1)
    # Longer than one drain claims, so that the one that waits for the hanging receiver cannot be the one that sends.
    until = time.monotonic() + 1.5
    count = 1
    while time.monotonic() < until:
        dev.publish("quick.now", {})
        count += 1
        receiver.wait_for(count, timeout_seconds=2)

    gate.open()
    assert len(receiver.at("/hangs")) == 1


def test_the_demo_receiver_accepts_what_is_sent_to_it(running: tuple[CommandLine, Dev]) -> None:
    _, dev = running

    event_id = dev.publish("demo.greeting", {"text": "Grüße"})["id"]

    deadline = time.monotonic() + 5
    expected = f'got {event_id}, signature good: {{"text":"Grüße"}}'
    while expected not in dev.log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_second_one_on_the_same_data_directory_is_refused(
    running: tuple[CommandLine, Dev],
) -> None:
    command_line, dev = running
    done = command_line.run("dev", "--port", "0", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "is in use by the Postgres server" in done.stderr
    assert _listens(dev.url)


@needs_proc
def test_sigterm_ends_it_soon_and_leaves_nothing_but_the_data(stopped: CommandLine) -> None:
    with stopped.dev() as dev:
        assert any("postgres" in command for command in stopped.processes())
        [state_file] = stopped.state_files
        assert state_file.stat().st_mode & 0o077 == 0

        began_at = time.monotonic()
        dev.process.send_signal(signal.SIGTERM)
        assert dev.process.wait(10) == 0
        assert time.monotonic() - began_at < 5

        assert dev.process.stdout is not None
        assert dev.process.stdout.read() == ""
    assert stopped.processes() == []
    assert not _listens(dev.url)
    assert not _listens(dev.database_url)
    assert stopped.state_files == []
    assert list(stopped.temporary.iterdir()) == []
    for path in (stopped.folder / ".leasehook").iterdir():
        if path.name in {"secret_key", "api_key", "demo.json"}:
            assert path.stat().st_mode & 0o077 == 0


@needs_proc
def test_sigterm_while_a_receiver_hangs_ends_it_as_soon(
    stopped: CommandLine, receiver: Receiver
) -> None:
    gate = receiver.gate()
    receiver.default = gate.then(answer())
    with stopped.dev() as dev:
        stopped.json("endpoints", "create", "--url", receiver.url())
        dev.publish("order.paid", {})
        receiver.wait_for(1)

        began_at = time.monotonic()
        dev.process.send_signal(signal.SIGTERM)
        assert dev.process.wait(10) == 0
        assert time.monotonic() - began_at < 5
    gate.open()
    assert stopped.processes() == []


@needs_proc
def test_kill_9_takes_postgres_along_and_the_state_file_counts_no_more(
    stopped: CommandLine,
) -> None:
    with stopped.dev("--no-demo") as dev:
        dev.process.kill()
        dev.process.wait(10)
    _wait_until_gone(stopped)
    assert len(stopped.state_files) == 1
    assert "start `leasehook dev`" in stopped.refusal("endpoints", "list")


def test_a_person_is_told_what_happened_and_the_next_run_goes_on_from_there(
    command_line: CommandLine,
) -> None:
    with command_line.start("dev", "--port", "0") as process:
        assert process.stdout is not None
        told = ""
        while "endpoints create" not in told:
            line = process.stdout.readline()
            assert line
            told += line
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    assert "A first event went all the way" in told
    assert "\x1b" not in told

    with command_line.dev() as dev:
        assert dev.api_key in told
        [delivery] = command_line.json("deliveries", "list")["deliveries"]
        assert (delivery["event_type"], delivery["status"]) == ("demo.hello", "succeeded")
        assert len(command_line.json("endpoints", "list")["endpoints"]) == 1


def test_a_port_in_use_is_refused_before_anything_starts(command_line: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = command_line.refusal("dev", "--port", str(port))
    assert f"port {port}" in line
    assert "--port" in line
    assert not (command_line.folder / ".leasehook").exists()


def test_a_wrong_setting_is_refused_before_anything_starts(command_line: CommandLine) -> None:
    line = command_line.refusal("dev", "--port", "0", LEASEHOOK_RETENTION_DAYS="soon")
    assert "LEASEHOOK_RETENTION_DAYS: expected a whole number" in line
    assert not (command_line.folder / ".leasehook").exists()


class TestTheDemoReceiversOwnCheck:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"a":1}'
    now = 1_700_000_000

    def headers(self, timestamp: int = now) -> dict[str, str]:
        secret = parse_secret(self.secret)
        assert isinstance(secret, HmacSecret)
        return {
            "webhook-id": "event-1",
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature_header(
                "event-1", timestamp, self.body, [hmac_signer(secret)]
            ),
        }

    def fault(self, headers: dict[str, str], body: bytes = body) -> str | None:
        return signature_fault(self.secret, headers, body, self.now)

    def test_accepts_one_good_signature_among_others(self) -> None:
        headers = self.headers()
        headers["webhook-signature"] = f"v1a,AAAA v1,AAAA {headers['webhook-signature']}"
        assert self.fault(headers) is None

    def test_refuses_a_changed_body(self) -> None:
        assert self.fault(self.headers(), b'{"a":2}') == "no signature fits"

    def test_refuses_an_old_timestamp(self) -> None:
        assert (
            self.fault(self.headers(self.now - 301)) == "the timestamp is too old or in the future"
        )

    @pytest.mark.parametrize("timestamp", ["", "-1", "1e9", "٣", "9" * 5000])
    def test_refuses_a_timestamp_that_is_none(self, timestamp: str) -> None:
        fault = self.fault(self.headers() | {"webhook-timestamp": timestamp})
        assert fault is not None
        assert "webhook-timestamp is missing, or none" in fault
