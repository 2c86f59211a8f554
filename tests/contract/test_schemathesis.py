"""The API against its own OpenAPI document: generated requests, good and bad, over a real connection."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, settings
from schemathesis import CheckFunction
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    positive_data_acceptance,
    unsupported_method,
)

from functions.api import create_app
from shared.keys import create_operator_key
from shared.runtime import Runtime
from shared.store.connection import Database
from tests.conftest import temporary_database
from tests.contract.estate import Estate, settle_down
from tests.contract.operations import document
from tests.management.conftest import Client
from tests.support.world import World

HAVE_RULES_BEYOND_SCHEMAS = {
    # instants up to a year ahead
    "publish_event",
    "publish_events",
    # URLs, names of headers, secrets
    "create_endpoint",
    "change_endpoint",
    "rotate_secret",
    # what the provider signs, and secrets
    "create_source",
    "change_source",
    "rotate_source_secret",
    # schemas, and examples that fit them
    "create_event_type",
    "change_event_type",
}
UNDER_THE_PATH_OF_ANOTHER = {
    "publish_events",  # /v1/events/{event_id} has other methods, and no event is called `batch`
}

Case = schemathesis.Case[Any]
# Every request has a key, so that it gets beyond 401; without one, `ignored_auth` asks.
CONFIG = schemathesis.Config.from_dict({"generation": {"with-security-parameters": False}})
SCHEMA = schemathesis.openapi.from_dict(document(), config=CONFIG)


@dataclass(frozen=True)
class Server:
    """The running application."""

    url: str
    estate: Estate
    doomed: Estate
    operator_key: str

    def estate_for(self, method: str) -> Estate:
        """What is deleted is another tenant's, so that the other operations still find what they ask for."""
        return self.doomed if method == "DELETE" else self.estate


@pytest.fixture(scope="module")
def server(server_url: str, template: str) -> Iterator[Server]:
    """The application over HTTP; its tenant has one of everything."""
    for url in temporary_database(server_url, template):
        database = Database(url)
        world = World(database)
        environment = world.environment(url, LEASEHOOK_API_REQUESTS_PER_MINUTE="0")
        runtime = Runtime.read(environment)
        app = create_app(runtime)
        client = Client(app)
        estate, doomed = [settle_down(world, client, name) for name in ("alpha", "beta")]
        client.close()
        listener = socket.create_server(("127.0.0.1", 0))
        serving = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=serving.run, kwargs={"sockets": [listener]})
        thread.start()
        yield Server(
            f"http://127.0.0.1:{listener.getsockname()[1]}",
            estate,
            doomed,
            create_operator_key(database, "operator")["key"],
        )
        serving.should_exit = True
        thread.join()
        listener.close()
        runtime.database.close()
        database.close()


def is_uuid(text: object) -> bool:
    try:
        UUID(str(text))
    except ValueError:
        return False
    return True


def aim(case: Case, estate: Estate) -> None:
    """Half of the ids that are well-formed become those of things that exist: random ones are nobody's."""
    known = estate.by_parameter
    for name, value in case.path_parameters.items():
        if is_uuid(value) and UUID(value).int % 2:
            case.path_parameters[name] = known[name]
    tenant = case.headers.get("leasehook-tenant")
    if tenant is None or is_uuid(tenant):
        case.headers["leasehook-tenant"] = known["tenant_id"]
    if case.meta is not None and case.meta.generation.mode.is_positive:
        # Cursors are opaque: no schema says which ones there are.
        case.query.pop("cursor", None)


def left_out(case: Case) -> list[CheckFunction]:
    """Checks that would hold against an operation what it cannot help."""
    name = case.operation.definition.raw["operationId"]
    checks: list[CheckFunction] = []
    if name in HAVE_RULES_BEYOND_SCHEMAS:
        checks.append(positive_data_acceptance)
    if name in UNDER_THE_PATH_OF_ANOTHER:
        checks += [unsupported_method, allow_header_conformance]
    return checks


def ask(case: Case, url: str, estate: Estate, key: str) -> None:
    """Send a request and check the answer, in every way that schemathesis has."""
    aim(case, estate)
    headers = {"Authorization": f"Bearer {key}"}
    case.call_and_validate(base_url=url, headers=headers, excluded_checks=left_out(case))


_BOUNDED = settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@SCHEMA.parametrize()
@_BOUNDED
def test_what_a_tenant_is_answered_is_in_the_document(case: Case, server: Server) -> None:
    estate = server.estate_for(case.method)
    ask(case, server.url, estate, estate.key)


@SCHEMA.parametrize()
@_BOUNDED
def test_what_an_operator_is_answered_is_in_the_document(case: Case, server: Server) -> None:
    ask(case, server.url, server.estate_for(case.method), server.operator_key)
