"""The request limit of an API key: exact over all functions, told in every answer."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from functions.api import create_app
from functions.ingest import create_app as create_ingest_app
from shared.crypto import hash_api_key, new_api_key
from shared.errors import Unauthorized
from shared.runtime import Runtime
from shared.store.request_limits import Allowance, admit, allowance
from tests.management.conftest import Api, Client
from tests.support.world import World

LIMIT = 5


@pytest.fixture
def limited(world: World, database_url: str) -> Iterator[Api]:
    """The API with a small limit."""
    runtime = Runtime.read(
        world.environment(database_url, LEASEHOOK_API_REQUESTS_PER_MINUTE=str(LIMIT))
    )
    client = Client(create_app(runtime))
    yield Api(client, world.key())
    client.close()
    runtime.database.close()


def told(answer: object) -> dict[str, int]:
    """The limit as an answer tells it."""
    headers = answer.headers  # type: ignore[attr-defined]
    return {
        name: int(headers[f"ratelimit-{name}"])
        for name in ("limit", "remaining", "reset")
        if f"ratelimit-{name}" in headers
    }


def pass_time(world: World, seconds: float) -> None:
    """Let time pass for the limits, without waiting."""
    world.pass_time(seconds, {"request_limits": ["used_until"]})


def test_a_minutes_requests_may_come_at_once_and_the_next_one_is_told_when(
    limited: Api, world: World
) -> None:
    answers = [limited.get("/v1/event-types") for _ in range(LIMIT)]
    assert [answer.status_code for answer in answers] == [200] * LIMIT
    assert [told(answer)["remaining"] for answer in answers] == [4, 3, 2, 1, 0]
    assert [told(answer)["reset"] for answer in answers] == [12, 24, 36, 48, 60]
    refused = limited.get("/v1/event-types")
    assert refused.status_code == 429
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["type"] == "urn:leasehook:problem:too-many-requests"
    assert 1 <= int(refused.headers["retry-after"]) <= 12
    assert told(refused) == {"limit": LIMIT, "remaining": 0, "reset": 60}
    pass_time(world, int(refused.headers["retry-after"]))
    assert limited.get("/v1/event-types").status_code == 200
    assert limited.get("/v1/event-types").status_code == 429


def test_a_refused_request_costs_nothing_and_changes_nothing(limited: Api, world: World) -> None:
    for _ in range(LIMIT):
        limited.get("/v1/event-types")
    for _ in range(20):
        assert limited.post("/v1/event-types", {"name": "a"}).status_code == 429
    pass_time(world, 13)
    assert limited.get("/v1/event-types").json()["data"] == []


def test_an_unused_limit_does_not_pile_up(limited: Api, world: World) -> None:
    limited.get("/v1/event-types")
    pass_time(world, 3600)
    statuses = [limited.get("/v1/event-types").status_code for _ in range(LIMIT + 1)]
    assert statuses == [200] * LIMIT + [429]


def test_every_answer_to_a_known_key_tells_the_limit(limited: Api) -> None:
    answers = [
        limited.get("/v1/event-types/nothing"),
        limited.get("/v1/event-types/a..b"),
        limited.post("/v1/event-types", {"name": "a"}),
        limited.post("/v1/event-types", {"name": "a"}),
    ]
    assert [answer.status_code for answer in answers] == [404, 422, 201, 409]
    assert [told(answer)["remaining"] for answer in answers] == [4, 3, 2, 1]
    assert told(limited.get("/healthz")) == {}
    unknown = Api(limited.client, "lh_unknown").get("/v1/event-types")
    assert (unknown.status_code, told(unknown)) == (401, {})


def test_each_key_has_a_limit_of_its_own(limited: Api, world: World) -> None:
    second = Api(limited.client, world.key())
    for _ in range(LIMIT + 1):
        limited.get("/v1/event-types")
    assert limited.get("/v1/event-types").status_code == 429
    assert second.get("/v1/event-types").status_code == 200


def test_a_revoked_key_is_told_so_and_not_that_it_is_too_fast(limited: Api, world: World) -> None:
    for _ in range(LIMIT):
        limited.get("/v1/event-types")
    world.sql("update leasehook.api_keys set revoked_at = now()")
    assert limited.get("/v1/event-types").status_code == 401


def test_a_key_without_the_scope_is_counted_too(limited: Api, world: World) -> None:
    publisher = Api(limited.client, world.key(["publish"]))
    statuses = [publisher.get("/v1/event-types").status_code for _ in range(LIMIT + 1)]
    assert statuses == [403] * LIMIT + [429]


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_many_functions_at_once_admit_exactly_the_limit(world: World, limit: int) -> None:
    key_hash = hash_api_key(world.key())
    start = threading.Barrier(8)

    def ask(_: int) -> list[Allowance]:
        start.wait()
        return [admit(world.database, key_hash, limit)[1] for _ in range(12)]

    with ThreadPoolExecutor(8) as pool:
        answers = [answer for answers in pool.map(ask, range(8)) for answer in answers]
    counts = Counter(answer.retry_after_seconds is None for answer in answers)
    # What comes back while the test runs: one every 60 / limit seconds.
    assert limit <= counts[True] <= limit + 2
    refused = [answer for answer in answers if answer.retry_after_seconds is not None]
    assert all(0 < (answer.retry_after_seconds or 0) <= 60 for answer in refused)


def test_the_key_and_its_limit_are_one_round_trip(world: World, tmp_path: Path) -> None:
    """Counted on the wire: the client asks the server to answer (Sync) once."""
    key_hash = hash_api_key(world.key())
    with (tmp_path / "wire").open("w+") as wire:
        with world.database.connection() as connection:
            connection.pgconn.trace(wire.fileno())
        row, _ = admit(world.database, key_hash, LIMIT)
        with world.database.connection() as connection:
            connection.pgconn.untrace()
        wire.seek(0)
        sent = [line.split("\t")[3] for line in wire.read().splitlines() if "\tF\t" in line]
    assert sent.count("Sync") == 1
    assert "Query" not in sent
    assert row["tenant_id"] == world.tenant_id
    with pytest.raises(Unauthorized):
        admit(world.database, b"\0" * 32, LIMIT)


def test_an_operators_key_has_a_limit_too(limited: Api, world: World) -> None:
    key = new_api_key()
    world.sql(
        "insert into leasehook.api_keys (name, key_hash, key_prefix, scopes) values ('op', %s, 'lh_', '{operate}')",
        key.key_hash,
    )
    operator = Api(limited.client, key.text)
    header = {"leasehook-tenant": str(world.tenant_id)}
    statuses = [operator.get("/v1/event-types", **header).status_code for _ in range(LIMIT + 1)]
    assert statuses == [200] * LIMIT + [429]


def test_zero_is_no_limit(world: World, database_url: str) -> None:
    runtime = Runtime.read(world.environment(database_url, LEASEHOOK_API_REQUESTS_PER_MINUTE="0"))
    client = Client(create_app(runtime))
    api = Api(client, world.key())
    answers = [api.get("/v1/event-types") for _ in range(20)]
    assert {answer.status_code for answer in answers} == {200}
    assert told(answers[0]) == {}
    client.close()
    runtime.database.close()


def test_publishing_is_not_limited(world: World, database_url: str) -> None:
    runtime = Runtime.read(world.environment(database_url, LEASEHOOK_API_REQUESTS_PER_MINUTE="1"))
    client = Client(create_ingest_app(runtime))
    api = Api(client, world.key())
    event = {"type": "a", "payload": 1}
    assert [api.post("/v1/events", event).status_code for _ in range(5)] == [202] * 5
    client.close()
    runtime.database.close()


def test_the_openapi_document_tells_the_limit_where_there_is_one(limited: Api) -> None:
    paths = limited.get("/openapi.json").json()["paths"]
    operation = paths["/v1/event-types"]["get"]
    assert "application/problem+json" in operation["responses"]["429"]["content"]
    assert "Retry-After" in operation["responses"]["429"]["headers"]
    for status in ("200", "403", "429"):
        assert "RateLimit-Remaining" in operation["responses"][status]["headers"]
    assert "429" not in paths["/healthz"]["get"]["responses"]
    assert limited.get("/openapi.json").json()["paths"] == paths


@pytest.mark.parametrize(
    ("used_seconds", "admitted", "expected"),
    [
        (0.0, True, Allowance(60, 60, 0, None)),
        (1.0, True, Allowance(60, 59, 1, None)),
        (1.5, True, Allowance(60, 58, 2, None)),
        (60.0, True, Allowance(60, 0, 60, None)),
        (59.5, False, Allowance(60, 0, 60, 1)),
        (60.0, False, Allowance(60, 0, 60, 1)),
    ],
)
def test_what_is_left_never_promises_too_much(
    used_seconds: float, admitted: bool, expected: Allowance
) -> None:
    assert allowance(60, used_seconds, admitted=admitted) == expected


def test_limits_are_forgotten_with_their_key(limited: Api, world: World) -> None:
    limited.get("/v1/event-types")
    key_id: UUID = world.one("select key_id from leasehook.request_limits")["key_id"]
    world.sql("delete from leasehook.api_keys where id = %s", key_id)
    assert world.sql("select * from leasehook.request_limits") == []
