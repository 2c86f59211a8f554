"""The database's password is rotated under running functions, as AWS's rotation functions do it, and nobody is told.

Secrets Manager is moto's; Postgres asks for the password with SCRAM.
"""

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import boto3
import psycopg
import pytest
from moto import mock_aws
from psycopg.conninfo import conninfo_to_dict

from tests.crash.lambdas import Answer, Ingest, drain
from tests.support.lambdas import Lambdas
from tests.support.receiver import Receiver
from tests.support.world import World

pytestmark = pytest.mark.crash

SECRET = "leasehook/database"
EACH = 3
"""Environments of a kind."""


class Rotation:
    """The secret of a database user in the form that RDS gives it, and the steps of AWS's rotation functions.

    https://docs.aws.amazon.com/secretsmanager/latest/userguide/rotate-secrets_lambda-functions.html
    """

    def __init__(self, client: Any, world: World, database_url: str, users: Sequence[str]) -> None:
        self._client = client
        self._world = world
        self._database_url = database_url
        address = conninfo_to_dict(database_url)
        self._place = {
            "host": address["host"],
            "port": address["port"],
            "dbname": address["dbname"],
        }
        self._secret: dict[str, Any] = {}
        for user in reversed(users):
            self.create(user)
            self.set()
        client.create_secret(Name=SECRET, SecretString=self._text())

    @property
    def reference(self) -> str:
        """What LEASEHOOK_DATABASE_CREDENTIALS says."""
        return f"secretsmanager:{SECRET}"

    def steps(self, user: str) -> Iterator[None]:
        """Rotate to a user with a new password, with a pause after each step."""
        self.create(user)
        self.stage()
        yield
        self.set()
        yield
        self.test()
        self.finish()
        yield

    def create(self, user: str) -> None:
        """Make up a new password."""
        password = f"pass/{secrets.token_urlsafe(12)}@:%ä"
        self._secret = {
            "engine": "postgres",
            "username": user,
            "password": password,
            **self._place,
        }

    def stage(self) -> None:
        """Store it beside the one in use, as AWSPENDING."""
        self._client.put_secret_value(
            SecretId=SECRET, SecretString=self._text(), VersionStages=["AWSPENDING"]
        )

    def set(self) -> None:
        """From here on the database wants the new password."""
        name, password = self._secret["username"], self._secret["password"]
        self._world.sql(f"alter role {name} password '{password}'")

    def test(self) -> None:
        """It does."""
        name, password = self._secret["username"], self._secret["password"]
        psycopg.connect(self._database_url, user=name, password=password).close()

    def finish(self) -> None:
        """From here on whoever asks gets the new password.

        AWS moves AWSCURRENT to the pending version. moto moves the label, and goes on to serve the old one.
        """
        self._client.put_secret_value(SecretId=SECRET, SecretString=self._text())

    def _text(self) -> str:
        return json.dumps(self._secret)


class Deployment:
    """Ingest environments and a drain function whose DATABASE_URL is empty: the secret says everything."""

    def __init__(self, world: World, credentials: str, lambdas: Lambdas, stack: ExitStack) -> None:
        self._world = world
        self._lambdas = lambdas
        self._stack = stack
        self._key = world.key()
        self._variables = world.environment("", LEASEHOOK_DATABASE_CREDENTIALS=credentials)
        self.accepted: list[str] = []

    def cold(self) -> Ingest:
        return self._stack.enter_context(Ingest(self._variables, self._key))

    def publish(self, environments: Sequence[Ingest]) -> list[int]:
        """The statuses of one publish each."""
        answers = [each.publish({"type": "a", "payload": 1}) for each in environments]
        self.accepted += [event_id for each in answers for event_id in ids_of(each)]
        return [each.status for each in answers]

    def publish_cold(self) -> list[int]:
        return self.publish([self.cold() for _ in range(EACH)])

    def lose_session(self, environments: Sequence[Ingest]) -> None:
        """The server ends their connections."""
        sessions = []
        for each in environments:
            with each._runtime.database.connection() as connection:
                sessions.append(connection.info.backend_pid)
        self._world.sql("select pg_terminate_backend(pid) from unnest(%s) as pid", sessions)
        self._world.until(
            "not exists (select 1 from pg_stat_activity where pid = any(%s))", sessions
        )

    def drain_cold(self) -> dict[str, Any]:
        summary = drain(self._variables)
        return {"stopped": summary.stopped, "succeeded": summary.succeeded}

    def drain_warm(self) -> dict[str, Any]:
        summary = self._lambdas.drain()
        return {"stopped": summary["stopped"], "succeeded": summary["succeeded"]}

    def assert_nothing_is_lost_or_doubled(self, receiver: Receiver) -> None:
        stored = [str(row["id"]) for row in self._world.sql("select id from leasehook.events")]
        assert sorted(stored) == sorted(self.accepted)
        assert sorted(each.webhook_id for each in receiver.received) == sorted(stored)


def ids_of(answer: Answer) -> list[str]:
    return answer.event_ids if answer.status == 202 else []


@pytest.fixture
def secrets_manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        client = boto3.client("secretsmanager")
        yield client
        client.close()


@pytest.fixture
def users(world: World) -> Iterator[list[str]]:
    """Two that may log in, and are members of the role that owns the schema."""
    suffix = secrets.token_hex(4)
    names = [f"app_{suffix}", f"app_clone_{suffix}"]
    owner = world.one("select current_user as name")["name"]
    for name in names:
        world.sql(f"create role {name} login in role {owner}")
    yield names
    for name in names:
        world.sql(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity where usename = %s", name
        )
        world.sql(f"drop role {name}")


@pytest.fixture
def rotation(secrets_manager: Any, world: World, database_url: str, users: list[str]) -> Rotation:
    return Rotation(secrets_manager, world, database_url, users)


@pytest.fixture
def deployment(
    rotation: Rotation, world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deployment]:
    world.endpoint(receiver.url())
    lambdas = Lambdas(world, "", monkeypatch)
    with ExitStack() as stack:
        stack.callback(lambdas.close)
        lambdas.deploy(LEASEHOOK_DATABASE_CREDENTIALS=rotation.reference)
        yield Deployment(world, rotation.reference, lambdas, stack)


def test_a_password_that_is_new_before_its_secret_costs_an_environment_one_503(
    rotation: Rotation, users: list[str], deployment: Deployment, receiver: Receiver
) -> None:
    """One user: between two steps of the rotation the secret holds a password that is no longer true."""
    connected, cut_off = ([deployment.cold() for _ in range(EACH)] for _ in range(2))
    assert deployment.publish(connected + cut_off) == 2 * EACH * [202]
    assert deployment.drain_warm() == {"stopped": "idle", "succeeded": 2 * EACH}

    rotation.create(users[0])
    rotation.stage()
    assert deployment.publish_cold() == EACH * [202]
    rotation.set()
    rotation.test()

    # Sessions outlive their password. Who needs a new one asks for the secret once more, in vain.
    assert deployment.publish(connected) == EACH * [202]
    deployment.lose_session(cut_off)
    late = [deployment.cold() for _ in range(EACH)]
    assert deployment.publish(cut_off + late) == 2 * EACH * [503]
    assert deployment.drain_warm() == {"stopped": "idle", "succeeded": 2 * EACH}
    refused = deployment.drain_cold()
    assert "did not answer" in refused["stopped"]
    assert refused["succeeded"] == 0

    rotation.finish()
    assert deployment.publish(cut_off + late + connected) == 3 * EACH * [202]
    deployment.lose_session(connected)
    assert deployment.publish(connected) == EACH * [202]
    assert deployment.publish_cold() == EACH * [202]
    assert deployment.drain_cold() == {"stopped": "idle", "succeeded": 5 * EACH}
    assert deployment.drain_warm() == {"stopped": "idle", "succeeded": 0}
    deployment.assert_nothing_is_lost_or_doubled(receiver)


def test_users_that_take_turns_are_rotated_without_a_single_503(
    rotation: Rotation, users: list[str], deployment: Deployment, receiver: Receiver
) -> None:
    """Two users: the secret always holds a password that is true, but what an environment has kept may be old."""
    of_the_first_version, busy = ([deployment.cold() for _ in range(EACH)] for _ in range(2))
    assert deployment.publish(of_the_first_version + busy) == 2 * EACH * [202]

    one, clone = users
    for user in (clone, one):
        for _ in rotation.steps(user):
            deployment.lose_session(busy)
            everybody = busy + of_the_first_version + [deployment.cold()]
            assert deployment.publish(everybody) == len(everybody) * [202]
            for drained in (deployment.drain_warm(), deployment.drain_cold()):
                assert drained["stopped"] == "idle"

    # The first user's first password, which these came with, has not been true for a while.
    deployment.lose_session(of_the_first_version)
    assert deployment.publish(of_the_first_version) == EACH * [202]
    assert deployment.drain_cold() == {"stopped": "idle", "succeeded": EACH}
    deployment.assert_nothing_is_lost_or_doubled(receiver)
