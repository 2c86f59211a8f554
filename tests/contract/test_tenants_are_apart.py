"""Every route with another tenant's ids: generated from the OpenAPI document, so that no new route is forgotten."""

from itertools import product
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.contract.estate import Estate, rows
from tests.contract.operations import Operation, operations
from tests.management.conftest import Api, Client
from tests.support.world import World

BODIES: dict[str, Any] = {
    "change_consumer": {"name": "taken over"},
    "change_endpoint": {"description": "taken over"},
    "change_event_type": {"description": "taken over"},
    "change_source": {"description": "taken over"},
    "recover_endpoint": {"since": "2026-01-01T00:00:00Z"},
    "rotate_secret": {"overlap_seconds": 0},
    "rotate_source_secret": {"overlap_seconds": 0},
}
"""Bodies that are all right, for operations on one thing: what is refused is the id."""

OWNED_IN_QUERY = {"consumer", "endpoint_id", "event_id", "event_type", "idempotency_key", "type"}
NOBODYS_IN_QUERY = {
    "archived",
    "created_after",
    "created_before",
    "cursor",
    "days",
    "disabled",
    "error_kind",
    "limit",
    "status",
    "verdict",
    "window",
}


def with_ids() -> list[Operation]:
    return [each for each in operations() if each.parameters("path")]


def refusal(operation: Operation) -> int:
    """How a tenant's key is refused when it names what is not its own."""
    if operation.name == "receive_webhook":
        return (
            401  # the address is public, and a source is told apart from none by signatures alone
        )
    return 404 if operation.is_about_a_tenant else 403


def ask(client: Client, operation: Operation, ids: dict[str, str], key: str) -> httpx.Response:
    body = {"json": BODIES[operation.name]} if operation.takes_json else {}
    headers = {"authorization": f"Bearer {key}", "idempotency-key": "once"}
    path = operation.path.format(**ids)
    return client.request(operation.method, path, headers=headers, **body)


def others_ids(operation: Operation, own: Estate, foreign: Estate) -> list[dict[str, str]]:
    """The operation's ids, each of them the caller's own or not, but never all its own."""
    names = operation.parameters("path")
    choices = product(*[[foreign.by_parameter[name], own.by_parameter[name]] for name in names])
    return [dict(zip(names, choice, strict=True)) for choice in list(choices)[:-1]]


def unknown(ids: dict[str, str]) -> dict[str, str]:
    """Ids of the same form that are nobody's."""
    return {
        name: "nobodys" if name in ("consumer", "name", "slug") else str(uuid4()) for name in ids
    }


def said(answer: httpx.Response, ids: dict[str, str]) -> str:
    """What a refusal says, whatever the ids were."""
    text = f"{answer.status_code} {answer.text}"
    for value in ids.values():
        text = text.replace(value, "…")
    return text


def test_another_tenants_ids_are_answered_like_unknown_ones_and_change_nothing(
    world: World, client: Client, alpha: Estate, beta: Estate
) -> None:
    """WH-120."""
    before = rows(world)
    for operation in with_ids():
        for ids in others_ids(operation, beta, alpha):
            answer = ask(client, operation, ids, beta.key)
            nobodys = unknown(ids)
            assert answer.status_code == refusal(operation), (operation.name, answer.text)
            unheard = ask(client, operation, nobodys, beta.key)
            assert said(answer, ids) == said(unheard, nobodys), operation.name
    after = rows(world)
    after["source_refusals"] = before["source_refusals"]  # refusals at public addresses are counted
    assert after == before


def test_an_operator_who_names_a_tenant_sees_no_other(
    world: World, operator: Api, alpha: Estate, beta: Estate
) -> None:
    """WH-120."""
    before = rows(world)
    for operation in [each for each in with_ids() if each.is_about_a_tenant]:
        for ids in others_ids(operation, beta, alpha):
            body = BODIES[operation.name] if operation.takes_json else None
            answer = operator.call(
                operation.method,
                operation.path.format(**ids),
                body,
                **{"leasehook-tenant": str(beta.tenant_id)},
            )
            assert answer.status_code == 404, (operation.name, answer.text)
    assert rows(world) == before


def test_the_tenant_header_opens_no_other_tenant(
    world: World, client: Client, alpha: Estate, beta: Estate
) -> None:
    """WH-120. Not even with ids of the caller's own."""
    before = rows(world)
    for operation in [each for each in operations() if each.is_about_a_tenant]:
        for tenant_id in (alpha.tenant_id, uuid4()):
            answer = client.request(
                operation.method,
                operation.path.format(**beta.by_parameter),
                headers={
                    "authorization": f"Bearer {beta.key}",
                    "leasehook-tenant": str(tenant_id),
                },
            )
            # Bodies are judged together with the key; either refuses.
            expected = {404, 422} if operation.takes_json else {404}
            assert answer.status_code in expected, (operation.name, answer.text)
            assert not shows(answer, alpha)
    assert rows(world) == before


def test_filters_that_name_anothers_find_nothing(
    world: World, client: Client, alpha: Estate, beta: Estate
) -> None:
    """WH-120."""
    before = rows(world)
    for operation in [each for each in operations() if each.method == "GET"]:
        names = set(operation.parameters("query"))
        assert names <= OWNED_IN_QUERY | NOBODYS_IN_QUERY, f"{operation.name}: say whose these are"
        for name in sorted(names & OWNED_IN_QUERY):
            answer = client.request(
                "GET",
                operation.path.format(**beta.by_parameter),
                params={name: alpha.by_parameter[name]},
                headers={"authorization": f"Bearer {beta.key}"},
            )
            assert answer.status_code == 200, (operation.name, answer.text)
            found = answer.json()
            assert found.get("data", found.get("webhooks")) in ([], {}), (operation.name, name)
    assert rows(world) == before


def test_lists_show_nothing_of_others_from_any_place(
    client: Client, operator: Api, alpha: Estate, beta: Estate
) -> None:
    """WH-120. Cursors are places, not permissions: another tenant's leads into the caller's own list."""
    as_beta = {"leasehook-tenant": str(beta.tenant_id)}
    for operation in [each for each in operations() if each.method == "GET"]:
        if not operation.is_about_a_tenant:
            continue
        path = operation.path.format(**beta.by_parameter)
        for answer in (Api(client, beta.key).get(path), operator.get(path, **as_beta)):
            assert answer.status_code == 200, (operation.name, answer.text)
            assert not shows(answer, alpha), operation.name
        if "cursor" in operation.parameters("query"):
            foreign = Api(client, alpha.key).get(
                f"{operation.path.format(**alpha.by_parameter)}?limit=1"
            )
            cursor = foreign.json()["next_cursor"]
            if cursor:
                answer = Api(client, beta.key).get(f"{path}?cursor={cursor}")
                assert answer.status_code == 200, (operation.name, answer.text)
                assert not shows(answer, alpha), operation.name


BODIES_THAT_NAME_ANOTHERS = {
    "replay of an endpoint": ("/v1/replays", {"filter": {"endpoint_id": "{endpoint_id}"}}, 404),
    "replay of a consumer": ("/v1/replays", {"filter": {"consumer": "{consumer}"}}, 202),
    "replay of a type": ("/v1/replays", {"filter": {"event_type": "{event_type}"}}, 202),
    "count for an endpoint": (
        "/v1/replays",
        {"dry_run": True, "filter": {"endpoint_id": "{endpoint_id}"}},
        404,
    ),
    "endpoint of a consumer": (
        "/v1/endpoints",
        {"url": "http://127.0.0.1:9/", "consumer": "{consumer}"},
        201,
    ),
    "consumer of that id": ("/v1/consumers", {"id": "{consumer}"}, 201),
    "type of that name": ("/v1/event-types", {"name": "{event_type}"}, 201),
    "source at that address": ("/v1/sources", {"provider": "github", "slug": "{slug}"}, 409),
    "event with that key": (
        "/v1/events",
        {
            "type": "{event_type}",
            "payload": 1,
            "consumer": "{consumer}",
            "idempotency_key": "{idempotency_key}",
        },
        202,
    ),
}


@pytest.mark.parametrize("case", BODIES_THAT_NAME_ANOTHERS)
def test_bodies_that_name_anothers_reach_the_callers_own_things_only(
    world: World, client: Client, alpha: Estate, beta: Estate, case: str
) -> None:
    """WH-120, WH-121. Names that customers choose are each tenant's own; addresses of sources are everybody's."""
    path, template, status = BODIES_THAT_NAME_ANOTHERS[case]
    before = rows(world, alpha.tenant_id)
    answer = Api(client, beta.key).post(path, filled(template, alpha))
    assert answer.status_code == status, answer.text
    assert answer.json().get("matched_count", 0) == 0
    assert answer.json().get("deliveries", 0) == 0
    assert "idempotent-replayed" not in answer.headers
    assert rows(world, alpha.tenant_id) == before


def filled(template: Any, estate: Estate) -> Any:
    """A template's texts with an estate's ids and names in their places."""
    match template:
        case dict():
            return {name: filled(value, estate) for name, value in template.items()}
        case str():
            return template.format(**estate.by_parameter)
        case _:
            return template


def shows(answer: httpx.Response, estate: Estate) -> list[str]:
    """What an answer shows of an estate."""
    return [mark for mark in estate.marks if mark in answer.text]


def test_the_estates_leave_no_table_of_tenants_empty(
    world: World, alpha: Estate, beta: Estate
) -> None:
    """Otherwise nothing would be compared there."""
    for tenant_id in (alpha.tenant_id, beta.tenant_id):
        empty = {table for table, found in rows(world, tenant_id).items() if not found}
        assert empty == {"maintenance", "migrations", "request_limits", "tenants"}
