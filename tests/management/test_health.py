"""Health and readiness."""

import pytest

from tests.management.conftest import Api


def test_a_running_process_is_healthy_and_one_with_a_database_is_ready(api: Api) -> None:
    assert api.get("/healthz").json() == {"status": "ok"}
    assert api.get("/readyz").json() == {"status": "ok"}


def test_openapi_is_served(api: Api) -> None:
    document = api.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert "/readyz" in document["paths"]


@pytest.mark.parametrize(
    "body",
    [
        b"{nope",
        b'{"name": NaN}',
        b'"\\ud83d"',
        b"[" * 300 + b"]" * 300,
        b"\xff",
        b'{"name": "x"} y',
    ],
)
def test_what_is_no_json_is_a_problem_that_says_so(api: Api, body: bytes) -> None:
    """WH-042, WH-043, WH-044 in a management call."""
    response = api.client.request(
        "POST",
        "/v1/api-keys",
        content=body,
        headers={"authorization": f"Bearer {api.key}", "content-type": "application/json"},
    )
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "body"
