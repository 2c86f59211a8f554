"""Where the password comes from: a secret in whatever form, rotated under us, missing, or signed on the spot."""

import json
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import boto3
import botocore.client
import psycopg
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shared.errors import ConfigurationError, DatabaseUnavailable, LeasehookError
from shared.secret_values import SecretReference, SecretStore, SecretValues
from shared.store.connection import Database
from shared.store.connector import read_secret
from shared.store.credentials import FromSecret, IamToken, parse_credentials
from tests.sender.certificates import Authority
from tests.support.tls_server import TlsServer

PASSWORDS = [
    "plain",
    "a@b:c/d%e?f#g",
    "ünï çødé ☃",
    "{braced",
    " spaces inside ",
    "100%25",
    "'\"\\",
]
NAME = "leasehook/db"
SETTING = "LEASEHOOK_DATABASE_CREDENTIALS"
MANAGED = SecretReference(SETTING, SecretStore.SECRETS_MANAGER, NAME)
PARAMETER = SecretReference(SETTING, SecretStore.PARAMETER_STORE, "/leasehook/db")


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    """What every Lambda environment has."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)


@pytest.fixture
def aws(account: None) -> Iterator[None]:  # noqa: ARG001  # wanted for its effect
    with mock_aws():
        yield


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What AWS was asked: operations and their parameters, of the code's clients as of the test's."""
    asked = []
    clients: Any = botocore.client.BaseClient
    call = clients._make_api_call

    def counting(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
        asked.append((operation, parameters))
        return call(client, operation, parameters)

    monkeypatch.setattr(clients, "_make_api_call", counting)
    return asked


@dataclass
class Role:
    """A user of the test's database who logs in with a password, and the secret that holds it."""

    url: str
    name: str
    opened: list[Database] = field(default_factory=list)

    @property
    def bare_url(self) -> str:
        """Without a password."""
        given = {k: v for k, v in conninfo_to_dict(self.url).items() if k != "password"}
        return make_conninfo("", **{**given, "user": self.name})

    def set_password(self, password: str) -> None:
        self.do("alter role {} login password {}", sql.Identifier(self.name), password)

    def terminate(self) -> None:
        """End its sessions, and wait until they have."""
        self.do(
            "select pg_terminate_backend(pid, 20000) from pg_stat_activity where usename = {}",
            self.name,
        )

    def do(self, statement: str, *values: Any) -> None:
        with psycopg.connect(self.url, autocommit=True) as admin:
            admin.execute(sql.SQL(statement).format(*values))

    def database(self, url: str | None = None, reference: SecretReference = MANAGED) -> Database:
        database = Database(self.bare_url if url is None else url, FromSecret(reference))
        self.opened.append(database)
        return database


@pytest.fixture
def role(database_url: str) -> Iterator[Role]:
    role = Role(database_url, f"lh_{secrets.token_hex(4)}")
    role.do("create role {}", sql.Identifier(role.name))
    yield role
    for database in role.opened:
        database.close()
    role.do("drop role {}", sql.Identifier(role.name))


def put(text: str) -> None:
    """A new version of the secret."""
    client = boto3.client("secretsmanager")
    try:
        client.create_secret(Name=NAME, SecretString=text)
    except client.exceptions.ResourceExistsException:
        client.put_secret_value(SecretId=NAME, SecretString=text)


def user(database: Database) -> str:
    with database.connection() as connection:
        [row] = connection.execute("select current_user as name").fetchall()
    return str(row["name"])


def fetches(asked: list[tuple[str, dict[str, Any]]]) -> int:
    return sum(operation in ("GetSecretValue", "GetParameter") for operation, _ in asked)


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("password", PASSWORDS)
def test_a_secret_of_each_form_lets_in(role: Role, password: str) -> None:
    role.set_password(password)
    server = conninfo_to_dict(role.url)
    put(password)
    assert user(role.database()) == role.name
    put(json.dumps({"username": role.name, "password": password, "engine": "postgres"}))
    assert user(role.database(role.url)) == role.name
    whole = {k: server.get(k) for k in ("host", "port", "dbname")}
    put(json.dumps({"username": role.name, "password": password, **whole}, ensure_ascii=False))
    assert user(role.database("")) == role.name
    put(
        f"postgresql://{role.name}:{quote(password, safe='')}@"
        f"{quote(str(server['host']), safe='')}:{server['port']}/{server['dbname']}\n"
    )
    assert user(role.database("")) == role.name


@pytest.mark.usefixtures("aws")
def test_an_encrypted_parameter_is_decrypted(
    role: Role,
    asked: list[tuple[str, dict[str, Any]]],
) -> None:
    role.set_password("from ssm")
    boto3.client("ssm").put_parameter(Name=PARAMETER.name, Value="from ssm", Type="SecureString")
    assert user(role.database(reference=PARAMETER)) == role.name
    wanted = {"Name": PARAMETER.name, "WithDecryption": True}
    assert [p for operation, p in asked if operation == "GetParameter"] == [wanted]


@pytest.mark.usefixtures("aws")
def test_a_secret_is_fetched_once_for_many_connections(
    role: Role,
    asked: list[tuple[str, dict[str, Any]]],
) -> None:
    role.set_password("x")
    put("x")
    database = role.database()
    for _ in range(3):
        user(database)
        role.terminate()
    assert user(database) == role.name
    assert fetches(asked) == 1


@pytest.mark.usefixtures("aws")
def test_a_rotated_password_costs_no_request(
    role: Role,
    asked: list[tuple[str, dict[str, Any]]],
) -> None:
    role.set_password("old")
    put("old")
    database = role.database()
    assert user(database) == role.name
    role.set_password("new")
    put("new")
    assert user(database) == role.name, "the session that is there goes on"
    role.terminate()
    assert user(database) == role.name
    role.terminate()
    assert user(database) == role.name
    assert fetches(asked) == 2


@pytest.mark.usefixtures("aws")
def test_a_secret_that_lags_behind_is_unavailability_until_it_is_there(
    role: Role,
    asked: list[tuple[str, dict[str, Any]]],
) -> None:
    """Single-user rotation changes the password first and the secret a moment later."""
    role.set_password("old")
    put("old")
    database = role.database()
    user(database)
    role.set_password("new")
    role.terminate()
    with pytest.raises(DatabaseUnavailable) as refused:
        user(database)
    assert fetches(asked) == 2
    assert not any(word in str(refused.value) for word in ("old", "new", role.name, NAME))
    put("new")
    assert user(database) == role.name
    assert fetches(asked) == 3


@pytest.mark.usefixtures("aws")
def test_a_fresh_secret_that_is_refused_as_well_is_unavailability(
    role: Role,
    asked: list[tuple[str, dict[str, Any]]],
) -> None:
    role.set_password("right")
    put("wrong")
    database = role.database()
    with pytest.raises(DatabaseUnavailable):
        user(database)
    put("wrong, too")
    with pytest.raises(DatabaseUnavailable):
        user(database)
    assert fetches(asked) == 3


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("fate", ["alter role {} nologin", "drop role {}"])
def test_another_user_of_the_new_secret_is_taken_over(role: Role, fate: str) -> None:
    """Alternating-users rotation: by then the user of the old secret may be locked out (28000) or gone (28P01)."""
    other = sql.Identifier(f"{role.name}_other")
    role.do("create role {} login password 'y'", other)
    put(json.dumps({"username": f"{role.name}_other", "password": "y"}))
    database = role.database()
    assert user(database) == f"{role.name}_other"
    role.set_password("x")
    put(json.dumps({"username": role.name, "password": "x"}))
    role.do(
        "select pg_terminate_backend(pid, 20000) from pg_stat_activity where usename = {}",
        other.as_string().strip('"'),
    )
    role.do(fate, other)
    assert user(database) == role.name
    role.do("drop role if exists {}", other)


@pytest.mark.usefixtures("aws")
def test_a_host_that_refuses_is_told_apart_from_one_that_is_down(
    role: Role,
    asked: list[tuple[str, dict[str, Any]]],
) -> None:
    role.set_password("new")
    put("old")
    port = conninfo_to_dict(role.url)["port"]
    several = make_conninfo(role.bare_url, host="127.0.0.1,127.0.0.1", port=f"{port},1")
    database = role.database(several)
    with pytest.raises(DatabaseUnavailable):
        user(database)
    put("new")
    assert user(database) == role.name
    assert fetches(asked) == 3


@pytest.mark.usefixtures("aws")
def test_an_outage_of_the_network_costs_no_fetch(
    role: Role,
    asked: list[tuple[str, dict[str, Any]]],
) -> None:
    put("x")
    database = role.database(make_conninfo(role.bare_url, host="127.0.0.1", port=1))
    for _ in range(5):
        with pytest.raises(DatabaseUnavailable):
            user(database)
    assert fetches(asked) == 1


@pytest.mark.usefixtures("aws")
def test_a_database_that_has_moved_is_found_where_the_secret_says(
    role: Role, asked: list[tuple[str, dict[str, Any]]]
) -> None:
    """Restored under another name, say: nobody answers at the old one, who could refuse a password."""
    now = 1000.0
    role.set_password("x")
    server = conninfo_to_dict(role.url)
    here = {"username": role.name, "password": "x", "host": server["host"]}
    put(json.dumps({**here, "port": 1}))
    database = Database(role.bare_url, FromSecret(MANAGED), secrets=SecretValues(lambda: now))
    role.opened.append(database)
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable, match="nothing listens"):
            user(database)
    assert fetches(asked) == 1, "an outage is no reason to ask again and again"

    put(json.dumps({**here, "port": server["port"]}))
    now += 30

    assert user(database) == role.name
    assert fetches(asked) == 2


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("nonsense", ["{}", "\n", "{not json}"])
def test_a_secret_that_made_no_sense_is_taken_when_it_is_repaired(
    role: Role, nonsense: str
) -> None:
    role.set_password("x")
    put(nonsense)
    database = role.database()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=SETTING):
            user(database)
    put("x")
    assert user(database) == role.name


@pytest.mark.usefixtures("aws")
def test_a_rotation_to_nonsense_is_over_when_it_is_repaired(role: Role) -> None:
    role.set_password("old")
    put("old")
    database = role.database()
    assert user(database) == role.name
    role.set_password("new")
    role.terminate()
    put("{}")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=SETTING):
            user(database)
    put("new")
    assert user(database) == role.name


@pytest.mark.usefixtures("aws")
def test_many_refused_at_once_share_a_fetch(
    asked: list[tuple[str, dict[str, Any]]],
) -> None:
    put("first")
    values = SecretValues()
    values.value(MANAGED)
    put("second")
    seen_count = values.fetch_count(MANAGED)
    got: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: got.append(values.replacement(MANAGED, "first", seen_count))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == ["second"] * 8
    assert fetches(asked) == 2


@pytest.mark.usefixtures("aws")
def test_fetches_that_bring_nothing_new_are_spaced(
    asked: list[tuple[str, dict[str, Any]]],
) -> None:
    """A server that lets nobody in, for want of slots say, looks much as one that refuses the password."""
    now = 1000.0
    values = SecretValues(lambda: now)
    put("same")

    def refused_again(after_seconds: float) -> int:
        nonlocal now
        now += after_seconds
        before = fetches(asked)
        assert values.replacement(MANAGED, "same", values.fetch_count(MANAGED)) == "same"
        return fetches(asked) - before

    values.value(MANAGED)
    assert [refused_again(0.05) for _ in range(5)] == [1, 1, 1, 0, 0]
    assert refused_again(1) == 1
    assert refused_again(0.5) == 0
    assert [refused_again(61), refused_again(0.05), refused_again(0.05)] == [1, 1, 1]
    assert [refused_again(0.05), refused_again(-3600)] == [0, 1], "the clock was put right"
    put("other")
    now += 1
    assert values.replacement(MANAGED, "same", values.fetch_count(MANAGED)) == "other"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "two\nlines-hidden",
        "{not json, hidden}",
        '{"username": "hidden"}',
        '{"hidden": ' + "[" * 100_000 + "}",
        '{"username": "hidden", "password": ""}',
        '{"username": "u", "password": {"hidden": 1}}',
        '{"username": "u", "password": "p", "host": ["hidden"]}',
        '{"username": "u", "password": "p", "port": true}',
        "postgresql://u:hidden@[::1/d",
        "postgresql://u:hid%zzden@h/d",
    ],
)
def test_a_secret_that_makes_no_sense_is_said_without_its_text(text: str) -> None:
    with pytest.raises(ConfigurationError, match=SETTING) as refused:
        read_secret(text)
    assert "hidden" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.usefixtures("aws")
def test_what_the_secret_names_is_its_own_and_the_rest_is_the_urls() -> None:
    put(json.dumps({"username": "u", "password": "p", "host": "db.example.com"}))
    url = "postgresql://someone:else@a.example.com:6432,b.example.com:6433/orders?sslmode=require"
    parameters = Database(url, FromSecret(MANAGED))._parameters
    told = {k: parameters.get(k) for k in ("user", "password", "host", "port", "dbname", "sslmode")}
    assert told == {
        "user": "u",
        "password": "p",
        "host": "db.example.com",
        "port": None,
        "dbname": "orders",
        "sslmode": "require",
    }


@pytest.mark.usefixtures("aws")
def test_what_neither_names_is_asked_for() -> None:
    put("only a password")
    database = Database("", FromSecret(MANAGED))
    with (
        pytest.raises(ConfigurationError, match="expected the user and the host"),
        database.connection(),
    ):
        pass


@pytest.mark.usefixtures("aws")
def test_rds_is_verified_also_where_the_secret_names_it() -> None:
    host = "orders.c9a.us-east-1.rds.amazonaws.com"
    put(json.dumps({"username": "u", "password": "p", "host": host}))
    assert Database("", FromSecret(MANAGED))._parameters["sslmode"] == "verify-full"


def problem(reference: SecretReference = MANAGED) -> LeasehookError:
    database = Database("postgresql://u@127.0.0.1:1/d", FromSecret(reference))
    with pytest.raises(LeasehookError) as refused, database.connection():
        pass
    assert NAME not in str(refused.value)
    return refused.value


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("reference", [MANAGED, PARAMETER])
def test_a_secret_that_does_not_exist_is_a_matter_of_configuration(
    reference: SecretReference,
) -> None:
    error = problem(reference)
    assert isinstance(error, ConfigurationError)
    assert str(error).startswith(f"{SETTING}: expected a secret that exists")


@pytest.mark.usefixtures("aws")
def test_binary_data_is_a_matter_of_configuration() -> None:
    boto3.client("secretsmanager").create_secret(Name=NAME, SecretBinary=b"\xff\xfe")
    assert "binary data" in str(problem())


@pytest.mark.usefixtures("aws")
def test_binary_data_is_read_again_when_it_is_text() -> None:
    values = SecretValues()
    boto3.client("secretsmanager").create_secret(Name=NAME, SecretBinary=b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="binary data"):
        values.value(MANAGED)
    put("text")
    assert [values.value(MANAGED) for _ in range(2)] == ["text", "text"]


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("AccessDeniedException", 400, ConfigurationError),
        ("DecryptionFailure", 400, ConfigurationError),
        ("ThrottlingException", 400, DatabaseUnavailable),
        ("InternalServiceError", 500, DatabaseUnavailable),
    ],
)
def test_what_aws_refuses_is_told_apart_from_what_passes(
    code: str, status: int, kind: type[LeasehookError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_client: Any, operation: str, _parameters: Any) -> Any:
        words = f"arn:aws:iam::1:role/x may not read {NAME}"
        raise ClientError(
            {
                "Error": {"Code": code, "Message": words},
                "ResponseMetadata": {
                    "HTTPStatusCode": status,
                    "RequestId": "",
                    "HostId": "",
                    "HTTPHeaders": {},
                    "RetryAttempts": 0,
                },
            },
            operation,
        )

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", refuse)
    error = problem()
    assert type(error) is kind
    assert code in str(error)
    assert "arn:" not in str(error)


def test_a_store_that_cannot_be_reached_is_unavailability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://127.0.0.1:9")
    error = problem()
    assert type(error) is DatabaseUnavailable
    assert "EndpointConnectionError" in str(error)


def test_a_missing_region_and_missing_keys_are_matters_of_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "expected AWS credentials" in str(problem())
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    error = problem()
    assert isinstance(error, ConfigurationError)
    assert "AWS_DEFAULT_REGION" in str(error)


def test_each_connection_has_a_token_of_its_own(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    with TlsServer(authority.server("localhost")) as server:
        url = make_conninfo(
            "postgresql://app@localhost/d",
            port=server.port,
            sslmode="verify-full",
            sslrootcert=str(authority.file(tmp_path / "ca.pem")),
        )
        database = Database(url, IamToken())
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable), database.connection():
                pass
    token = urlsplit(f"https://{server.passwords[0]}")
    query = parse_qs(token.query)
    assert token.netloc == f"localhost:{server.port}"
    assert query["Action"] == ["connect"]
    assert query["DBUser"] == ["app"]
    assert query["X-Amz-Expires"] == ["900"]
    assert "/eu-central-1/rds-db/" in query["X-Amz-Credential"][0]
    assert len(server.passwords) >= 2


def test_a_token_never_travels_in_the_clear() -> None:
    with pytest.raises(ConfigurationError, match="needs TLS, got disable"):
        Database("postgresql://app@h/d?sslmode=disable", IamToken())
    assert Database("postgresql://app@h/d", IamToken())._parameters["sslmode"] == "verify-full"
    for url in ("postgresql:///d", "postgresql://h/d", "postgresql://app@/d"):
        with pytest.raises(ConfigurationError, match="a user and a host"):
            Database(url, IamToken())


def test_the_setting_names_a_store_and_a_secret() -> None:
    arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:rds!db-1a2b-AbCdEf"
    parsed = parse_credentials(f"secretsmanager:{arn}")
    assert parsed == FromSecret(SecretReference(SETTING, SecretStore.SECRETS_MANAGER, arn))
    assert parse_credentials("ssm:/leasehook/db") == FromSecret(PARAMETER)
    assert parse_credentials("iam") == IamToken()
