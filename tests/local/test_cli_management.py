import io
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import httpx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from infra.cli import main
from infra.cli.app import app
from infra.cli.diagnosis import (
    Pulse,
    Secrets,
    Storage,
    Verdict,
    Wall,
    judge_bloat,
    judge_drain,
    judge_queue,
    judge_secrets,
    judge_server,
    judge_transactions,
    judge_upkeep,
    judge_wall,
)
from infra.cli.instants import parse_instant
from infra.cli.progress import counted_progress
from shared import replay
from shared.maintenance import QueueHealth
from shared.runtime import process_runtime
from shared.store.connection import Database
from tests.support.command_line import CommandLine, Dev
from tests.support.receiver import Receiver, answer
from tests.support.world import World

_NOW = datetime(2030, 1, 31, 9, 0, tzinfo=UTC)
_NOTHING_LISTENS = "http://127.0.0.1:9/"


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Here:
    """Runs the program's `main` in this process, for a tenant: a process of its own takes most of a second to start."""

    command_line: CommandLine
    tenant: str

    def run(self, *arguments: str, **settings: str) -> Done:
        """Run a command to its end."""
        environment = self.command_line.environment(**settings)
        out, err = io.StringIO(), io.StringIO()
        code = 0
        with (
            patch.dict(os.environ, environment, clear=True),
            patch.object(sys, "argv", ["leasehook", *arguments]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            process_runtime.cache_clear()
            try:
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
            finally:
                if process_runtime.cache_info().currsize:
                    process_runtime().database.close()
                process_runtime.cache_clear()
        return Done(code, out.getvalue(), err.getvalue())

    def text(self, *arguments: str) -> str:
        """What a command that must succeed says to people."""
        done = self.run(*arguments, "--tenant", self.tenant)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: str, **settings: str) -> Any:
        """The document of a command that must succeed."""
        done = self.run(*arguments, "--tenant", self.tenant, "--json", **settings)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    def refusal(self, *arguments: str, **settings: str) -> str:
        """The one line of a command that must fail."""
        done = self.run(*arguments, "--tenant", self.tenant, **settings)
        assert (done.returncode, done.stdout) == (1, "")
        [line] = done.stderr.splitlines()
        return line


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CommandLine, Dev]]:
    command_line = CommandLine(tmp_path_factory.mktemp("management"))
    with command_line.dev("--no-drain", "--no-demo", "--allow-target", "127.0.0.0/8") as dev:
        yield command_line, dev


@pytest.fixture
def running(dev: tuple[CommandLine, Dev]) -> Dev:
    return dev[1]


@pytest.fixture
def here(dev: tuple[CommandLine, Dev], request: pytest.FixtureRequest) -> Here:
    """Each test has a tenant of its own."""
    tenant = Here(dev[0], str(request.node.name))
    tenant.run("tenants", "create", tenant.tenant)
    return tenant


@pytest.fixture
def stored(running: Dev) -> Iterator[World]:
    """The running dev's database, for what commands cannot do."""
    database = Database(running.database_url)
    yield World(database)
    database.close()


def endpoint(here: Here, url: str = _NOTHING_LISTENS, *options: str) -> Any:
    return here.json("endpoints", "create", "--url", url, *options)


def deliveries(here: Here, *options: str) -> list[Any]:
    listed: list[Any] = here.json("deliveries", "list", *options)["deliveries"]
    return listed


def bury(stored: World, tenant: str, count: int) -> None:
    """Publish events for a tenant, all of which die as soon as they are there."""
    stored.sql(
        """
        with published as materialized (
            select p.event_id
            from leasehook.tenants as t
            cross join generate_series(1, %s) as n
            cross join lateral leasehook.publish(t.id, 'order.paid', to_json(n)) as p
            where t.name = %s
        )
        select count(*) from published
        """,
        count,
        tenant,
    )
    stored.sql(
        """
        update leasehook.deliveries
        set status = 'dead', claimable_at = null, finished_at = now(), dead_reason = 'attempts_exhausted'
        where status = 'pending' and tenant_id = (select id from leasehook.tenants where name = %s)
        """,
        tenant,
    )


def test_a_new_user_takes_a_customer_through_an_outage_and_a_new_secret(
    tmp_path: Path, receiver: Receiver
) -> None:
    """WH-010, WH-104"""
    program = CommandLine(tmp_path)
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "required": ["amount"]}')
    with program.dev("--no-demo", "--allow-target", "127.0.0.0/8") as dev:
        user = Here(program, "default")
        user.json("consumers", "create", "acme", "--name", "Acme Ltd")
        user.json("event-types", "create", "order.paid", "--schema-file", str(schema))
        made = user.json(
            *("endpoints", "create", "--url", receiver.url(), "--consumer", "acme"),
            *("--event-types", "order.*", "--retry-delays-seconds", "1"),
        )
        publish = ("publish", "order.paid", '{"amount": 12}', "--consumer", "acme")
        assert "payload" in user.refusal("publish", "order.paid", "{}", "--consumer", "acme")

        receiver.default = answer(503, b"down", ("retry-after", "1"))
        published = [user.json(*publish)["id"] for _ in range(3)]
        while len(deliveries(user, "--status", "dead", "--consumer", "acme")) < 3:
            assert dev.process.poll() is None
        dead = user.json("deliveries", "show", deliveries(user)[0]["id"])
        assert [attempt["status_code"] for attempt in dead["attempts"]] == [503, 503]
        assert user.json("endpoints", "stats", made["id"])["last_error"]["status_code"] == 503

        receiver.default = answer()
        receiver.received.clear()
        assert user.json("replays", "start", "--dry-run")["matched_count"] == 3
        job = user.json("recover", made["id"], "--since", "1h", "--wait")
        assert (job["state"], job["replayed_count"]) == ("finished", 3)
        recovered = receiver.wait_for(3)
        assert {request.webhook_id for request in recovered} == set(published)

        rotated = user.json("endpoints", "rotate", made["id"], "--overlap-seconds", "600")
        user.json(*publish)
        last = receiver.wait_for(4)[-1]
        assert rotated["secret"] != made["secret"]
        last.verify(rotated["secret"])
        last.verify(made["secret"])

        checks = user.run("doctor", "--json")
        assert json.loads(checks.stdout)["verdict"] == "ok", checks.stdout


def test_a_revoked_key_is_worthless_at_once_and_stays_in_the_list(here: Here, running: Dev) -> None:
    def status(key: str) -> int:
        headers = {"authorization": f"Bearer {key}"}
        return httpx.get(
            f"{running.url}/v1/endpoints", headers=headers, trust_env=False
        ).status_code

    key = here.json("keys", "create", "--name", "reader", "--scope", "read")
    before = status(key["key"])
    here.json("keys", "revoke", key["id"])

    assert (before, status(key["key"])) == (200, 401)
    [listed] = here.json("keys", "list")["keys"]
    assert (listed["name"], listed["scopes"]) == ("reader", ["read"])
    assert listed["revoked_at"] is not None
    assert "key_hash" not in listed
    assert "revoked" in here.text("keys", "list")


def test_an_operators_key_opens_every_tenant(here: Here, running: Dev) -> None:
    made = json.loads(here.run("keys", "create", "--operator", "--name", "ops", "--json").stdout)
    answered = httpx.get(
        f"{running.url}/v1/tenants",
        headers={"authorization": f"Bearer {made['key']}"},
        trust_env=False,
    )
    assert answered.status_code == 200
    assert made["id"] in here.run("keys", "list", "--operator").stdout
    assert here.json("keys", "list")["keys"] == []
    assert "there is no key" in here.refusal("keys", "revoke", made["id"])
    assert here.run("keys", "revoke", made["id"], "--operator").returncode == 0


def test_a_tenant_is_made_once(here: Here) -> None:
    again = here.run("tenants", "create", here.tenant)
    assert (again.returncode, again.stdout) == (1, "")
    assert "there is a tenant of that name" in again.stderr
    names = {
        row["name"] for row in json.loads(here.run("tenants", "list", "--json").stdout)["tenants"]
    }
    assert {"default", here.tenant} <= names


def test_a_consumer_is_deleted_after_its_endpoints(here: Here) -> None:
    here.json("consumers", "create", "acme")
    here.json("consumers", "rename", "acme", "--name", "Acme Ltd")
    made = endpoint(here, _NOTHING_LISTENS, "--consumer", "acme")
    endpoint(here)

    [listed] = here.json("consumers", "list")["consumers"]
    assert (listed["id"], listed["name"]) == ("acme", "Acme Ltd")
    [of_acme] = here.json("endpoints", "list", "--consumer", "acme")["endpoints"]
    assert of_acme["id"] == made["id"]

    assert "delete them first" in here.refusal("consumers", "delete", "acme")
    here.json("endpoints", "delete", made["id"])
    here.json("consumers", "delete", "acme")
    assert here.json("consumers", "list")["consumers"] == []
    assert "there is no endpoint" in here.refusal("endpoints", "show", made["id"])


def test_an_update_changes_what_is_given_and_nothing_else(here: Here) -> None:
    made = endpoint(here, _NOTHING_LISTENS, "--description", "first", "--max-in-flight", "7")
    changed = here.json(
        *("endpoints", "update", made["id"], "--url", "http://127.0.0.1:9/other"),
        *("--event-types", "order.*,user.created", "--channels", "eu", "--header", "X-Token: hush"),
        *("--timeout-seconds", "3", "--rate-per-second", "5", "--retry-delays-seconds", "10,60"),
        "--ordered",
    )
    names = ("url", "event_types", "channels", "header_names", "timeout_seconds")
    assert [changed[name] for name in names] == [
        "http://127.0.0.1:9/other",
        ["order.*", "user.created"],
        ["eu"],
        ["X-Token"],
        3,
    ]
    assert (changed["rate_per_second"], changed["retry_delays_seconds"]) == (5, [10, 60])
    assert (changed["ordered"], changed["description"], changed["max_in_flight"]) == (
        True,
        "first",
        7,
    )
    unset = [
        *("channels", "description", "headers", "timeout-seconds"),
        *("retry-delays-seconds", "max-in-flight", "rate-per-second"),
    ]
    options = [option for name in unset for option in ("--unset", name)]
    reset = here.json("endpoints", "update", made["id"], "--unordered", *options)
    fields = [name.replace("-", "_") for name in unset if name != "headers"]
    assert [reset[name] for name in fields] == [None] * len(fields)
    assert (reset["header_names"], reset["ordered"]) == ([], False)
    assert reset["event_types"] == ["order.*", "user.created"]
    shown = here.text("endpoints", "show", made["id"])
    assert "order.*, user.created" in shown
    assert "secret" not in shown


def test_a_disabled_endpoint_parks_what_is_published_and_refuses_tests(here: Here) -> None:
    made = endpoint(here)
    here.json("endpoints", "disable", made["id"])
    here.json("publish", "order.paid", "{}")

    [delivery] = deliveries(here)
    assert delivery["parked"] is True
    assert "parked" in here.text("deliveries", "list")
    assert "enable it first" in here.refusal("endpoints", "test", made["id"])
    assert len(here.json("endpoints", "list", "--disabled")["endpoints"]) == 1
    assert here.json("endpoints", "list", "--enabled")["endpoints"] == []
    assert here.json("stats")["queue"]["parked"] == 1

    assert here.json("endpoints", "enable", made["id"])["disabled_at"] is None
    here.json("endpoints", "test", made["id"])
    assert [each["event_type"] for each in deliveries(here)] == ["leasehook.test", "order.paid"]
    assert here.json("stats")["queue"]["due"] == 2


def test_an_event_type_holds_publishers_to_its_schema_until_it_is_dropped(
    here: Here, tmp_path: Path
) -> None:
    schema, example = tmp_path / "schema.json", tmp_path / "example.json"
    schema.write_text('{"type": "object", "required": ["amount"]}')
    example.write_text('{"amount": 1}')
    files = ("--schema-file", str(schema), "--example-file", str(example))
    made = here.json("event-types", "create", "order.paid", "--description", "Paid.", *files)
    assert (made["version"], made["schema"]["required"]) == (1, ["amount"])

    here.refusal("publish", "order.paid", "{}")
    here.json("event-types", "archive", "order.paid")
    assert "archived" in here.refusal("publish", "order.paid", '{"amount": 1}')
    assert here.json("event-types", "list", "--live")["event_types"] == []
    here.json("event-types", "restore", "order.paid")
    webhooks = json.loads(here.text("event-types", "catalogue", "--event-type", "order.*"))
    assert list(webhooks["webhooks"]) == ["order.paid"]

    changed = here.json("event-types", "update", "order.paid", "--no-schema", "--description", "")
    assert (changed["schema"], changed["description"]) == (None, None)
    assert changed["example"] == {"amount": 1}
    here.json("publish", "order.paid", "{}")
    assert '"amount": 1' in here.text("event-types", "show", "order.paid")


def test_an_event_tells_why_it_reached_each_endpoint_or_did_not(here: Here) -> None:
    takes = endpoint(here)["id"]
    filters = endpoint(here, _NOTHING_LISTENS, "--event-types", "user.*")["id"]
    other = endpoint(here, _NOTHING_LISTENS, "--consumer", "acme")["id"]
    channel = endpoint(here, _NOTHING_LISTENS, "--channels", "eu")["id"]
    event_id = here.json("publish", "order.paid", '{"n": 1}', "--idempotency-key", "k1")["id"]
    here.json("publish", "order.paid", "{}", "--consumer", "acme", "--channels", "eu,us")

    shown = here.json("events", "show", event_id)
    assert {each["endpoint_id"]: each["reason"] for each in shown["reach"]} == {
        takes: "matched",
        filters: "filtered_by_type",
        other: "other_consumer",
        channel: "filtered_by_channel",
    }
    assert (shown["payload"], shown["payload_encoding"]) == ('{"n": 1}', "utf-8")
    assert "filtered by type" in here.text("events", "show", event_id)

    [by_key] = here.json("events", "list", "--idempotency-key", "k1")["events"]
    [of_acme] = here.json("events", "list", "--consumer", "acme", "--event-type", "order.*")[
        "events"
    ]
    assert by_key["id"] == event_id
    assert of_acme["channels"] == ["eu", "us"]
    assert here.json("events", "list", "--created-before", "1h")["events"] == []


def test_deliveries_are_listed_by_any_filter_and_cancelled_while_they_wait(here: Here) -> None:
    made = endpoint(here)
    endpoint(here, _NOTHING_LISTENS, "--event-types", "user.*")
    event_id = here.json("publish", "order.paid", "{}")["id"]
    here.json("publish", "user.created", "{}")

    assert len(deliveries(here)) == 3
    assert len(deliveries(here, "--limit", "1")) == 1
    assert len(deliveries(here, "--endpoint", made["id"], "--created-after", "1h")) == 2
    assert len(deliveries(here, "--event-type", "user.*", "--status", "pending")) == 2
    assert deliveries(here, "--error-kind", "timeout") == []
    [delivery] = deliveries(here, "--event", event_id)

    assert here.json("deliveries", "cancel", delivery["id"])["status"] == "cancelled"
    again = here.refusal("deliveries", "cancel", delivery["id"])
    assert "the delivery is cancelled" in again
    assert len(deliveries(here, "--status", "cancelled")) == 1


def test_a_bulk_replay_that_waits_replays_thousands_to_the_last(here: Here, stored: World) -> None:
    """WH-104"""
    made = endpoint(here)
    bury(stored, here.tenant, 3500)

    estimate = here.json("replays", "start", "--dry-run", "--endpoint", made["id"])
    assert estimate == {"matched_count": 3500, "matched_exactly": True}
    job = here.json("replays", "start", "--wait", "--event-type", "order.*")
    assert (job["state"], job["replayed_count"]) == ("finished", 3500)
    assert deliveries(here, "--status", "dead") == []
    assert "3500 of 3500" in here.text("replays", "list")
    assert here.json("replays", "start", "--dry-run")["matched_count"] == 0


def test_a_running_dev_takes_the_steps_of_bulk_replays(here: Here, stored: World) -> None:
    endpoint(here)
    bury(stored, here.tenant, 10)
    tenant = stored.one("select id from leasehook.tenants where name = %s", here.tenant)
    job = replay.create(stored.database, tenant["id"], replay.ReplayFilter())
    stored.until("select state = 'finished' from leasehook.replay_jobs where id = %s", job["id"])
    assert here.json("replays", "show", str(job["id"]))["replayed_count"] == 10


def test_a_paused_replay_goes_on_after_resuming_and_a_cancelled_one_never(
    tmp_path: Path, database_url: str, world: World
) -> None:
    """On a database that no dev maintains, so that the steps wait for `maintain`."""
    here = Here(CommandLine(tmp_path), "default")
    settings = {"DATABASE_URL": database_url, "LEASEHOOK_ALLOW_TARGETS": "127.0.0.0/8"}
    settings["LEASEHOOK_SECRET_KEY"] = "A" * 43 + "="
    here.json("endpoints", "create", "--url", _NOTHING_LISTENS, **settings)
    bury(world, here.tenant, 5)
    tenant = world.one("select id from leasehook.tenants where name = %s", here.tenant)
    first = str(replay.create(world.database, tenant["id"], replay.ReplayFilter())["id"])
    second = str(replay.create(world.database, tenant["id"], replay.ReplayFilter())["id"])

    assert here.json("replays", "pause", first, **settings)["state"] == "paused"
    assert here.json("replays", "cancel", second, **settings)["state"] == "cancelled"
    maintained = here.run("maintain", "--json", **settings)
    assert json.loads(maintained.stdout)["replays"]["steps"] == 0
    assert here.json("replays", "resume", first, **settings)["state"] == "running"
    told = here.run("maintain", **settings).stdout
    assert re.search(r"deliveries replayed +5\n", told)
    assert here.json("replays", "show", first, **settings)["state"] == "finished"
    assert "cannot become running" in here.refusal("replays", "resume", second, **settings)


def test_a_replay_whose_waiting_is_interrupted_is_left_to_maintenance(
    here: Here, stored: World
) -> None:
    endpoint(here)
    bury(stored, here.tenant, 10)
    arguments = ("replays", "start", "--wait", "--json", "--tenant", here.tenant)
    with stored.database.transaction() as holder:
        holder.execute(
            "select 1 from leasehook.deliveries as d join leasehook.tenants as t on t.id = d.tenant_id "
            "where t.name = %s for update of d",
            [here.tenant],
        )
        with here.command_line.start(*arguments) as process:
            stored.until_somebody_waits_for_a_lock()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (1, "")
    [line] = err.splitlines()
    assert "`leasehook maintain` goes on with the replay" in line
    [job] = here.json("replays", "list")["replays"]
    assert job["id"] in line
    stored.until("select state = 'finished' from leasehook.replay_jobs where id = %s", job["id"])
    assert here.json("replays", "show", job["id"])["replayed_count"] == 10


def test_tail_prints_each_attempt_once_until_it_is_interrupted(
    here: Here, receiver: Receiver
) -> None:
    receiver.answers["/bad"] = answer(500)
    good = endpoint(here, receiver.url("/good"))["id"]
    bad = endpoint(here, receiver.url("/bad"))["id"]
    program = here.command_line
    here.json("publish", "order.paid", "{}")
    program.json("drain", "--once")
    following = ("tail", "--tenant", here.tenant)
    with program.start(*following, "--json") as process, program.start(*following) as for_people:
        for each in (process, for_people):
            assert each.stderr is not None
            assert "Following" in each.stderr.readline()
        assert process.stdout is not None
        assert for_people.stdout is not None
        rounds = []
        for _ in range(2):
            event_id = here.json("publish", "user.created", "{}")["id"]
            program.json("drain", "--once")
            lines = [json.loads(process.stdout.readline()) for _ in range(2)]
            rounds.append((event_id, lines))
        sentences = [for_people.stdout.readline() for _ in range(4)]
        for each in (process, for_people):
            each.send_signal(signal.SIGINT)
            out, err = each.communicate(timeout=10)
            assert (each.returncode, out, err) == (0, "", "")
    for event_id, lines in rounds:
        assert {line["event_id"] for line in lines} == {event_id}
        assert {line["endpoint_id"]: line["status_code"] for line in lines} == {good: 200, bad: 500}
        assert {line["delivery_status"] for line in lines} == {"succeeded", "failed"}
    for sentence, line in zip(
        sorted(sentences, key=lambda text: re.findall(r"delivery (\S+),", text)),
        sorted(
            (line for _, lines in rounds for line in lines), key=lambda line: line["delivery_id"]
        ),
        strict=True,
    ):
        assert f"{line['status_code']} in {line['duration_ms']} ms" in sentence
        assert f"attempt 1: {line['delivery_status']}" in sentence


def test_the_doctor_finds_nothing_wrong_with_a_fresh_dev_and_names_what_is_wrong(
    tmp_path: Path, database_url: str, world: World
) -> None:
    doctor = Here(CommandLine(tmp_path), "default")
    keys = {"one": "A" * 43 + "=", "other": "B" * 42 + "A="}

    def ill(**settings: str) -> dict[str, str]:
        done = doctor.run("doctor", "--json", DATABASE_URL=database_url, **settings)
        document = json.loads(done.stdout)
        found = {
            check["name"]: check["verdict"]
            for check in document["checks"]
            if check["verdict"] != "ok"
        }
        assert done.returncode == (1 if "fail" in found.values() else 0)
        assert all(check["advice"] for check in document["checks"] if check["name"] in found)
        return found

    settings = {"LEASEHOOK_SECRET_KEY": keys["one"], "LEASEHOOK_ALLOW_TARGETS": "127.0.0.0/8"}
    assert ill(**settings) == {}
    header = ("--header", "X-Token: hush")
    doctor.json(
        "endpoints", "create", "--url", _NOTHING_LISTENS, *header,
        DATABASE_URL=database_url, **settings,
    )  # fmt: skip
    assert ill(**settings) == {}
    assert ill(LEASEHOOK_SECRET_KEY=keys["other"]) == {"sealing key": "fail"}
    assert ill() == {"configuration": "fail"}

    doctor.json("publish", "order.paid", "{}", DATABASE_URL=database_url)
    world.sql("update leasehook.deliveries set claimable_at = now() - interval '1 hour'")
    assert ill(**settings) == {"queue": "fail", "drain": "fail"}
    world.sql("update leasehook.deliveries set claimable_at = now()")
    world.sql("alter table leasehook.events disable row level security")
    assert ill(**settings) == {"row-level security": "fail"}
    world.sql("alter table leasehook.events enable row level security")
    world.sql(
        "delete from leasehook.migrations where version = (select max(version) from leasehook.migrations)"
    )
    assert ill(**settings) == {"migrations": "fail"}


def test_the_doctor_says_in_words_what_to_do(tmp_path: Path, empty_database_url: str) -> None:
    doctor = Here(CommandLine(tmp_path), "default")
    nowhere = doctor.run("doctor")
    assert nowhere.returncode == 1
    assert "start `leasehook dev`" in nowhere.stdout
    empty = doctor.run("doctor", DATABASE_URL=empty_database_url)
    assert empty.returncode == 1
    assert "run `leasehook migrate`" in empty.stdout
    down = doctor.run("doctor", DATABASE_URL="postgresql://u:hush@127.0.0.1:1/d")
    assert down.returncode == 1
    assert "check DATABASE_URL" in down.stdout
    assert "hush" not in down.stdout


def _queue(due_count: int, due_age_seconds: float) -> QueueHealth:
    return QueueHealth(due_count, due_age_seconds, 0, 0, 0, 0, 0)


_OK, _WARN, _FAIL = Verdict.OK, Verdict.WARN, Verdict.FAIL


@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        (judge_server(150004), _OK),
        (judge_server(140010), _FAIL),
        (judge_wall(Wall(role_exists=True, is_member=True, unguarded=[])), _OK),
        (judge_wall(Wall(role_exists=False, is_member=False, unguarded=[])), _FAIL),
        (judge_wall(Wall(role_exists=True, is_member=False, unguarded=[])), _FAIL),
        (judge_secrets(Secrets(0, 0, 0)), _OK),
        (judge_secrets(Secrets(3, 0, 1)), _FAIL),
        (judge_queue(_queue(5, 59)), _OK),
        (judge_queue(_queue(5, 61)), _WARN),
        (judge_queue(_queue(5, 601)), _FAIL),
        (judge_drain(Pulse(3600.0, None, 9e9), _queue(0, 0)), _OK),
        (judge_drain(Pulse(30.0, None, 9e9), _queue(5, 3600)), _OK),
        (judge_drain(Pulse(3600.0, None, 9e9), _queue(5, 121)), _FAIL),
        (judge_drain(Pulse(None, None, 9e9), _queue(5, 121)), _FAIL),
        (judge_upkeep(Pulse(None, None, 3600.0)), _OK),
        (judge_upkeep(Pulse(None, None, 2 * 86400.0)), _WARN),
        (judge_upkeep(Pulse(None, 60.0, 9e9)), _OK),
        (judge_upkeep(Pulse(None, 2 * 86400.0, 9e9)), _WARN),
        (judge_transactions(Storage(299.0, 0, 0)), _OK),
        (judge_transactions(Storage(301.0, 0, 0)), _WARN),
        (judge_transactions(Storage(3601.0, 0, 0)), _FAIL),
        (judge_bloat(Storage(0.0, 200_000, 1_000_000)), _OK),
        (judge_bloat(Storage(0.0, 200_000, 100_000)), _WARN),
    ],
)
def test_what_the_doctor_judges_is_advised_on_unless_it_is_fine(
    check: Any, verdict: Verdict
) -> None:
    assert check.verdict is verdict
    assert (check.advice is None) is (verdict is Verdict.OK)


def test_a_progress_bar_is_drawn_on_terminals_only() -> None:
    drawn = {}
    for is_terminal in (True, False):
        screen = io.StringIO()
        console = Console(file=screen, force_terminal=is_terminal, width=80)
        with counted_progress(console, "Replaying", 10) as show_done:
            show_done(7)
        drawn[is_terminal] = screen.getvalue()
    assert "7/10" in drawn[True]
    assert drawn[False] == ""


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2030-01-31T09:00:00Z", _NOW),
        ("2030-01-31t10:00:00+01:00", _NOW),
        ("90s", _NOW - timedelta(seconds=90)),
        ("15min", _NOW - timedelta(minutes=15)),
        ("2h", _NOW - timedelta(hours=2)),
        ("3d", _NOW - timedelta(days=3)),
    ],
)
def test_an_instant_is_written_as_such_or_as_so_long_ago(text: str, instant: datetime) -> None:
    assert parse_instant(text, _NOW) == instant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2030-01-31",
        "2030-01-31T09:00:00",
        "2030-02-31T09:00:00Z",
        "2 h",
        "999999d",
    ],
)
def test_what_is_no_instant_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="2030-01-31T09:00:00Z"):
        parse_instant(text, _NOW)


_AN_ID = str(UUID(int=7))


@pytest.mark.parametrize(
    "arguments",
    [
        ["keys", "create", "--operator", "--scope", "read"],
        ["endpoints", "update", _AN_ID],
        ["endpoints", "update", _AN_ID, "--timeout-seconds", "3", "--unset", "timeout-seconds"],
        ["endpoints", "create", "--url", "http://a.test", "--signing", "v2"],
        ["endpoints", "stats", _AN_ID, "--window-seconds", "1"],
        ["event-types", "update", "order.paid", "--no-schema", "--schema-file", __file__],
        ["event-types", "create", "order.paid", "--schema-file", __file__],
        ["deliveries", "list", "--event-type", "order*"],
        ["deliveries", "list", "--error-kind", "tired"],
        ["replays", "start", "--status", "pending"],
        ["recover", _AN_ID],
        ["recover", _AN_ID, "--since", "yesterday"],
    ],
)
def test_using_a_management_command_wrongly_exits_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_lists_fit_80_columns_without_colours_and_keep_ids_whole(here: Here) -> None:
    here.json("keys", "create", "--name", "a name that is much too long for one line of a terminal")
    here.json("consumers", "create", "customer:" + "0123456789" * 8, "--name", "A long name " * 5)
    here.json("event-types", "create", "customer.subscription.updated", "--description", "x " * 60)
    made = endpoint(here, _NOTHING_LISTENS + "a-rather-long-path/" * 5)
    event_id = here.json("publish", "customer.subscription.updated.by_someone", "{}")["id"]
    job = here.json("replays", "start")

    texts = [
        here.text(*command)
        for command in (
            ("keys", "list"),
            ("consumers", "list"),
            ("event-types", "list"),
            ("endpoints", "list"),
            ("events", "list"),
            ("deliveries", "list"),
            ("replays", "list"),
            ("stats",),
        )
    ]
    together = "".join(texts)
    assert max(map(len, together.splitlines())) <= 80
    assert "\x1b" not in together
    for each in (made["id"], event_id, job["id"]):
        assert each in together
