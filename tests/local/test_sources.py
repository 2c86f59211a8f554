"""`leasehook sources`: real processes on a real `leasehook dev`."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from infra.captured import parse_request
from infra.cli.app import app
from shared.errors import Invalid
from tests.support.command_line import CommandLine, Dev
from tests.support.providers import GENERIC, SECRETS, Signed, sign


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CommandLine, Dev]]:
    command_line = CommandLine(tmp_path_factory.mktemp("sources"))
    with command_line.dev("--no-drain", "--no-demo") as dev:
        yield command_line, dev


@pytest.fixture
def command_line(dev: tuple[CommandLine, Dev]) -> CommandLine:
    return dev[0]


@pytest.fixture
def url(dev: tuple[CommandLine, Dev]) -> str:
    return dev[1].url


def make(command_line: CommandLine, provider: str, *options: str) -> Any:
    return command_line.json(
        *("sources", "create", "--provider", provider, "--secret", SECRETS[provider], *options)
    )


def post(url: str, path: str, request: Signed) -> int:
    answer = httpx.post(
        url + path, headers=dict(request.headers), content=request.body, trust_env=False
    )
    return answer.status_code


def captured(folder: Path, request: Signed, *, line: str = "POST /in/x HTTP/1.1\r\n") -> str:
    """A file as a proxy would write it."""
    headers = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    file = folder / "request.http"
    file.write_bytes(line.encode() + headers.encode() + b"\r\n" + request.body)
    return str(file)


def test_a_source_lives_and_dies_by_the_command_line(command_line: CommandLine, url: str) -> None:
    source = make(command_line, "github", "--slug", "ours", "--event-type-prefix", "gh")
    assert source["secret"] == SECRETS["github"]
    assert post(url, "/in/ours", sign("github", b"{}", message_id="id-1")) == 200
    assert post(url, "/in/ours", sign("github", b"{}", message_id="id-1")) == 200
    assert post(url, "/in/ours", sign("github", b"{}", secret="wrong")) == 401

    listed = command_line.json("sources", "list")["sources"]
    shown = command_line.json("sources", "show", "ours")
    received = command_line.json("sources", "received", source["id"])["received"]

    assert source["id"] in [each["id"] for each in listed]
    assert "secret" not in shown
    assert [(each["reason"], each["count"]) for each in shown["refusals"]] == [("bad_signature", 1)]
    assert [(each["verdict"], each["event_type"]) for each in received] == [
        ("duplicate", "gh.push"),
        ("accepted", "gh.push"),
    ]
    assert command_line.json("sources", "disable", "ours")["disabled_at"] is not None
    assert post(url, "/in/ours", sign("github", b"{}")) == 401
    assert command_line.json("sources", "enable", "ours")["disabled_at"] is None
    newer = command_line.json("sources", "rotate", "ours", "--overlap-seconds", "0")["secret"]
    assert post(url, "/in/ours", sign("github", b"{}")) == 401
    assert post(url, "/in/ours", sign("github", b"{}", secret=newer)) == 200
    assert command_line.json("sources", "delete", "ours")["deleted"] is True
    assert "there is no source ours" in command_line.refusal("sources", "show", "ours")


def test_what_people_read_fits_80_columns_and_holds_no_secret(
    command_line: CommandLine, url: str
) -> None:
    made = command_line.run(
        *("sources", "create", "--provider", "github", "--slug", "readable"),
        *("--secret", SECRETS["github"]),
    )
    assert SECRETS["github"] in made.stdout
    post(url, "/in/readable", sign("github", b"{}", event="pull_request_review_comment"))
    post(url, "/in/readable", sign("github", b"{}", secret="wrong"))
    said = [
        command_line.run("sources", "list").stdout,
        command_line.run("sources", "show", "readable").stdout,
        command_line.run("sources", "received", "readable").stdout,
    ]
    assert "/in/readable" in said[0]
    assert "bad signature" in said[1]
    assert "accepted" in said[2]
    for text in said:
        assert SECRETS["github"] not in text
        assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize("provider", ["github", "stripe", "hmac"])
def test_a_captured_request_is_judged_as_the_gateway_would(
    command_line: CommandLine, tmp_path: Path, provider: str
) -> None:
    options = ("--configuration", json.dumps(GENERIC)) if provider == "hmac" else ()
    source = make(command_line, provider, *options)
    request = sign(provider, b'{"kind": "a.b", "type": "a.b", "id": "1"}')

    file = captured(tmp_path, request)
    good = command_line.json("sources", "verify", source["slug"], file)
    assert good["verdict"] == "accepted"

    file = captured(tmp_path, Signed(request.headers, request.body + b" "))
    done = command_line.run("sources", "verify", source["slug"], file, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["failed"] == "bad_signature"
    received = command_line.json("sources", "received", source["slug"])["received"]
    assert received == []


def without(request: Signed, name: str) -> Signed:
    return Signed({k: v for k, v in request.headers.items() if k != name}, request.body)


OLD = int(time.time()) - 4000


@pytest.mark.parametrize(
    ("request_", "failed"),
    [
        (without(sign("slack", b"{}"), "X-Slack-Signature"), "missing_signature"),
        (without(sign("slack", b"{}"), "X-Slack-Request-Timestamp"), "malformed"),
        (sign("slack", b"{}", at=OLD), "stale_timestamp"),
        (sign("slack", b"{}", secret="x" * 32), "bad_signature"),
    ],
)
def test_which_check_failed_is_said_in_words(
    command_line: CommandLine, tmp_path: Path, request_: Signed, failed: str
) -> None:
    source = make(command_line, "slack")
    file = captured(tmp_path, request_, line="")
    done = command_line.run("sources", "verify", source["slug"], file)
    assert done.returncode == 1
    assert done.stdout.startswith(f"Refused: {failed.replace('_', ' ')}.")
    assert "because" in done.stdout

    at_its_time = command_line.run("sources", "verify", source["slug"], file, "--at", str(OLD))
    assert (at_its_time.returncode == 0) == (failed == "stale_timestamp")


def test_using_it_wrongly_exits_with_2(tmp_path: Path) -> None:
    for arguments in (
        ["sources", "verify", "x", str(tmp_path / "missing")],
        ["sources", "create", "--provider", "hmac", "--configuration", "[]"],
        ["sources", "create"],
    ):
        assert CliRunner().invoke(app, arguments).exit_code == 2


def test_what_breaks_a_rule_is_one_line(command_line: CommandLine) -> None:
    refusal = command_line.refusal("sources", "create", "--provider", "stripe")
    assert "secret" in refusal
    refusal = command_line.refusal("sources", "create", "--provider", "paypal")
    assert "standard_webhooks" in refusal


HEADERS = {"a": [b"1", b"2"], "content-length": [b"3"]}


@pytest.mark.parametrize(
    ("data", "headers", "body"),
    [
        (b"POST /in/x HTTP/1.1\r\nA: 1\r\na:2 \r\nContent-Length: 3\r\n\r\nxyz", HEADERS, b"xyz"),
        (b"A: 1\na: 2\ncontent-length: 3\n\nxyz", HEADERS, b"xyz"),
        (b"A: 1\na: 2\ncontent-length: 3\n\nxyz\n", HEADERS, b"xyz"),
        (b"POST / HTTP/2\nA: \xff\n\n\r\n\r\n", {"a": [b"\xff"]}, b"\r\n\r\n"),
        (b"A: 1", {"a": [b"1"]}, b""),
        (b"\n\nxyz", {}, b"xyz"),
    ],
)
def test_captures_are_read_to_the_byte(
    data: bytes, headers: Mapping[str, list[bytes]], body: bytes
) -> None:
    request = parse_request(data)
    assert (request.headers, request.body) == (headers, body)


@pytest.mark.parametrize(
    "data", [b"no header\n\n", b"content-length: 4\n\nxyz", b"Transfer-Encoding: chunked\n\n3\r\n"]
)
def test_captures_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(Invalid):
        parse_request(data)
