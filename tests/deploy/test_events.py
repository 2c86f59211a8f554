"""The sample events in tests/events are what the functions understand."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from functions.ingest import create_app
from shared.config import Settings
from shared.http.gateway import LambdaHandler, lambda_handler
from shared.runtime import Runtime
from tests.support.world import World

EVENTS = Path(__file__).parent.parent / "events"
PLACEHOLDER = "lh_put_your_key_here"
PAYLOAD = '{"order":"ord_1042","total":1.10,"note":"déjà vu"}'.encode()


@pytest.fixture
def ingest(database_url: str, lambda_event_loop: None) -> Iterator[LambdaHandler]:  # noqa: ARG001  # wanted for its effect
    runtime = Runtime(Settings(database_url=database_url))
    yield lambda_handler(lambda: create_app(runtime))
    runtime.database.close()


def sample(name: str, key: str = PLACEHOLDER) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(
        (EVENTS / f"{name}.json").read_text().replace(PLACEHOLDER, key)
    )
    return event


@pytest.mark.parametrize(
    "name",
    [
        "http-api-publish",
        "http-api-publish-base64",
        "http-api-publish-named-stage",
        "rest-api-publish",
        "alb-publish",
    ],
)
def test_the_same_bytes_are_stored_whatever_carried_them(
    ingest: LambdaHandler, world: World, name: str
) -> None:
    """WH-020, WH-021, WH-022, WH-026."""
    answer = ingest(sample(name, world.key()), SimpleNamespace())
    assert answer["statusCode"] == 202
    event = world.one("select type, payload from leasehook.events")
    assert (event["type"], bytes(event["payload"])) == ("order.paid", PAYLOAD)


def test_the_batch_sample_publishes_two_events(ingest: LambdaHandler, world: World) -> None:
    answer = ingest(sample("http-api-publish-batch", world.key()), SimpleNamespace())
    assert answer["statusCode"] == 202
    assert world.one("select count(*) as count from leasehook.events")["count"] == 2


def test_the_samples_hold_no_key_that_works(ingest: LambdaHandler, world: World) -> None:
    world.key()
    answer = ingest(sample("http-api-publish"), SimpleNamespace())
    assert answer["statusCode"] == 401


def test_the_health_sample_is_answered(ingest: LambdaHandler) -> None:
    answer = ingest(sample("http-api-healthz"), SimpleNamespace())
    assert (answer["statusCode"], json.loads(answer["body"])) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    "name", ["schedule-drain", "drain-once", "schedule-maintain", "schedule-health"]
)
def test_a_schedule_pointed_at_ingest_is_ignored(ingest: LambdaHandler, name: str) -> None:
    """WH-027."""
    assert ingest(sample(name), SimpleNamespace()) == {"ignored": "not an HTTP request"}
