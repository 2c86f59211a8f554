"""Health and readiness."""

from tests.management.conftest import Api


def test_a_running_process_is_healthy_and_one_with_a_database_is_ready(api: Api) -> None:
    assert api.get("/healthz").json() == {"status": "ok"}
    assert api.get("/readyz").json() == {"status": "ok"}


def test_openapi_is_served(api: Api) -> None:
    document = api.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert "/readyz" in document["paths"]
