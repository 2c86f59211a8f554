"""Secrets that are planted everywhere, and then looked for everywhere."""

import base64
import binascii
import json
import logging
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import psycopg
import pytest

from functions.api import create_app
from shared.http.gateway import lambda_handler
from shared.keys import create_operator_key
from shared.runtime import Runtime
from tests.contract.estate import rows
from tests.contract.operations import operations
from tests.management.conftest import Api, Client
from tests.support.lambda_events import FakeContext, http_api
from tests.support.lambdas import Lambdas, read_answer
from tests.support.providers import sign
from tests.support.receiver import Receiver, answer
from tests.support.world import World


def _key(letter: str) -> str:
    return base64.b64encode(letter.encode() * 32).decode()


SIGNING = _key("s")
ROTATED = _key("r")
REFUSED_SECRET = "canary-refused-secret"
HEADER_VALUE = "canary-header-value"
PATH_TOKEN = "canary-path-token"
QUERY_TOKEN = "canary-query-token"
USERINFO = "canary-userinfo"
INBOUND = "canary-inbound-secret-0123456789"
CREDENTIAL = "canary-inbound-credential"
DSN_PASSWORD = "canary-dsn-password"
UNKNOWN_KEY = "lh_canaryunknownkey"

CANARIES = (
    SIGNING,
    ROTATED,
    REFUSED_SECRET,
    HEADER_VALUE,
    PATH_TOKEN,
    QUERY_TOKEN,
    USERINFO,
    INBOUND,
    CREDENTIAL,
    DSN_PASSWORD,
    UNKNOWN_KEY,
)
ONE_ATTEMPT: dict[str, Any] = {"retry_delays_seconds": []}


@dataclass
class Ear:
    """Calls the API and keeps what it said, without the members in which a secret is shown once."""

    api: Api
    heard: list[str] = field(default_factory=list)

    def call(
        self, method: str, path: str, body: Any = None, *, once: str = "", **headers: str
    ) -> httpx.Response:
        """Any request; in its answer, the member `once` may be secret."""
        answer = self.api.call(method, path, body, **headers)
        self.heard.append(str(dict(answer.headers)))
        if answer.headers.get("content-type", "").startswith("application/json"):
            self.heard.append(json.dumps(_without(answer.json(), {"url", once})))
        else:
            self.heard.append(answer.text)
        return answer


def _without(document: Any, names: set[str]) -> Any:
    """An endpoint shows its URL to its tenant, tokens and all; whatever else shows one fails the test."""
    match document:
        case dict():
            kept = {name: value for name, value in document.items() if name not in names}
            return {name: _without(value, names) for name, value in kept.items()}
        case list():
            return [_without(each, names) for each in document]
        case _:
            return document


def _url(scheme: str, port: int) -> str:
    return f"{scheme}://127.0.0.1:{port}/{PATH_TOKEN}?token={QUERY_TOKEN}"


@pytest.fixture
def no_tls() -> Iterator[int]:
    """The port of a server that answers before it is asked, and not in TLS."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(b"220 mail.example ESMTP\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _found(text: str, canaries: Sequence[str]) -> list[str]:
    """Those that a text holds, as they are or as bytes that SQL shows."""
    return [canary for canary in canaries if any(form in text for form in _forms(canary))]


def _forms(canary: str) -> list[str]:
    forms = [canary, canary.encode().hex()]
    with suppress(binascii.Error):
        forms.append(base64.b64decode(canary, validate=True).hex())
    return forms


def _refuse_in_every_way(ear: Ear) -> None:
    """Bad requests, each with secrets in it."""
    good = {"url": "http://127.0.0.1:9/"}
    for bad in (
        {"url": f"https://user:{USERINFO}@example.com/"},
        {"url": f"http://10.0.0.1/{PATH_TOKEN}?token={QUERY_TOKEN}"},
        {"url": f"http://127.0.0.1:notaport/{PATH_TOKEN}"},
        {"url": [PATH_TOKEN]},
        good | {"secret": f"whsec_{REFUSED_SECRET}"},
        good | {"secret": [REFUSED_SECRET]},
        good | {"headers": {"Host": HEADER_VALUE}},
        good | {"headers": {"X-Token": f"{HEADER_VALUE}\n"}},
        good | {"headers": {"X-Token": [HEADER_VALUE]}},
        good | {"headers": HEADER_VALUE},
        good | {"token": HEADER_VALUE},
        good | {"timeout_seconds": HEADER_VALUE},
    ):
        assert ear.call("POST", "/v1/endpoints", bad).status_code == 422, bad
    source = {"provider": "standard_webhooks", "secret": REFUSED_SECRET}
    assert ear.call("POST", "/v1/sources", source).status_code == 422
    unknown = ear.call("GET", "/v1/endpoints", authorization=f"Bearer {UNKNOWN_KEY}")
    assert unknown.status_code == 401


def _read_everything(ear: Ear, ids: dict[str, str]) -> None:
    for operation in operations():
        if operation.method == "GET" and operation.name != "metrics":
            if operation.needs_a_key and not operation.is_about_a_tenant:
                continue
            path = operation.path.format(**ids)
            assert ear.call("GET", path).status_code == 200, operation.name


@pytest.mark.usefixtures("lambda_event_loop")
def test_secrets_are_shown_once_and_written_nowhere(
    *,
    world: World,
    client: Client,
    database_url: str,
    receiver: Receiver,
    no_tls: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """WH-122."""
    caplog.set_level(logging.DEBUG)
    lambdas = Lambdas(world, database_url, monkeypatch)
    ear = Ear(Api(client, world.key()))
    made_key = ear.call("POST", "/v1/api-keys", {"name": "k", "scopes": ["read"]}, once="key")
    canaries = (
        *CANARIES,
        made_key.json()["key"],
        ear.api.key,
        base64.b64encode(bytes(range(32))).decode(),
    )

    _refuse_in_every_way(ear)

    receiver.answers[f"/{PATH_TOKEN}?token={QUERY_TOKEN}"] = answer(500, b"no")
    closed = _closed_port()
    urls = {
        "answers 500": _url("http", receiver.port),
        "no TLS there": _url("https", no_tls),
        "nobody listens": _url("http", closed),
    }
    endpoint_ids = {}
    for name, url in urls.items():
        new = ONE_ATTEMPT | {
            "url": url,
            "description": name,
            "secret": f"whsec_{SIGNING}",
            "headers": {"X-Token": HEADER_VALUE},
        }
        made = ear.call("POST", "/v1/endpoints", new, once="secret")
        assert made.json()["secret"] == f"whsec_{SIGNING}"
        path = f"/v1/endpoints/{made.json()['id']}"
        rotated = ear.call(
            "POST", f"{path}/rotate-secret", {"secret": f"whsec_{ROTATED}"}, once="secret"
        )
        assert rotated.json()["secret"] == f"whsec_{ROTATED}"
        refused = ear.call("POST", f"{path}/rotate-secret", {"secret": REFUSED_SECRET})
        assert refused.status_code == 422
        changed = ear.call(
            "PATCH", path, {"headers": {"X-Token": HEADER_VALUE, "X-2": HEADER_VALUE}}
        )
        assert changed.status_code == 200
        endpoint_ids[name] = made.json()["id"]

    made = ear.call("POST", "/v1/sources", {"provider": "github", "secret": INBOUND}, once="secret")
    assert made.json()["secret"] == INBOUND
    signed = sign("github", b"{}", secret=INBOUND)
    credentials = {"authorization": f"Bearer {CREDENTIAL}", "cookie": f"session={CREDENTIAL}"}
    received = client.request(
        "POST",
        made.json()["path"],
        content=signed.body,
        headers={**signed.headers, **credentials},
    )
    assert received.status_code == 200

    for endpoint_id in endpoint_ids.values():
        assert ear.call("POST", f"/v1/endpoints/{endpoint_id}/test").status_code == 202
    lambdas.drain()
    assert receiver.received[0].headers["x-token"] == HEADER_VALUE

    # Once more, from functions for which all of these addresses are forbidden.
    dead = ear.call("GET", "/v1/deliveries?status=dead").json()["data"]
    assert {each["last_error_kind"] for each in dead} >= {"status", "tls", "connect"}
    for delivery in dead:
        assert ear.call("POST", f"/v1/deliveries/{delivery['id']}/replay").status_code == 202
    lambdas.deploy(LEASEHOOK_ALLOW_TARGETS="")
    lambdas.drain()
    lambdas.maintain()
    for delivery in dead:
        timeline = ear.call("GET", f"/v1/deliveries/{delivery['id']}").json()
        assert "target_refused" in {each["error_kind"] for each in timeline["attempts"]}, timeline
    assert ear.call("POST", "/v1/replays", {}).status_code == 202

    one = dead[0]
    _read_everything(
        ear,
        {
            "delivery_id": one["id"],
            "endpoint_id": one["endpoint_id"],
            "event_id": one["event_id"],
            "source_id": made.json()["id"],
            "replay_id": ear.call("GET", "/v1/replays").json()["data"][0]["id"],
            "consumer": ear.call("POST", "/v1/consumers", {"id": "c"}).json()["id"],
            "name": ear.call("POST", "/v1/event-types", {"name": "t"}).json()["name"],
        },
    )
    operator = Ear(Api(client, create_operator_key(world.database, "operator")["key"]))
    assert operator.call("GET", "/metrics").status_code == 200

    ear.heard += _answers_of_what_is_broken(world, database_url, ear.api.key)

    lambdas.close()
    told = "\n".join([*ear.heard, *operator.heard])
    assert _found(told, canaries) == []
    assert _found(_everything_logged(caplog, capfd), canaries) == []
    stored = rows(world)
    endpoints = str(stored.pop("endpoints"))
    # Where they may be: this is what finding one looks like.
    assert _found(endpoints, canaries) == [PATH_TOKEN, QUERY_TOKEN]
    assert _found(str(stored), canaries) == []


def _answers_of_what_is_broken(world: World, database_url: str, key: str) -> list[str]:
    """What the API says with no database behind it, without a sealing key, and when it fails as nobody foresaw."""
    nowhere = psycopg.conninfo.make_conninfo(
        f"postgresql://leasehook:{DSN_PASSWORD}@127.0.0.1:1/leasehook", connect_timeout=1
    )
    no_database = Runtime.read(world.environment(nowhere))
    no_sealing_key = Runtime.read({"DATABASE_URL": database_url})
    unforeseen = Runtime.read(world.environment(database_url))
    # Where `cached_property` keeps what it has made: an attribute that no part of it has.
    unforeseen.__dict__["database"] = DSN_PASSWORD
    new = {
        "url": f"https://example.com/{PATH_TOKEN}",
        "secret": f"whsec_{SIGNING}",
        "headers": {"X-Token": HEADER_VALUE},
    }
    event = http_api(
        "POST",
        "/v1/endpoints",
        json.dumps(new).encode(),
        {"authorization": f"Bearer {key}", "content-type": "application/json"},
        encoded=True,
    )
    heard = []
    for runtime, status in ((no_database, 503), (no_sealing_key, 500), (unforeseen, 500)):
        handler = lambda_handler(partial(create_app, runtime))
        said = read_answer(handler(event, FakeContext.lasting(30)))
        assert said.status == status, said
        heard.append(f"{said.headers} {said.text}")
    no_sealing_key.database.close()
    return heard


def _everything_logged(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> str:
    output = capfd.readouterr()
    assert '"message":"attempt"' in output.err
    assert "Traceback" in caplog.text
    return output.out + output.err + caplog.text
