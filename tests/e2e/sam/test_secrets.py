"""Password and sealing key from Secrets Manager: the functions take boto3 from the runtime, and their package has none."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.e2e.sam.aws import create_secrets, moto
from tests.e2e.sam.containers import Network, Postgres
from tests.e2e.sam.sam import Sam
from tests.support.receiver import Receiver

pytestmark = pytest.mark.engine

# Of all that RDS writes into such a secret, this is what it always has.
ROTATED_BY_RDS = ("username", "password")


@pytest.fixture(scope="module")
def with_secrets(
    sam: Sam,
    network: Network,
    postgres: Postgres,
    secret_key: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Sam]:
    """The same build, deployed with the ARNs of secrets in place of password and key."""
    folder = tmp_path_factory.mktemp("aws")
    with moto(network.gateway, folder / "moto.log") as url:
        account = dict(zip(ROTATED_BY_RDS, ("leasehook", postgres.password), strict=True))
        arns = create_secrets(url, {"database": json.dumps(account), "key": secret_key})
        yield sam.with_parameters(
            _pointed_at(url, sam.template),
            DatabaseUrl=postgres.url(with_password=False),
            DatabaseSecretArn=arns["database"],
            SecretKey="",
            SecretKeyArn=arns["key"],
        )


def _pointed_at(url: str, template: Path) -> Path:
    """A copy of the built template whose functions ask `url` instead of AWS: SAM passes no variable that has no line there."""
    document = yaml.safe_load(template.read_text())
    document["Globals"]["Function"]["Environment"]["Variables"]["AWS_ENDPOINT_URL"] = url
    copy = template.with_name("with-secrets.yaml")
    copy.write_text(yaml.safe_dump(document))
    return copy


def test_a_drain_that_only_knows_where_its_secrets_are_delivers(
    with_secrets: Sam,
    api: httpx.Client,
    receiver: Receiver,
    reachable: Callable[[Receiver], str],
) -> None:
    created = api.post(
        "/v1/endpoints", json={"url": reachable(receiver), "event_types": ["order.kept"]}
    )
    published = api.post("/v1/events", json={"type": "order.kept", "payload": {}})
    assert (created.status_code, published.status_code) == (201, 202)

    summary = with_secrets.invoke("DrainFunction", "drain-once")

    assert summary["succeeded"] == 1
    [request] = receiver.received
    assert request.webhook_id == published.json()["id"]
    request.verify(created.json()["secret"])


def test_the_package_ships_no_boto3(sam: Sam) -> None:
    shipped = {path.name for path in (sam.template.parent / "DrainFunction").iterdir()}
    assert "psycopg" in shipped
    assert shipped.isdisjoint({"boto3", "botocore"})
