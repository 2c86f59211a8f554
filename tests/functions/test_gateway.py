"""The shapes of events: whatever stands in front of the functions, a request is the same request."""

import logging
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from fastapi import FastAPI, Request

from shared.http.gateway import lambda_handler
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
from tests.support.lambdas import Answer, Lambdas, read_answer
from tests.support.receiver import Receiver
from tests.support.world import World

Shape = Callable[..., Event]

SHAPES: list[Shape] = [
    http_api,
    rest_api,
    function_url,
    load_balancer,
    multi_value_load_balancer,
]
PAYLOAD = '{"msg": "déploiement ✅ 🚀",  "z": 1.10, "a": "\\u00e9"}'.encode()
BODY = b'{"type": "order.paid", "payload": ' + PAYLOAD + b"}"


def _ask(lambdas: Lambdas, event: Event) -> Answer:
    return read_answer(lambdas.warm("ingest").invoke(event, FakeContext.lasting(30)))


def _bearer(lambdas: Lambdas) -> dict[str, str]:
    return {"authorization": f"Bearer {lambdas.key}", "content-type": "application/json"}


def _stored(world: World) -> list[bytes]:
    return [bytes(row["payload"]) for row in world.sql("select payload from leasehook.events")]


def test_every_shape_of_event_stores_the_bytes_that_were_sent(
    world: World, lambdas: Lambdas
) -> None:
    """WH-003, WH-020, WH-021, WH-026: as text and as base64."""
    for shape, encoded in product(SHAPES, (False, True)):
        event = shape("POST", "/v1/events", BODY, _bearer(lambdas), encoded=encoded)
        answer = _ask(lambdas, event)
        assert answer.status == 202, (shape, encoded, answer)
        assert answer.headers["content-type"] == "application/json"

    assert _stored(world) == [PAYLOAD] * 2 * len(SHAPES)


def test_a_base64_body_is_decoded_whatever_its_content_type(world: World, lambdas: Lambdas) -> None:
    """WH-020."""
    content_types = [
        {"content-type": "application/json"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/octet-stream"},
        {"content-type": "application/cloudevents+json"},
        {},
    ]
    for content_type in content_types:
        headers = {"authorization": f"Bearer {lambdas.key}", **content_type}
        event = http_api("POST", "/v1/events", BODY, headers, encoded=True)
        assert _ask(lambdas, event).status == 202, content_type

    assert _stored(world) == [PAYLOAD] * len(content_types)


def test_a_body_that_is_marked_as_base64_and_is_not_is_a_bad_request(
    world: World, lambdas: Lambdas
) -> None:
    """WH-020: never an exception, which the gateway would answer with 502."""
    for shape, body in product(SHAPES, ("not base64!", "QUJ", "é")):
        event = shape("POST", "/v1/events", b"", _bearer(lambdas)) | {
            "body": body,
            "isBase64Encoded": True,
        }
        answer = _ask(lambdas, event)
        assert answer.status == 400, (shape, body, answer)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["detail"]

    assert _stored(world) == []


def test_the_stage_is_no_part_of_the_route(lambdas: Lambdas) -> None:
    """WH-022."""
    statuses = {
        "named stage": _ask(lambdas, http_api("GET", "/healthz", stage="prod")).status,
        "default stage": _ask(lambdas, http_api("GET", "/healthz")).status,
        "REST": _ask(lambdas, rest_api("GET", "/healthz", stage="prod")).status,
        "named like a route": _ask(lambdas, http_api("GET", "/healthz", stage="healthz")).status,
        "stage alone": _ask(lambdas, http_api("GET", "", stage="prod")).status,
    }
    assert statuses == {
        "named stage": 200,
        "default stage": 200,
        "REST": 200,
        "named like a route": 200,
        "stage alone": 404,
    }


def test_a_path_that_begins_with_the_letters_of_the_stage_keeps_them(lambdas: Lambdas) -> None:
    """WH-022: a custom domain sends paths without the stage, and `/healthz` begins with `/heal`."""
    event = http_api("GET", "/healthz")
    event["requestContext"]["stage"] = "heal"
    assert _ask(lambdas, event).status == 200


def test_a_request_without_a_body_breaks_a_rule(world: World, lambdas: Lambdas) -> None:
    """WH-024."""
    bodies: list[Event] = [{"body": None}, {"body": ""}, {}]
    for shape, body in product(SHAPES, bodies):
        event = shape("POST", "/v1/events", b"", _bearer(lambdas))
        del event["body"]
        answer = _ask(lambdas, event | body)
        assert (answer.status, answer.fields) == (422, ["body"]), (shape, body)

    assert _stored(world) == []


def test_a_request_without_any_headers_lacks_an_api_key(lambdas: Lambdas) -> None:
    """WH-024: REST APIs send null."""
    nothing = {"headers": None, "multiValueHeaders": None}
    assert _ask(lambdas, rest_api("POST", "/v1/events", BODY) | nothing).status == 401
    without = http_api("POST", "/v1/events", BODY)
    del without["headers"]
    assert _ask(lambdas, without).status == 401


def test_the_case_of_header_names_never_matters(lambdas: Lambdas) -> None:
    """WH-014."""
    for shape, name in product(SHAPES, ("authorization", "Authorization", "AUTHORIZATION")):
        headers = {name: f"bEaReR {lambdas.key}"}
        event = shape("POST", "/v1/events", BODY, headers)
        assert _ask(lambdas, event).status == 202, (shape, name)


def _echo() -> FastAPI:
    app = FastAPI()

    @app.get("/echo/{name}")
    def echo(name: str, request: Request) -> dict[str, Any]:
        client = request.client.host if request.client else None
        return {"name": name, "query": dict(request.query_params), "client": client}

    return app


def test_queries_are_decoded_once_and_the_client_is_known(lambdas: Lambdas) -> None:
    """WH-026: a cursor with `+`, `=` and `%` survives a round trip."""
    environment = lambdas.serve(lambda_handler(_echo))
    for shape in SHAPES:
        event = shape("GET", "/echo/x?name=John%20Smith&cursor=a%2Bb%3D%3D%252B")
        answer = read_answer(environment.invoke(event, FakeContext.lasting(5)))
        assert answer.json == {
            "name": "x",
            "query": {"name": "John Smith", "cursor": "a+b==%2B"},
            "client": "198.51.100.7",
        }, shape


def test_an_event_that_is_no_request_is_answered_without_an_alarm(
    lambdas: Lambdas, caplog: pytest.LogCaptureFixture
) -> None:
    """WH-027."""
    events: list[object] = [
        SCHEDULE,
        {"warmup": True},
        {},
        None,
        [],
        "ping",
        {"requestContext": None},
    ]
    for event in events:
        answer = lambdas.warm("ingest").invoke(event, None)
        assert answer == {"ignored": "not an HTTP request"}, event
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_the_drain_refuses_to_be_run_over_http(
    world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-027: nobody's URL may run the queue."""
    world.endpoint(receiver.url())
    world.publish()

    for shape in SHAPES:
        result = lambdas.warm("drain").invoke(shape("POST", "/"), FakeContext.lasting(30))
        assert "refused" in result, shape

    assert world.statuses() == {"pending": 1}
    assert receiver.received == []


def test_the_drain_needs_no_event_and_no_context(
    world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-027."""
    world.endpoint(receiver.url())
    world.publish()
    assert lambdas.warm("drain").invoke(None, None)["succeeded"] == 1


def test_warm_functions_keep_working_and_hold_one_connection(
    world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-028: six calls of each, with a receiver that keeps connections alive."""
    world.endpoint(receiver.url())
    for _ in range(6):
        assert lambdas.publish({"type": "order.paid", "payload": 1}).status == 202
        assert lambdas.drain()["succeeded"] == 1
    sessions = world.one(
        """
        select count(*) as n
        from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()
        """
    )
    assert sessions["n"] == 1


def test_the_application_is_made_once_for_all_warm_calls(lambdas: Lambdas) -> None:
    """WH-029."""
    made = []

    def make() -> FastAPI:
        made.append(True)
        return _echo()

    environment = lambdas.serve(lambda_handler(make))
    assert made == [], "a cold start pays for it only when a request comes"
    for _ in range(20):
        event = http_api("GET", "/echo/x")
        assert read_answer(environment.invoke(event, FakeContext.lasting(5))).status == 200
    assert made == [True]


def test_no_function_but_migrate_changes_the_schema(
    world: World, lambdas: Lambdas, receiver: Receiver
) -> None:
    """WH-029: with an event trigger that forbids it."""
    world.sql(
        """
        create function public.forbid() returns event_trigger language plpgsql as $$
        begin
            raise exception 'DDL: %', tg_tag;
        end
        $$
        """
    )
    world.sql("create event trigger forbid on ddl_command_start execute function public.forbid()")
    world.endpoint(receiver.url())

    assert lambdas.publish({"type": "order.paid", "payload": 1}).status == 202
    assert lambdas.drain()["succeeded"] == 1
    assert lambdas.maintain()["upkeep"]["complete"]


def test_a_route_that_is_not_there_is_a_problem_document(lambdas: Lambdas) -> None:
    """WH-041; a trailing slash is another path, and nobody is redirected."""
    routes = [
        ("GET", "/", 404),
        ("GET", "/v1/events", 405),
        ("POST", "/v1/events/", 404),
        ("POST", "/v1/%00", 404),
        ("GET", "/v1/events/batch", 405),
        ("POST", "/" + "x" * 10_000, 404),
    ]
    for shape, (method, path, status) in product(SHAPES, routes):
        answer = _ask(lambdas, shape(method, path, b"{}", _bearer(lambdas)))
        assert answer.status == status, (shape, method, path)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["status"] == status


def test_readiness_asks_the_database_and_health_does_not(
    lambdas: Lambdas, database_url: str
) -> None:
    assert _ask(lambdas, http_api("GET", "/readyz")).status == 200
    lambdas.deploy(DATABASE_URL=database_url + " port=1")
    assert _ask(lambdas, http_api("GET", "/healthz")).status == 200
    assert _ask(lambdas, http_api("GET", "/readyz")).status == 503


def test_an_answer_is_text_and_not_base64_which_a_rest_api_would_pass_on(lambdas: Lambdas) -> None:
    for path in ("/healthz", "/nothing"):
        result = lambdas.warm("ingest").invoke(rest_api("GET", path), FakeContext.lasting(5))
        assert result["isBase64Encoded"] is False
        assert result["body"].startswith("{")
