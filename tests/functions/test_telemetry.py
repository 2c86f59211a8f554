"""What the functions say about themselves: one form of line for all of them, and metrics that stay few."""

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI, HTTPException

from functions.api import create_app
from shared.courier import Courier
from shared.dispatch import Attempted, Summary
from shared.errors import DatabaseUnavailable
from shared.function_log import FunctionLog
from shared.http.gateway import correlation_id, lambda_handler, observed
from shared.runtime import Runtime
from shared.sources import NewSource, create_source
from shared.telemetry import attempt_log, emit_metrics
from tests.support.lambda_events import (
    SCHEDULE,
    Event,
    FakeContext,
    function_url,
    http_api,
    load_balancer,
    multi_value_load_balancer,
    rest_api,
)
from tests.support.lambdas import Lambdas
from tests.support.providers import GITHUB_SECRET, sign
from tests.support.receiver import Receiver, answer
from tests.support.world import World

Line = dict[str, Any]

SERVICES = ("ingest", "api", "drain", "maintain", "migrate")
COMMON = {
    "level",
    "location",
    "message",
    "timestamp",
    "service",
    "cold_start",
    "function_request_id",
}
REQUEST_ID = "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa"
CANARY = "canary-7f3a"
ROOT = "1-67891233-abcdef012345678912345678"


@dataclass(frozen=True)
class Context(FakeContext):
    """Lambda's context with the id of the invocation."""

    aws_request_id: str = REQUEST_ID


@pytest.fixture(autouse=True)
def new_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Powertools keeps a logger for each service as long as the process lives; a cold start has none."""
    for name in SERVICES:
        monkeypatch.delitem(logging.Logger.manager.loggerDict, name, raising=False)


class Output:
    """What the functions have written."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self.text = ""

    def read(self) -> tuple[list[Line], list[Line]]:
        """The lines of the log and the metrics since it was read last; whatever is no JSON object fails."""
        captured = self._capfd.readouterr()
        self.text += captured.out + captured.err
        return _objects(captured.err), _objects(captured.out)

    def lines(self, message: str) -> list[Line]:
        """The lines of the log that say this, since it was read last."""
        return [line for line in self.read()[0] if line["message"] == message]


def _objects(text: str) -> list[Line]:
    found = [json.loads(line) for line in text.splitlines()]
    assert all(isinstance(each, dict) for each in found)
    return found


@pytest.fixture
def output(capfd: pytest.CaptureFixture[str]) -> Output:
    return Output(capfd)


def _publish(lambdas: Lambdas, body: object, path: str = "/v1/events") -> Any:
    return lambdas.warm("ingest").invoke(lambdas.event(body, path=path), Context.lasting(30))


def _drain(lambdas: Lambdas, event: object = SCHEDULE, lasting_seconds: float = 60.0) -> Line:
    found: Line = lambdas.warm("drain").invoke(event, Context.lasting(lasting_seconds))
    return found


def test_every_function_writes_lines_of_one_form(
    world: World, lambdas: Lambdas, receiver: Receiver, output: Output
) -> None:
    world.endpoint(receiver.url())
    _publish(lambdas, {"type": "order.paid", "payload": 1})
    _drain(lambdas)
    for function in ("maintain", "migrate"):
        lambdas.warm(function).invoke({}, Context.lasting(60))

    lines, _ = output.read()

    assert [(line["service"], line["message"]) for line in lines] == [
        ("ingest", "published"),
        ("drain", "attempt"),
        ("drain", "drained"),
        ("maintain", "maintained"),
        ("migrate", "migrated"),
    ]
    for line in lines:
        assert line.keys() >= COMMON
        assert line["function_request_id"] == REQUEST_ID
        # Lambda filters by level, and keeps the time, only if the time is in this form (RFC 3339).
        assert re.fullmatch(r"\d{4}(-\d\d){2}T\d\d(:\d\d){2}\.\d{3}\+00:00", line["timestamp"])
    by_message = {line["message"]: line for line in lines}
    assert by_message["drained"]["succeeded"] == 1
    assert by_message["maintained"]["health"]["due_count"] == 0
    assert by_message["migrated"]["applied"] == []


def test_only_the_first_invocation_is_a_cold_start(lambdas: Lambdas, output: Output) -> None:
    for _ in range(3):
        _drain(lambdas)
    assert [line["cold_start"] for line in output.lines("drained")] == [True, False, False]


def test_an_attempts_line_has_its_outcome_as_level_and_the_delivery_as_correlation_id(
    world: World, lambdas: Lambdas, receiver: Receiver, output: Output
) -> None:
    receiver.answers["/no"] = answer(500)
    receiver.answers["/gone"] = answer(410)
    expected = {
        "/yes": ("INFO", "succeed", 200, None),
        "/no": ("WARNING", "retry", 500, "status"),
        "/gone": ("ERROR", "bury", 410, "status"),
    }
    endpoints = {world.endpoint(receiver.url(path))["id"]: path for path in expected}
    event_id = world.publish().event_id
    _drain(lambdas)

    lines = output.lines("attempt")

    assert len(lines) == 3
    for line in lines:
        delivery = world.one(
            "select * from leasehook.deliveries where id = %s", UUID(line["correlation_id"])
        )
        assert line.keys() - {"error_kind"} == COMMON | {
            "correlation_id",
            "delivery_id",
            "event_id",
            "endpoint_id",
            "tenant_id",
            "attempt",
            "outcome",
            "status_code",
            "duration_ms",
        }
        assert line["delivery_id"] == line["correlation_id"]
        assert line["event_id"] == str(event_id)
        assert line["endpoint_id"] == str(delivery["endpoint_id"])
        assert line["tenant_id"] == str(world.tenant_id)
        assert line["attempt"] == 1
        said = (line["level"], line["outcome"], line["status_code"], line.get("error_kind"))
        assert said == expected[endpoints[delivery["endpoint_id"]]]


def test_an_attempts_line_is_what_powertools_would_write(output: Output) -> None:
    ids = UUID(int=0), UUID(int=1), UUID(int=2), UUID(int=3)
    log = FunctionLog("drain")
    with log.invocation(Context.lasting(1), "a request"):
        attempt_log(sys.stderr, log.line)([Attempted(*ids, 3, "retry", None, "timeout", 12)])
        fields = {
            "correlation_id": ids[0],
            "delivery_id": ids[0],
            "event_id": ids[1],
            "endpoint_id": ids[2],
            "tenant_id": ids[3],
            "attempt": 3,
            "outcome": "retry",
            "error_kind": "timeout",
            "status_code": None,
            "duration_ms": 12,
        }
        logging.getLogger("shared.dispatch").warning("attempt", extra=fields)

    ours, theirs = output.lines("attempt")

    apart = datetime.fromisoformat(theirs.pop("timestamp")) - datetime.fromisoformat(
        ours.pop("timestamp")
    )
    assert timedelta(0) <= apart < timedelta(seconds=5)
    assert ours == theirs


@pytest.mark.parametrize(
    ("environment", "levels"),
    [
        ({}, {"INFO", "WARNING", "ERROR"}),
        ({"POWERTOOLS_LOG_LEVEL": "warning"}, {"WARNING", "ERROR"}),
        ({"AWS_LAMBDA_LOG_LEVEL": "ERROR"}, {"ERROR"}),
        ({"AWS_LAMBDA_LOG_LEVEL": "WARN", "POWERTOOLS_LOG_LEVEL": "ERROR"}, {"WARNING", "ERROR"}),
        ({"AWS_LAMBDA_LOG_LEVEL": "FATAL"}, set()),
        ({"AWS_LAMBDA_LOG_LEVEL": "TRACE"}, {"INFO", "WARNING", "ERROR"}),
        ({"POWERTOOLS_LOGGER_SAMPLE_RATE": "often"}, {"INFO", "WARNING", "ERROR"}),
        ({"POWERTOOLS_LOG_LEVEL": "loud"}, {"INFO", "WARNING", "ERROR"}),
    ],
)
def test_the_levels_of_lambda_and_powertools_hold_for_every_line(
    *,
    world: World,
    lambdas: Lambdas,
    receiver: Receiver,
    output: Output,
    environment: dict[str, str],
    levels: set[str],
) -> None:
    lambdas.deploy(**environment)
    receiver.answers["/no"] = answer(500)
    receiver.answers["/gone"] = answer(410)
    for path in ("/yes", "/no", "/gone"):
        world.endpoint(receiver.url(path))
    _publish(lambdas, {"type": "order.paid", "payload": 1})
    _drain(lambdas)

    lines, _ = output.read()

    assert {line["level"] for line in lines if line["message"] == "attempt"} == levels
    for message in ("published", "drained"):
        assert any(line["message"] == message for line in lines) == ("INFO" in levels)


def test_a_release_that_has_a_name_is_told_in_every_line(
    world: World, lambdas: Lambdas, receiver: Receiver, output: Output
) -> None:
    lambdas.deploy(LEASEHOOK_RELEASE="2030-01")
    world.endpoint(receiver.url())
    _publish(lambdas, {"type": "order.paid", "payload": 1})
    _drain(lambdas)
    lines = output.read()[0]
    assert [line["message"] for line in lines] == ["published", "attempt", "drained"]
    assert {line["release"] for line in lines} == {"2030-01"}


def test_a_level_that_does_not_exist_is_told_and_stops_nothing(
    lambdas: Lambdas, output: Output
) -> None:
    lambdas.deploy(POWERTOOLS_LOG_LEVEL="loud")
    assert _drain(lambdas)["stopped"] == "idle"
    [told] = [line for line in output.read()[0] if line["level"] == "WARNING"]
    assert "POWERTOOLS_LOG_LEVEL: expected DEBUG" in told["message"]


@pytest.mark.parametrize("value", ["", "perhaps"])
@pytest.mark.parametrize("switch", ["POWERTOOLS_DEV", "POWERTOOLS_LOG_DEDUPLICATION_DISABLED"])
def test_a_switch_that_is_neither_on_nor_off_is_told_and_stops_nothing(
    lambdas: Lambdas, output: Output, monkeypatch: pytest.MonkeyPatch, switch: str, value: str
) -> None:
    monkeypatch.setenv(switch, value)
    assert _publish(lambdas, {"type": "order.paid", "payload": 1})["statusCode"] == 202
    [told] = [line for line in output.read()[0] if line["level"] == "WARNING"]
    assert switch in told["message"]
    assert told["message"].endswith("expected true or false; they are ignored")


def test_metrics_that_cannot_be_printed_cost_no_run_its_result(
    lambdas: Lambdas, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    lambdas.deploy(POWERTOOLS_METRICS_NAMESPACE="Leasehook")
    monkeypatch.setenv("POWERTOOLS_METRICS_DISABLED", "perhaps")
    assert _drain(lambdas)["stopped"] == "idle"
    assert [line["message"] for line in output.read()[0]] == [
        "metrics could not be printed",
        "drained",
    ]


def test_why_a_request_was_answered_503_is_told(lambdas: Lambdas, output: Output) -> None:
    lambdas.deploy(DATABASE_URL=f"postgresql://someone:{CANARY}@127.0.0.1:1/nowhere")
    event = lambdas.event({"type": "order.paid", "payload": 1}, key="lh_none")
    assert (
        lambdas.warm("ingest").invoke(_with_request_id(event), Context.lasting(5))["statusCode"]
        == 503
    )
    [line] = output.read()[0]
    assert (line["level"], line["correlation_id"]) == ("ERROR", "JKJaXmPL")
    assert line["message"].endswith("nothing listens at its host and port")
    assert CANARY not in output.text


def _with_request_id(event: Event) -> Event:
    return {**event, "requestContext": {**event["requestContext"], "requestId": "JKJaXmPL"}}


def _with_trace(event: Event) -> Event:
    if "headers" in event:
        return {**event, "headers": {**event["headers"], "x-amzn-trace-id": f"Root={ROOT}"}}
    headers = {**event["multiValueHeaders"], "x-amzn-trace-id": [f"Root={ROOT}"]}
    return {**event, "multiValueHeaders": headers}


def test_a_request_is_known_by_the_id_of_what_carried_it(lambdas: Lambdas, output: Output) -> None:
    for shape, prepare, expected in [
        (http_api, _with_request_id, "JKJaXmPL"),
        (rest_api, _with_request_id, "JKJaXmPL"),
        (function_url, _with_request_id, "JKJaXmPL"),
        (load_balancer, _with_trace, f"Root={ROOT}"),
        (multi_value_load_balancer, _with_trace, f"Root={ROOT}"),
    ]:
        body = b'{"type": "order.paid", "payload": 1}'
        event = shape("POST", "/v1/events", body, {"authorization": f"Bearer {lambdas.key}"})
        for sent, known_as in ((prepare(event), expected), (event, None)):
            lambdas.warm("ingest").invoke(sent, Context.lasting(30))
            [line] = output.lines("published")
            assert line.get("correlation_id") == known_as, shape


@pytest.mark.parametrize("odd", [7, "", ["x"], {"x": 1}, None])
def test_an_odd_request_id_is_none(odd: object) -> None:
    event = http_api("GET", "/healthz")
    event["requestContext"]["requestId"] = odd
    assert correlation_id(event) is None
    balanced = load_balancer("GET", "/", headers={"x-amzn-trace-id": odd})  # type: ignore[dict-item]
    assert correlation_id(balanced) is None


def test_a_clients_trace_id_is_cut_and_stays_one_line(lambdas: Lambdas, output: Output) -> None:
    headers = {"authorization": f"Bearer {lambdas.key}", "x-amzn-trace-id": 'a"\n{}\u2028é' * 999}
    event = load_balancer("POST", "/v1/events", b'{"type": "a", "payload": 1}', headers)
    lambdas.warm("ingest").invoke(event, Context.lasting(30))
    [line] = output.lines("published")
    assert line["correlation_id"] == ('a"\n{}\u2028é' * 999)[:256]


def test_each_accepted_event_is_told_and_nothing_of_what_it_says(
    world: World, lambdas: Lambdas, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WH-122: not even when Powertools is asked to log events."""
    monkeypatch.setenv("POWERTOOLS_LOGGER_LOG_EVENT", "true")
    world.endpoint(f"http://127.0.0.1:9/{CANARY}?token={CANARY}")
    event = {"type": "order.paid", "payload": CANARY, "idempotency_key": f"k-{CANARY}"}

    for repeated in (False, True):
        _publish(lambdas, event)
        [line] = output.lines("published")
        assert line.keys() == COMMON | {"event_id", "tenant_id", "deliveries", "repeated"}
        assert (line["deliveries"], line["repeated"]) == (1, int(repeated))
        assert line["tenant_id"] == str(world.tenant_id)
        assert UUID(line["event_id"]) == world.one("select id from leasehook.events")["id"]

    batch = {"events": [event, {"type": "order.paid", "payload": CANARY}]}
    answered = json.loads(_publish(lambdas, batch, "/v1/events/batch")["body"])
    [line] = output.lines("published")
    assert line.keys() == COMMON | {"event_ids", "tenant_id", "deliveries", "repeated"}
    assert line["event_ids"] == [each["id"] for each in answered["events"]]
    assert (line["deliveries"], line["repeated"]) == (2, 1)

    refused = _publish(lambdas, {"type": CANARY + "!", "payload": 1})
    assert refused["statusCode"] == 422
    assert output.read() == ([], [])
    assert CANARY not in output.text
    assert lambdas.key not in output.text


def test_what_a_provider_sends_is_told_once_and_nothing_of_what_it_says(
    world: World, lambdas: Lambdas, output: Output
) -> None:
    """WH-122."""
    new = NewSource(provider="github", secret=GITHUB_SECRET)
    path = create_source(world.database, world.sealer, world.tenant_id, new)["path"]
    signed = sign("github", json.dumps({"text": CANARY}).encode())
    event = _with_request_id(
        http_api("POST", path, signed.body, {**signed.headers, "cookie": CANARY})
    )

    for duplicate in (False, True):
        lambdas.warm("ingest").invoke(event, Context.lasting(30))
        [line] = output.lines("received")
        assert line.keys() == COMMON | {
            "correlation_id",
            "event_id",
            "tenant_id",
            "deliveries",
            "duplicate",
        }
        assert line["tenant_id"] == str(world.tenant_id)
        assert (line["correlation_id"], line["duplicate"]) == ("JKJaXmPL", duplicate)
        assert UUID(line["event_id"]) == world.one("select id from leasehook.events")["id"]

    lambdas.warm("ingest").invoke({**event, "body": "{}"}, Context.lasting(30))
    assert output.read() == ([], [])
    for secret in (CANARY, path.rpartition("/")[2], GITHUB_SECRET):
        assert secret not in output.text


def test_a_failure_inside_is_told_without_the_words_of_others(
    world: World,
    lambdas: Lambdas,
    output: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """WH-122: an exception may quote what it was given."""

    async def fail(*_: object) -> None:
        cause = ValueError(f"cannot send {CANARY}")
        several = ExceptionGroup(CANARY, [KeyError(CANARY), DatabaseUnavailable("it sleeps")])
        several.add_note(CANARY)
        raise several from cause

    monkeypatch.setattr(Courier, "attempt", fail)
    world.endpoint()
    world.publish()
    _drain(lambdas)

    [line] = output.lines("attempt failed inside Leasehook")

    assert line["level"] == "ERROR"
    assert line["correlation_id"] == str(world.one("select id from leasehook.deliveries")["id"])
    assert line["exception_name"] == "ExceptionGroup"
    for told in ("ValueError", "KeyError", "DatabaseUnavailable: it sleeps", "in fail"):
        assert told in line["exception"]
    assert CANARY not in output.text


@pytest.fixture
def runtime(world: World, database_url: str) -> Iterator[Runtime]:
    runtime = Runtime.read(world.environment(database_url))
    yield runtime
    runtime.database.close()


def _failing_app() -> FastAPI:
    app = FastAPI()

    @app.get("/status/{status}")
    def status(status: int) -> None:
        raise HTTPException(status, CANARY)

    @app.get("/unforeseen")
    def unforeseen() -> None:
        raise RuntimeError(CANARY)

    return app


def test_what_libraries_log_comes_in_the_same_form_and_only_if_it_is_a_warning(
    lambdas: Lambdas, output: Output, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    api = lambdas.serve(observed("api", lambda_handler(_failing_app)))
    api.invoke(_with_request_id(http_api("GET", "/status/404")), Context.lasting(5))
    assert output.read() == ([], [])

    api.invoke(_with_request_id(http_api("GET", "/unforeseen")), Context.lasting(5))

    [line], _ = output.read()
    assert (line["location"], line["level"], line["service"]) == ("mangum.http", "ERROR", "api")
    assert line["correlation_id"] == "JKJaXmPL"
    assert line["exception_name"] == "RuntimeError"
    assert CANARY not in output.text


def test_what_asyncio_says_of_tasks_is_cut_before_it_quotes_them(output: Output) -> None:
    with FunctionLog("drain").invocation(Context.lasting(5)):
        logging.getLogger("asyncio").error(
            "Task exception was never retrieved\nfuture: %s", f"exception=X('{CANARY}')"
        )
    [line] = output.read()[0]
    assert line["message"] == "Task exception was never retrieved"
    assert CANARY not in output.text


def test_the_runtimes_own_handler_rests_during_an_invocation(
    lambdas: Lambdas, output: Output
) -> None:
    """Awslambdaric puts one on the root logger, which would write every line again."""

    class LambdaLoggerHandler(logging.StreamHandler[Any]):
        pass

    theirs = LambdaLoggerHandler(twice := io.StringIO())
    root = logging.getLogger()
    before = root.handlers[:]
    root.addHandler(theirs)
    try:
        _publish(lambdas, {"type": "order.paid", "payload": 1})
        assert set(root.handlers) == {*before, theirs}
    finally:
        root.removeHandler(theirs)
    assert twice.getvalue() == ""
    assert len(output.lines("published")) == 1


def test_a_drain_that_the_database_ended_is_told_as_an_error(
    lambdas: Lambdas, output: Output, database_url: str
) -> None:
    lambdas.deploy(DATABASE_URL=database_url + " port=1")
    _drain(lambdas)
    [line] = output.lines("drained")
    assert line["level"] == "ERROR"
    assert line["stopped"].startswith("the database did not answer")


def test_a_trace_is_named_in_every_line_and_sent_to_nobody(
    world: World,
    lambdas: Lambdas,
    receiver: Receiver,
    output: Output,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.endpoint(receiver.url())
    for number in (1, 2):
        root = f"1-6789123{number}-abcdef012345678912345678"
        monkeypatch.setenv(
            "_X_AMZN_TRACE_ID", f"Root={root};Parent=abcdef0123456789;Sampled=1;Lineage=1:a:0"
        )
        world.publish()
        _drain(lambdas)
        lines, _ = output.read()
        assert [line["message"] for line in lines] == ["attempt", "drained"]
        assert {line["xray_trace_id"] for line in lines} == {root}
    for request in receiver.received:
        assert not [name for name in request.headers if "trace" in name or "amzn" in name]
        assert "abcdef012345678912345678" not in str(request)


def test_without_a_context_nobody_is_told_but_of_attempts(
    world: World, lambdas: Lambdas, receiver: Receiver, output: Output
) -> None:
    """The command line runs the same handlers, and says what they did in its own way."""
    world.endpoint(receiver.url())
    world.publish()
    assert lambdas.warm("drain").invoke({}, None)["succeeded"] == 1
    for function in ("maintain", "migrate"):
        lambdas.warm(function).invoke({}, None)
    assert [line["message"] for line in output.read()[0]] == ["attempt"]


def test_an_application_outside_of_lambda_writes_no_lines(
    world: World,
    runtime: Runtime,
    capfd: pytest.CaptureFixture[str],
    lambda_event_loop: None,  # noqa: ARG001  # wanted for its effect
) -> None:
    headers = {"authorization": f"Bearer {world.key()}"}
    event = http_api("POST", "/v1/events", b'{"type": "a", "payload": 1}', headers)
    handler = lambda_handler(lambda: create_app(runtime))
    assert handler(event, None)["statusCode"] == 202
    assert capfd.readouterr() == ("", "")


def _declared(metrics: list[Line]) -> set[tuple[str, str, tuple[str, ...], str, str]]:
    """Namespace, service, dimensions, name and unit of every metric."""
    return {
        (
            each["Namespace"],
            metric["service"],
            *map(tuple, each["Dimensions"]),
            m["Name"],
            m["Unit"],
        )
        for metric in metrics
        for each in metric["_aws"]["CloudWatchMetrics"]
        for m in each["Metrics"]
    }


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("/status/404", 0),
        ("/status/499", 0),
        ("/status/500", 1),
        ("/status/503", 1),
        ("/unforeseen", 1),
        ("/nothing", 0),
    ],
)
def test_an_answer_of_5xx_is_counted_and_no_other(
    lambdas: Lambdas, output: Output, path: str, count: int
) -> None:
    lambdas.deploy(POWERTOOLS_METRICS_NAMESPACE="Leasehook")
    for service in ("ingest", "api"):
        function = lambdas.serve(observed(service, lambda_handler(_failing_app)))
        function.invoke(http_api("GET", path), Context.lasting(5))
        _, metrics = output.read()
        assert [each["ServerErrors"] for each in metrics] == [[1.0]] * count
        assert _declared(metrics) == (
            {("Leasehook", service, ("service",), "ServerErrors", "Count")} if count else set()
        )


def test_an_exception_that_reaches_lambda_is_counted(lambdas: Lambdas, output: Output) -> None:
    """Such as a setting that is wrong: then there are no settings that could name the namespace."""
    lambdas.deploy(POWERTOOLS_METRICS_NAMESPACE="Leasehook")

    def make() -> FastAPI:
        raise ValueError("broken")

    function = lambdas.serve(observed("ingest", lambda_handler(make)))
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            function.invoke(http_api("GET", "/"), Context.lasting(5))
    assert [each["ServerErrors"] for each in output.read()[1]] == [[1.0], [1.0]]


def test_without_a_namespace_nothing_is_counted(lambdas: Lambdas, output: Output) -> None:
    function = lambdas.serve(observed("ingest", lambda_handler(_failing_app)))
    function.invoke(http_api("GET", "/status/503"), Context.lasting(5))
    assert output.read() == ([], [])


def test_an_event_that_is_no_request_is_not_counted(lambdas: Lambdas, output: Output) -> None:
    lambdas.deploy(POWERTOOLS_METRICS_NAMESPACE="Leasehook")
    events: list[object] = [SCHEDULE, None, [], "ping"]
    for event in events:
        lambdas.warm("ingest").invoke(event, Context.lasting(5))
    assert output.read() == ([], [])


def test_whatever_is_sent_the_metrics_are_the_same_few(
    world: World, lambdas: Lambdas, receiver: Receiver, output: Output, database_url: str
) -> None:
    """Each combination of dimensions is a metric that is paid for."""
    lambdas.deploy(POWERTOOLS_METRICS_NAMESPACE="Leasehook")
    for number in range(12):
        receiver.answers[f"/{number}"] = answer(100 * (number % 4) + 200)
        world.endpoint(receiver.url(f"/{number}"), event_types=[f"type.{number}"])
        _publish(lambdas, {"type": f"type.{number}", "payload": f"{CANARY}{number}"})
        _publish(lambdas, {"type": f"{CANARY}{number}!", "payload": 1})
        for service in ("ingest", "api"):
            failing = lambdas.serve(observed(service, lambda_handler(_failing_app)))
            failing.invoke(http_api("GET", f"/status/{500 + number}"), Context.lasting(5))
    _drain(lambdas)
    lambdas.maintain()
    lambdas.deploy(DATABASE_URL=database_url + " port=1", POWERTOOLS_METRICS_NAMESPACE="Leasehook")
    _publish(lambdas, {"type": "a", "payload": 1})
    _drain(lambdas)

    _, metrics = output.read()

    assert len(metrics) > 20
    kept = {(service, name) for _, service, _, name, _ in _declared(metrics)}
    assert {dimensions for _, _, dimensions, _, _ in _declared(metrics)} == {("service",)}
    assert len(_declared(metrics)) == len(kept)
    assert {service for service, _ in kept} == {"ingest", "api", "drain", "queue"}
    assert {name for service, name in kept if service in ("ingest", "api")} == {"ServerErrors"}
    assert {name for service, name in kept if service == "drain"} == {
        "".join(word.capitalize() for word in name.split("_"))
        for name in Summary.__dataclass_fields__
        if name != "stopped"
    }
    assert {name for service, name in kept if service == "queue"} == {
        "DueAgeSeconds",
        "DueCount",
        "InProgressCount",
        "LapsedCount",
        "WaitingCount",
        "ParkedCount",
        "OpenCircuitCount",
    }
    units = {name: unit for _, _, _, name, unit in _declared(metrics)}
    for name in ("Succeeded", "Retried", "Dead", "Late", "DueCount", "ServerErrors"):
        assert units[name] == "Count"
    assert (units["DueAgeSeconds"], units["ClaimMsMax"], units["SettleMsMax"]) == (
        "Seconds",
        "Milliseconds",
        "Milliseconds",
    )
    assert CANARY not in json.dumps(metrics)


class Writes(io.StringIO):
    """Keeps what was written in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return len(text)


def test_metrics_and_batches_of_attempts_are_written_in_one_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lambda passes on each write as it comes, and other threads write as well."""
    monkeypatch.setattr(sys, "stdout", out := Writes())
    emit_metrics("Leasehook", "drain", {"succeeded": 1, "dead": 2})
    [piece] = out.pieces
    assert piece.count("\n") == 1
    assert piece.endswith("}\n")

    ids = UUID(int=0), UUID(int=1), UUID(int=2), UUID(int=3)
    attempts = [
        Attempted(*ids, number, verb, 200, None, 1)
        for number, verb in enumerate(["succeed", "retry", "bury"] * 20)
    ]
    attempt_log(batch := Writes())(attempts)
    [piece] = batch.pieces
    assert [line["attempt"] for line in _objects(piece)] == list(range(60))


def test_powertools_may_switch_the_metrics_off(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_DISABLED", "true")
    emit_metrics("Leasehook", "drain", {"dead": 2})
    assert capfd.readouterr().out == ""
