"""From `sam build` to a delivered webhook, in the containers that `sam local` runs functions in."""

from collections.abc import Callable

import boto3
import httpx
import pytest
from botocore.config import Config

from shared.store.migrations import load
from tests.e2e.sam.sam import EVENTS, Sam
from tests.support.providers import GITHUB_SECRET, sign
from tests.support.receiver import Receiver

pytestmark = pytest.mark.engine

PROBLEM = "application/problem+json"
PAYLOAD = '{"order": 17,"total": 1.10, "note":"déjà vu"}'.encode()


def publish(api: httpx.Client, event_type: str) -> str:
    """Publish PAYLOAD; the event's id."""
    body = b'{"type": "%s", "payload": %s}' % (event_type.encode(), PAYLOAD)
    answer = api.post("/v1/events", content=body)
    assert answer.status_code == 202, answer.text
    assert answer.json()["deliveries"] == 1
    event_id: str = answer.json()["id"]
    return event_id


def endpoint(api: httpx.Client, url: str, event_type: str) -> str:
    """Create an endpoint; its signing secret."""
    answer = api.post("/v1/endpoints", json={"url": url, "event_types": [event_type]})
    assert answer.status_code == 201, answer.text
    secret: str = answer.json()["secret"]
    return secret


def test_the_template_is_valid(sam: Sam) -> None:
    assert "is a valid SAM Template" in sam.run("validate", "--lint")


def test_migrating_brings_an_empty_database_up_to_date_and_is_harmless_again(
    sam: Sam, migrated: list[str]
) -> None:
    assert migrated == [f"{each.version:04}_{each.name}" for each in load()]
    assert sam.invoke("MigrateFunction", "drain-once") == {"applied": []}


def test_a_published_event_is_delivered_signed_and_to_the_letter(
    sam: Sam, api: httpx.Client, receiver: Receiver, reachable: Callable[[Receiver], str]
) -> None:
    secret = endpoint(api, f"{reachable(receiver)}/hook", "order.paid")
    event_id = publish(api, "order.paid")

    summary = sam.invoke("DrainFunction", "drain-once")

    assert (summary["succeeded"], summary["retried"], summary["stopped"]) == (1, 0, "idle")
    [request] = receiver.received
    assert (request.webhook_id, request.body) == (event_id, PAYLOAD)
    request.verify(secret)
    [delivery] = api.get("/v1/deliveries", params={"event_type": "order.paid"}).json()["data"]
    assert delivery["status"] == "succeeded"


def test_what_another_system_sends_is_verified_and_passed_on(
    sam: Sam, api: httpx.Client, receiver: Receiver, reachable: Callable[[Receiver], str]
) -> None:
    source = {
        "provider": "github",
        "slug": "github",
        "secret": GITHUB_SECRET,
        "event_type_prefix": "github",
    }
    assert api.post("/v1/sources", json=source).status_code == 201
    secret = endpoint(api, reachable(receiver), "github.push")
    signed = sign("github", PAYLOAD)

    forged = api.post("/in/github", headers=signed.headers, content=PAYLOAD + b" ")
    accepted = api.post("/in/github", headers=signed.headers, content=signed.body)

    assert (forged.status_code, accepted.status_code) == (401, 200)
    assert sam.invoke("DrainFunction", "drain-once")["succeeded"] == 1
    [request] = receiver.received
    assert request.body == PAYLOAD
    request.verify(secret)


def test_the_drain_runs_by_boto3_as_it_does_on_aws(
    sam: Sam, api: httpx.Client, receiver: Receiver, reachable: Callable[[Receiver], str]
) -> None:
    secret = endpoint(api, reachable(receiver), "order.refunded")
    with sam.lambdas() as url:
        client = boto3.client(
            "lambda",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(read_timeout=60, retries={"max_attempts": 1}),
        )
        for count in (1, 2):
            event_id = publish(api, "order.refunded")
            answer = client.invoke(
                FunctionName="DrainFunction", Payload=(EVENTS / "drain-once.json").read_bytes()
            )
            answer["Payload"].close()
            assert answer["StatusCode"] == 200
            assert answer.get("FunctionError", "") == ""
            assert receiver.wait_for(count)[-1].webhook_id == event_id
        client.close()
    for request in receiver.received:
        request.verify(secret)


@pytest.mark.parametrize(
    ("event", "parts"),
    [
        ("schedule-health", {"health", "replays"}),
        ("schedule-maintain", {"health", "replays", "upkeep"}),
    ],
)
def test_maintenance_answers_what_it_did(
    sam: Sam,
    api: httpx.Client,  # noqa: ARG001  # wanted for the schema
    event: str,
    parts: set[str],
) -> None:
    assert set(sam.invoke("MaintainFunction", event)) == parts


def test_health_and_the_description_of_the_api_are_public(api: httpx.Client) -> None:
    public = httpx.Client(base_url=api.base_url, timeout=60, trust_env=False)
    with public:
        assert public.get("/healthz").json() == {"status": "ok"}
        assert public.get("/readyz").status_code == 200
        document = public.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert {"/v1/events", "/v1/endpoints", "/in/{slug}"} <= set(document["paths"])


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/events", b'{"type": "a"}', 422),
        ("POST", "/v1/events", b"{", 422),
        ("POST", "/v1/endpoints", b'{"url": "http://169.254.169.254/"}', 422),
        ("GET", "/v1/endpoints/0199c0de-0000-7000-8000-000000000000", b"", 404),
        ("DELETE", "/v1/events", b"", 405),
        ("GET", "/nothing/here", b"", 404),
    ],
)
def test_a_mistake_is_answered_with_a_problem_document(
    api: httpx.Client, method: str, path: str, body: bytes, status: int
) -> None:
    answer = api.request(method, path, content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), answer.text
    assert answer.json()["status"] == status


def test_nobody_gets_in_without_a_key(api: httpx.Client) -> None:
    for path in ("/v1/events", "/v1/endpoints"):
        answer = api.post(path, headers={"authorization": "Bearer lh_none"}, json={})
        assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM)
