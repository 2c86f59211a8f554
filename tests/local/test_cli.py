import base64
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from infra.cli.app import app
from infra.cli.deliveries import payload_text
from infra.cli.events import event_with
from shared.errors import Invalid
from tests.support.command_line import CommandLine, Dev
from tests.support.receiver import Receiver, answer


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CommandLine, Dev]]:
    command_line = CommandLine(tmp_path_factory.mktemp("cli"))
    with command_line.dev("--no-drain", "--no-demo", "--allow-target", "127.0.0.0/8") as dev:
        yield command_line, dev


@pytest.fixture
def command_line(dev: tuple[CommandLine, Dev]) -> CommandLine:
    return dev[0]


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> str:
    """Each test has a tenant of its own, so that lists hold its rows only."""
    return str(request.node.name)


@pytest.fixture
def elsewhere(tmp_path: Path) -> CommandLine:
    """Where no `leasehook dev` is known."""
    return CommandLine(tmp_path)


def endpoint(command_line: CommandLine, tenant: str, url: str, *options: str) -> Any:
    return command_line.json("endpoints", "create", "--url", url, "--tenant", tenant, *options)


def test_what_a_drain_sends_is_what_was_published_to_the_byte(
    dev: tuple[CommandLine, Dev], tenant: str, receiver: Receiver
) -> None:
    command_line, running = dev
    payload = ' {"b": 1.0,  "a":[1e3, "\\u00e9é"], "b":2} '
    made = endpoint(
        command_line,
        tenant,
        receiver.url(),
        "--event-types",
        "order.*",
        "--header",
        "X-Token: hush",
    )

    published = command_line.json("publish", "order.paid", payload, "--tenant", tenant)
    # Only the URL is given: the sealing key and the allowed targets come from the running dev's state.
    summary = command_line.json("drain", "--once", DATABASE_URL=running.database_url)

    assert published["deliveries"] == 1
    assert (summary["claimed"], summary["succeeded"], summary["stopped"]) == (1, 1, "idle")
    [request] = receiver.received
    assert request.body == payload.strip().encode()
    assert request.webhook_id == published["id"]
    assert request.headers["x-token"] == "hush"
    request.verify(made["secret"])

    [listed] = command_line.json("deliveries", "list", "--tenant", tenant)["deliveries"]
    shown = command_line.json("deliveries", "show", listed["id"], "--tenant", tenant)
    assert (listed["status"], listed["event_id"]) == ("succeeded", published["id"])
    assert (shown["payload"], shown["payload_encoding"]) == (payload.strip(), "utf-8")
    assert [attempt["status_code"] for attempt in shown["attempts"]] == [200]


def test_a_dead_delivery_is_sent_again_by_replay(
    command_line: CommandLine, tenant: str, receiver: Receiver
) -> None:
    receiver.default = answer(500, b"no")
    endpoint(command_line, tenant, receiver.url(), "--retry-delays-seconds", "")
    command_line.json("publish", "order.paid", "{}", "--tenant", tenant)
    assert command_line.json("drain", "--once")["dead"] == 1
    listing = ("deliveries", "list", "--tenant", tenant, "--status", "dead")
    [dead] = command_line.json(*listing)["deliveries"]
    assert dead["dead_reason"] == "attempts_exhausted"

    receiver.default = answer()
    command_line.json("replay", dead["id"], "--tenant", tenant)
    again = command_line.refusal("replay", dead["id"], "--tenant", tenant)
    assert "the delivery is pending: it is on its way already" in again
    assert command_line.json("drain", "--once")["succeeded"] == 1

    assert command_line.json(*listing)["deliveries"] == []
    shown = command_line.json("deliveries", "show", dead["id"], "--tenant", tenant)
    assert shown["status"] == "succeeded"
    assert [attempt["status_code"] for attempt in shown["attempts"]] == [500, 200]


def test_a_drain_without_once_goes_on_until_interrupted(
    command_line: CommandLine, tenant: str, receiver: Receiver
) -> None:
    endpoint(command_line, tenant, receiver.url())
    with command_line.start("drain", "--json") as process:
        for count in (1, 2):
            command_line.json("publish", "order.paid", "{}", "--tenant", tenant)
            receiver.wait_for(count)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    summary = json.loads(out)
    assert (summary["succeeded"], summary["stopped"]) == (2, "interrupted")


def test_payloads_come_from_files_and_stdin_too_and_a_key_makes_them_one_event(
    command_line: CommandLine, tenant: str, tmp_path: Path
) -> None:
    endpoint(command_line, tenant, "http://127.0.0.1:9/")
    file = tmp_path / "payload.json"
    file.write_text('{"n": 1}\n')
    options = ("order.paid", "--tenant", tenant, "--idempotency-key", "k1", "--json")

    first = json.loads(command_line.run("publish", "--file", str(file), *options).stdout)
    second = json.loads(command_line.run("publish", *options, "-", stdin='{"n": 1}').stdout)
    other = command_line.refusal("publish", *options, "-", stdin='{"n": 2}')

    assert (first["repeated"], second["repeated"]) == (False, True)
    assert first["id"] == second["id"]
    assert "was used for another event" in other
    assert len(command_line.json("deliveries", "list", "--tenant", tenant)["deliveries"]) == 1


@pytest.mark.parametrize("payload", [b'1, "priority": 9', b'1, "payload": 2', b"", b"{", b"nan"])
def test_a_payload_that_is_no_json_value_is_refused(payload: bytes) -> None:
    with pytest.raises(Invalid, match="must be one JSON"):
        event_with(b'{"type":"order.paid"}', payload, 100)


def test_a_key_publishes_over_http_with_the_scopes_it_was_given(
    dev: tuple[CommandLine, Dev], tenant: str
) -> None:
    command_line, running = dev
    answers = {}
    for scope in ("publish", "read"):
        key = command_line.json("keys", "create", "--scope", scope, "--tenant", tenant)["key"]
        answers[scope] = httpx.post(
            f"{running.url}/v1/events",
            headers={"authorization": f"Bearer {key}"},
            json={"type": "order.paid", "payload": {}},
            trust_env=False,
        ).status_code
    assert answers == {"publish": 202, "read": 403}


def test_a_tenant_sees_nothing_of_another_and_only_create_makes_one(
    command_line: CommandLine, tenant: str
) -> None:
    endpoint(command_line, tenant, "http://127.0.0.1:9/")
    command_line.json("publish", "order.paid", "{}", "--tenant", tenant)
    [delivery] = command_line.json("deliveries", "list", "--tenant", tenant)["deliveries"]
    command_line.json("keys", "create", "--tenant", f"{tenant}-other")

    hidden = command_line.refusal("replay", delivery["id"], "--tenant", f"{tenant}-other")
    unknown = command_line.refusal("publish", "order.paid", "{}", "--tenant", f"{tenant}-unknown")
    assert f"there is no delivery {delivery['id']}" in hidden
    assert f"there is no tenant '{tenant}-unknown'" in unknown


def test_secrets_and_header_values_are_shown_once_or_never(
    command_line: CommandLine, tenant: str
) -> None:
    made = command_line.run(
        *("endpoints", "create", "--url", "http://127.0.0.1:9/", "--tenant", tenant),
        *("--header", "Authorization-Upstream: hush", "--secret", "whsec_" + "c2VjcmV0" * 4),
    )
    assert made.returncode == 0
    assert "whsec_" + "c2VjcmV0" * 4 in made.stdout
    assert "hush" not in made.stdout
    listed = command_line.run("endpoints", "list", "--tenant", tenant, "--json").stdout
    assert "hush" not in listed
    assert "c2VjcmV0" not in listed

    bad = CliRunner().invoke(
        app, ["endpoints", "create", "--url", "http://a.test", "--header", "hush"]
    )
    assert bad.exit_code == 2
    assert "hush" not in bad.output


def test_tables_fit_80_columns_without_colours_and_keep_ids_whole(
    command_line: CommandLine, tenant: str
) -> None:
    url = "http://127.0.0.1:9/a-rather-long-path/that-does-not-fit?query=of-it"
    endpoint_id = endpoint(command_line, tenant, url)["id"]
    command_line.json("publish", "customer.subscription.updated", "{}", "--tenant", tenant)
    [delivery] = command_line.json("deliveries", "list", "--tenant", tenant)["deliveries"]

    endpoints = command_line.run("endpoints", "list", "--tenant", tenant).stdout
    deliveries = command_line.run("deliveries", "list", "--tenant", tenant).stdout
    shown = command_line.run("deliveries", "show", delivery["id"], "--tenant", tenant).stdout

    assert endpoint_id in endpoints
    assert delivery["id"] in deliveries
    assert "pending" in deliveries
    assert delivery["event_id"] in shown
    for line in (endpoints + deliveries).splitlines():
        assert len(line) <= 80
    assert "\x1b" not in endpoints + deliveries + shown


def test_maintenance_answers_the_state_of_the_queue(command_line: CommandLine) -> None:
    document = command_line.json("maintain")
    assert document["health"]["in_progress_count"] == 0
    assert document["upkeep"]["complete"] is True


@pytest.mark.parametrize(
    "arguments",
    [
        ["publish", "order.paid"],
        ["publish", "order.paid", "{}", "--file", os.devnull],
        ["replay", "not-an-id"],
        ["deliveries", "list", "--status", "gone"],
        ["endpoints", "create", "--url", "http://a.test", "--retry-delays-seconds", "1,x"],
        ["endpoints", "list", "--tenant", ""],
        ["dev", "--allow-target", "nowhere"],
    ],
)
def test_using_a_command_wrongly_exits_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_without_a_database_the_way_to_one_is_told(elsewhere: CommandLine) -> None:
    line = elsewhere.refusal("endpoints", "list")
    assert "start `leasehook dev`" in line
    assert "set DATABASE_URL" in line


def test_a_database_that_does_not_answer_is_told_in_one_line_without_its_password(
    elsewhere: CommandLine,
) -> None:
    line = elsewhere.refusal("migrate", DATABASE_URL="postgresql://u:hush@127.0.0.1:1/d")
    assert "check DATABASE_URL" in line
    assert "hush" not in line


def test_migrate_makes_an_empty_database_usable_once(
    elsewhere: CommandLine, empty_database_url: str
) -> None:
    database = {"DATABASE_URL": empty_database_url}
    assert "run `leasehook migrate`" in elsewhere.refusal("keys", "create", **database)

    applied = elsewhere.json("migrate", **database)["applied"]
    assert applied[0] == "0001_core"
    assert elsewhere.json("migrate", **database)["applied"] == []

    assert elsewhere.json("keys", "create", **database)["key"].startswith("lh_")
    line = elsewhere.refusal("endpoints", "create", "--url", "https://example.com", **database)
    assert "LEASEHOOK_SECRET_KEY" in line


def test_the_newest_running_dev_is_the_one_that_commands_find(
    command_line: CommandLine, dev: tuple[CommandLine, Dev], tmp_path: Path
) -> None:
    with command_line.dev("--no-demo", "--no-drain", "--data-dir", str(tmp_path / "second")):
        line = command_line.refusal("endpoints", "list", "--tenant", "of-the-first")
        command_line.json("keys", "create", "--tenant", "of-the-second")
        first = {"DATABASE_URL": dev[1].database_url}
        unknown = command_line.refusal("endpoints", "list", "--tenant", "of-the-second", **first)
    assert "there is no tenant" in line
    assert "there is no tenant" in unknown


def test_a_payload_that_is_no_text_is_shown_in_base64() -> None:
    assert payload_text(b"\xff\x00") == (base64.b64encode(b"\xff\x00").decode(), "base64")
