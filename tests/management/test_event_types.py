"""Event types: registered, described, versioned, archived; and shown to customers as OpenAPI."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.openapi.models import OpenAPI
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from shared import event_types
from shared.errors import Conflict
from tests.management.conftest import Api
from tests.support.world import World

PATH = "/v1/event-types"
CATALOGUE = "/v1/openapi/event-types.json"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"price": {"$ref": "#/$defs/price"}},
    "required": ["price"],
    "$defs": {"price": {"type": "number", "minimum": 0}},
}
ORDER: dict[str, Any] = {
    "name": "order.paid",
    "description": "An order was paid.",
    "example": {"price": 9.5},
    "schema": SCHEMA,
}


def faults(api: Api, method: str, path: str, body: Any) -> dict[str, str]:
    """The fields that a request is refused for, with their rules."""
    answer = api.call(method, path, body)
    assert answer.status_code == 422, answer.text
    return {error["field"]: error["rule"] for error in answer.json()["errors"]}


def test_a_type_is_shown_as_it_was_registered(api: Api) -> None:
    made = api.post(PATH, ORDER)
    assert made.status_code == 201
    shown = api.get(f"{PATH}/order.paid").json()
    assert shown == made.json()
    assert {name: shown[name] for name in ORDER} == ORDER
    assert (shown["version"], shown["archived_at"]) == (1, None)
    bare = api.post(PATH, {"name": "user"}).json()
    assert (bare["description"], bare["example"], bare["schema"]) == (None, None, None)


def test_a_type_is_registered_once(api: Api) -> None:
    assert api.post(PATH, ORDER).status_code == 201
    again = api.post(PATH, {"name": "order.paid"})
    assert again.status_code == 409
    assert "PATCH" in again.json()["detail"]
    assert api.get(f"{PATH}/order.paid").json()["schema"] == SCHEMA


def test_one_of_many_that_register_a_type_at_once_wins(world: World) -> None:
    def register(number: int) -> str:
        fields = {"description": str(number)}
        try:
            event_types.create(world.database, world.tenant_id, "a", fields)
        except Conflict:
            return "conflict"
        return "made"

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(register, range(6))) == ["conflict"] * 5 + ["made"]


@pytest.mark.parametrize("name", ["", "a..b", ".a", "a.", "a b", "ä", "*", "a.*", "a\n", "a" * 129])
def test_a_name_is_a_type_that_can_be_published(api: Api, name: str) -> None:
    assert list(faults(api, "POST", PATH, {"name": name})) == ["name"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schema": {"type": "strin"}}, "schema.type"),
        (
            {"schema": {"properties": {"a": {"$ref": "https://example.com/"}}}},
            "schema.properties.a.$ref",
        ),
        ({"schema": {"title": "x" * 65_536}}, "schema"),
        ({"schema": []}, "schema"),
        ({"schema": True}, "schema"),
        ({"example": "x" * 65_536}, "example"),
        ({"schema": SCHEMA, "example": {"price": -1}}, "example.price"),
        ({"schema": SCHEMA, "example": {}}, "example.price"),
        ({"description": "a\0b"}, "description"),
        ({"description": "x" * 5001}, "description"),
        ({"version": 7}, "version"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_breaks_a_rule_is_refused_by_its_field_on_creation_and_change(
    api: Api, world: World, change: dict[str, Any], field: str
) -> None:
    assert list(faults(api, "POST", PATH, {"name": "a", **change})) == [field]
    api.post(PATH, {"name": "b", "example": 1})
    before = api.get(f"{PATH}/b").json()
    assert list(faults(api, "PATCH", f"{PATH}/b", change)) == [field]
    assert api.get(f"{PATH}/b").json() == before
    assert world.one("select count(*) as n from leasehook.event_types")["n"] == 1


def test_json_that_is_deeper_than_any_parser_likes_is_refused(api: Api) -> None:
    nested: Any = {}
    for _ in range(190):
        nested = {"not": nested}
    assert "schema" in next(iter(faults(api, "POST", PATH, {"name": "a", "schema": nested})))
    nested = {"const": 1}
    for _ in range(150):
        nested = {"const": nested}
    assert api.post(PATH, {"name": "a", "schema": nested}).status_code == 201
    assert api.get(f"{PATH}/a").json()["schema"] == nested


def test_json_comes_back_with_its_numbers_and_texts(api: Api) -> None:
    example = {"big": 2**80, "exact": 0.1, "text": 'é\u2028"\\\0', "empty": {}, "null": [None]}
    api.post(PATH, {"name": "a", "example": example})
    assert api.get(f"{PATH}/a").json()["example"] == example


def test_a_change_leaves_what_it_does_not_name_and_raises_the_version(api: Api) -> None:
    api.post(PATH, ORDER)
    path = f"{PATH}/order.paid"
    changed = api.patch(path, {"description": "Paid."}).json()
    assert (changed["description"], changed["schema"], changed["version"]) == ("Paid.", SCHEMA, 2)
    changed = api.patch(path, {"schema": None, "example": None}).json()
    assert (changed["description"], changed["schema"], changed["example"]) == ("Paid.", None, None)
    assert changed["version"] == 3
    assert changed["updated_at"] > changed["created_at"]
    assert api.patch(path, {}).json() == changed
    assert api.get(path).json() == changed


def test_the_example_must_fit_the_schema_whichever_of_them_changes(api: Api) -> None:
    api.post(PATH, ORDER)
    path = f"{PATH}/order.paid"
    assert list(faults(api, "PATCH", path, {"schema": {"type": "array"}})) == ["example"]
    assert list(faults(api, "PATCH", path, {"example": {"price": "9"}})) == ["example.price"]
    both = {"schema": {"type": "array"}, "example": []}
    assert api.patch(path, both).json()["version"] == 2


def test_changes_at_the_same_moment_all_count(api: Api, world: World) -> None:
    api.post(PATH, ORDER)

    def change(number: int) -> None:
        name, value = [("description", str(number)), ("example", {"price": number})][number % 2]
        event_types.change(world.database, world.tenant_id, "order.paid", {name: value})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(20)))
    shown = api.get(f"{PATH}/order.paid").json()
    assert shown["version"] == 21
    assert int(shown["description"]) % 2 == 0
    assert shown["example"]["price"] % 2 == 1


def test_archiving_and_restoring_raise_the_version_once_each(api: Api) -> None:
    api.post(PATH, ORDER)
    archived = api.post(f"{PATH}/order.paid/archive").json()
    assert archived["archived_at"] is not None
    assert api.post(f"{PATH}/order.paid/archive").json() == archived
    restored = api.post(f"{PATH}/order.paid/restore").json()
    assert (restored["archived_at"], restored["version"]) == (None, 3)
    assert api.post(f"{PATH}/order.paid/restore").json() == restored


def test_a_list_is_in_the_order_of_names_and_leaves_schemas_out(api: Api) -> None:
    names = ["b", "a.b", "a", "c-1", "c_1", "B", "z" * 128, "a.a"]
    for name in names:
        api.post(PATH, {"name": name, "schema": SCHEMA if name == "a" else None})
    whole = [row for rows in api.pages(PATH, 200) for row in rows]
    assert sorted(row["name"] for row in whole) == sorted(names)
    for limit in (1, 3):
        pages = api.pages(PATH, limit)
        assert all(len(rows) <= limit for rows in pages)
        assert [row for rows in pages for row in rows] == whole
    assert [row["name"] for row in whole if row["has_schema"]] == ["a"]
    assert "schema" not in whole[0]
    assert "example" not in whole[0]


def test_a_list_can_show_what_is_archived_or_what_is_not(api: Api) -> None:
    for name in ("a", "b", "c"):
        api.post(PATH, {"name": name})
    api.post(f"{PATH}/b/archive")
    for filter_, names in (("", "abc"), ("?archived=true", "b"), ("?archived=false", "ac")):
        rows = [row["name"] for page in api.pages(PATH + filter_, 1) for row in page]
        assert rows == list(names)


@pytest.mark.parametrize("cursor", ["?", "YQ==", "AA", "gICA", "é", "YR"])
def test_a_cursor_that_is_none_of_ours_is_refused(api: Api, cursor: str) -> None:
    answer = api.get(f"{PATH}?cursor={cursor}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "cursor"


def test_a_tenant_registers_a_bounded_number_of_types(api: Api, other: Api, world: World) -> None:
    world.sql(
        "insert into leasehook.event_types (tenant_id, name) select %s, 't' || n from generate_series(1, %s) as n",
        world.tenant_id,
        event_types.MAX_EVENT_TYPES,
    )
    full = api.post(PATH, {"name": "one-more"})
    assert full.status_code == 409
    assert "2000" in full.json()["detail"]
    assert "already" in api.post(PATH, {"name": "t1"}).json()["detail"]
    assert other.post(PATH, {"name": "one-more"}).status_code == 201


def test_another_tenants_types_are_not_there(api: Api, other: Api, world: World) -> None:
    """WH-120."""
    api.post(PATH, ORDER)
    before = world.sql("select * from leasehook.event_types")
    path = f"{PATH}/order.paid"
    for method, where, body in (
        ("GET", path, None),
        ("PATCH", path, {"schema": None}),
        ("POST", f"{path}/archive", None),
        ("POST", f"{path}/restore", None),
    ):
        theirs = other.call(method, where, body)
        unknown = other.call(method, where.replace("order.paid", "nothing"), body)
        assert theirs.status_code == unknown.status_code == 404
        assert theirs.json()["detail"].replace("order.paid", "nothing") == unknown.json()["detail"]
    assert other.get(PATH).json()["data"] == []
    assert other.get(CATALOGUE).json()["webhooks"] == {}
    assert world.sql("select * from leasehook.event_types") == before
    assert other.post(PATH, {"name": "order.paid"}).status_code == 201


def test_reading_needs_one_scope_and_changing_another(api: Api, world: World) -> None:
    api.post(PATH, ORDER)
    reader = Api(api.client, world.key(["read"]))
    publisher = Api(api.client, world.key(["publish"]))
    for path in (PATH, f"{PATH}/order.paid", CATALOGUE):
        assert reader.get(path).status_code == 200
        assert publisher.get(path).status_code == 403
    assert reader.post(PATH, {"name": "a"}).status_code == 403
    assert reader.patch(f"{PATH}/order.paid", {}).status_code == 403
    assert reader.post(f"{PATH}/order.paid/archive").status_code == 403


@pytest.mark.parametrize("name", ["%00", "a%20b", "a..b", "%ff"])
def test_a_name_in_a_path_that_can_be_no_type_is_refused(api: Api, name: str) -> None:
    assert api.get(f"{PATH}/{name}").status_code == 422


def test_the_types_are_shown_as_the_webhooks_of_an_openapi_document(api: Api) -> None:
    api.post(PATH, ORDER)
    api.post(PATH, {"name": "order.sent"})
    api.post(PATH, {"name": "order", "schema": {"$id": "urn:x", "type": "null"}})
    api.post(PATH, {"name": "gone", "schema": SCHEMA})
    api.post(f"{PATH}/gone/archive")
    document = api.get(CATALOGUE).json()
    OpenAPI.model_validate(document)
    assert list(document["webhooks"]) == ["order", "order.paid", "order.sent"]
    paid = document["webhooks"]["order.paid"]["post"]
    assert paid["description"] == "An order was paid."
    content = paid["requestBody"]["content"]["application/json"]
    assert content["example"] == {"price": 9.5}
    validator = Draft202012Validator({**content["schema"], "components": document["components"]})
    assert validator.is_valid({"price": 1})
    assert not validator.is_valid({"price": -1})
    assert "$id" not in json.dumps(document)
    some = api.get(f"{CATALOGUE}?event_type=order.*").json()
    assert list(some["webhooks"]) == ["order.paid", "order.sent"]
    assert api.get(f"{CATALOGUE}?event_type=order").json()["webhooks"].keys() == {"order"}
    assert api.get(f"{CATALOGUE}?event_type=nothing").json()["webhooks"] == {}
    assert api.get(f"{CATALOGUE}?event_type=a b").status_code == 422


def test_a_document_that_would_be_too_large_says_how_to_get_a_part(api: Api, world: World) -> None:
    world.sql(
        "insert into leasehook.event_types (tenant_id, name, example) "
        "select %s, 'big.t' || n, to_json(repeat('x', 60000)) from generate_series(1, 70) as n",
        world.tenant_id,
    )
    answer = api.get(CATALOGUE)
    assert answer.status_code == 409
    assert "event_type=" in answer.json()["detail"]
    assert len(api.get(f"{CATALOGUE}?event_type=big.t7").json()["webhooks"]) == 1
    assert len(api.get(f"{PATH}?limit=200").content) < 100_000
