"""Nothing a browser can be made to send changes anything, and nothing is kept in it that it would send along."""

import json
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tests.contract.estate import Estate, rows
from tests.contract.operations import Operation, operations
from tests.management.conftest import Api
from tests.support.world import World

ORIGIN = {"origin": "https://elsewhere.example", "sec-fetch-site": "cross-site"}


def as_form(document: Any) -> bytes:
    """JSON in the disguise of a form, as a page of another site can send it without being asked."""
    return urlencode({json.dumps(document): ""}).encode()


def send(api: Api, operation: Operation, estate: Estate, method: str) -> httpx.Response:
    headers = ORIGIN | {"leasehook-tenant": str(estate.tenant_id)}
    return api.call(method, operation.path.format(**estate.by_parameter), **headers)


def gets() -> list[Operation]:
    return [each for each in operations() if each.method == "GET"]


@pytest.fixture
def own_keys(operator: Api, alpha: Estate) -> dict[bool, Api]:
    """Who may ask: the tenant, or for what is about none, the operator."""
    return {True: Api(operator.client, alpha.key), False: operator}


def test_reading_changes_no_row(world: World, own_keys: dict[bool, Api], alpha: Estate) -> None:
    """WH-124."""
    before = rows(world)
    for operation in gets():
        api = own_keys[operation.is_about_a_tenant]
        answer = send(api, operation, alpha, "GET")
        assert answer.status_code == 200, (operation.name, answer.text)
        assert send(api, operation, alpha, "HEAD").status_code == 405, operation.name
    assert rows(world) == before


def test_what_changes_things_cannot_be_asked_with_get(
    world: World, own_keys: dict[bool, Api], alpha: Estate
) -> None:
    """WH-124."""
    read = {each.path for each in gets()}
    before = rows(world)
    for operation in operations():
        if operation.path not in read:
            for method in ("GET", "HEAD"):
                answer = send(own_keys[True], operation, alpha, method)
                # No event is called `batch`.
                expected = 422 if (operation.name, method) == ("publish_events", "GET") else 405
                assert answer.status_code == expected, (operation.name, answer.text)
    assert rows(world) == before


def test_no_answer_sets_a_cookie_or_lets_other_sites_in(
    own_keys: dict[bool, Api], alpha: Estate
) -> None:
    """WH-124. A browser sends no API key by itself, and no other site's script may add one."""
    for operation in operations():
        api = own_keys[operation.is_about_a_tenant]
        preflight = api.client.request(
            "OPTIONS",
            operation.path.format(**alpha.by_parameter),
            headers=ORIGIN
            | {
                "access-control-request-method": operation.method,
                "access-control-request-headers": "authorization",
            },
        )
        assert preflight.status_code == 405
        anonymous = api.client.request(
            operation.method, operation.path.format(**alpha.by_parameter), headers=ORIGIN
        )
        for answer in (preflight, anonymous, send(api, operation, alpha, "GET")):
            assert "set-cookie" not in answer.headers, operation.name
            assert not [name for name in answer.headers if name.startswith("access-control-")]


BODIES: dict[str, Any] = {
    "change_consumer": {"name": "changed"},
    "change_endpoint": {"description": "changed"},
    "change_event_type": {"description": "changed"},
    "change_source": {"description": "changed"},
    "create_api_key": {"name": "new", "scopes": ["read"]},
    "create_consumer": {"id": "new"},
    "create_endpoint": {"url": "http://127.0.0.1:9/"},
    "create_event_type": {"name": "new.type"},
    "create_operator_key": {"name": "new"},
    "create_source": {"provider": "github"},
    "create_tenant": {"name": "new"},
    "publish_event": {"type": "new.type", "payload": 1},
    "publish_events": {"events": [{"type": "new.type", "payload": 1}]},
    "recover_endpoint": {"since": "2026-01-01T00:00:00Z"},
    "rotate_secret": {"overlap_seconds": 0},
    "rotate_source_secret": {"overlap_seconds": 0},
    "start_replay": {},
}
"""Bodies that do something, by operation: a new one must be added here."""

SIMPLE = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
"""The content types that another site's page may send without asking first."""


def send_as(
    api: Api, operation: Operation, estate: Estate, content_type: str, body: bytes
) -> httpx.Response:
    return api.client.request(
        operation.method,
        operation.path.format(**estate.by_parameter),
        content=body,
        headers={
            "authorization": f"Bearer {api.key}",
            "leasehook-tenant": str(estate.tenant_id),
            "content-type": content_type,
        },
    )


@pytest.mark.parametrize("content_type", SIMPLE)
def test_json_in_disguise_is_refused_without_effect(
    world: World, operator: Api, alpha: Estate, content_type: str
) -> None:
    """WH-124. Publishing is for servers and takes a body's bytes, whatever they are called: `curl -d` calls them a form."""
    before = rows(world)
    for operation in [each for each in operations() if each.takes_json]:
        if "publish" in operation.description["tags"]:
            continue
        document = BODIES[operation.name]
        for body in (json.dumps(document).encode(), as_form(document)):
            answer = send_as(operator, operation, alpha, content_type, body)
            assert 400 <= answer.status_code < 500, (operation.name, answer.text)
    assert rows(world) == before


def test_the_same_bodies_as_json_are_accepted(operator: Api, alpha: Estate) -> None:
    """So that the ones in disguise are refused for their content type."""
    for operation in [each for each in operations() if each.takes_json]:
        body = json.dumps(BODIES[operation.name]).encode()
        # An operator's key publishes nothing.
        publishing = "publish" in operation.description["tags"]
        api = Api(operator.client, alpha.key) if publishing else operator
        answer = send_as(api, operation, alpha, "application/json", body)
        assert answer.status_code < 300, (operation.name, answer.text)
