"""Making a connection: libpq's parameters from the URL and the credentials, one address after the other."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

import psycopg
from psycopg.conninfo import conninfo_attempts, conninfo_to_dict
from psycopg.rows import dict_row

from shared.errors import ConfigurationError
from shared.secret_values import SecretValues
from shared.store.credentials import SETTING, Credentials, FromSecret, IamToken, InUrl
from shared.store.deadline import BoundedConnection
from shared.store.tls import with_tls

Parameters = dict[str, Any]

CONNECT_SECONDS = 5
"""How long one address may take to answer."""

# A black-holed connection is noticed within about five seconds instead of a minute and more.
_NETWORK = {
    "connect_timeout": str(CONNECT_SECONDS),
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
    "target_session_attrs": "read-write",
    "application_name": "leasehook",
}
_LOST_PLACE_SECONDS = 30.0
"""A secret that names a host where nobody answers is looked at again after so long: the database may have moved."""
_ATTEMPTS_SECONDS = 8.0
"""No further address is tried after so long: the caller has to answer, too."""
_DEFAULT_PORT = 5432
_URL_FORM = "a PostgreSQL connection URL such as postgresql://user:password@host:5432/database"
_VALUE_FORMS = (
    "a secret that holds a connection URL, JSON with username and password, or a password"
)
_JSON_KEYS = {
    "username": "user",
    "password": "password",
    "host": "host",
    "port": "port",
    "dbname": "dbname",
}


@dataclass(frozen=True, slots=True, repr=False)
class _Entry:
    """Parameters for all hosts, the text of the secret that they were made with, and whether it names the hosts."""

    parameters: Parameters
    secret: str | None = None
    names_place: bool = False


class _Refused(Exception):
    """The server asked for a password and did not let it in; `cause` is what psycopg says."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__("refused")
        self.cause = cause


class Connector:
    """Makes connections to one database.

    Raises:
        ConfigurationError: the URL is none, or does not go with the credentials.
    """

    def __init__(self, url: str, credentials: Credentials, secrets: SecretValues) -> None:
        self._given = _read_url(url, "DATABASE_URL")
        self._credentials = credentials
        self._secrets = secrets
        match credentials:
            case InUrl():
                self._fixed: _Entry | None = _Entry(_completed(self._given))
            case IamToken():
                if not (self._given.get("user") and self._given.get("host")):
                    raise ConfigurationError(
                        "DATABASE_URL: expected a URL with a user and a host, for IAM authentication, got one without"
                    )
                self._fixed = _Entry(_completed(self._given, needs_tls=True))
            case FromSecret():
                self._fixed = None
            case _:
                assert_never(credentials)

    def parameters(self) -> Parameters:
        """What the next connection is made with, its hosts not yet told apart.

        Raises:
            ConfigurationError: the secret cannot be read or makes no sense.
            DatabaseUnavailable: the secret's store did not answer.
        """
        return self._entry().parameters

    def connect(self) -> BoundedConnection:
        """A new connection in autocommit mode, without prepared statements.

        A secret that the server refuses is fetched again, once, and what is new in it is tried at once: so a rotated
        password costs no request. A server that did not come to ask for it costs no fetch, unless the secret says
        where the server is.

        Raises:
            psycopg.Error: there is none.
            ConfigurationError, DatabaseUnavailable: see `parameters`.
        """
        entry = self._entry()
        spacing_seconds = 0.0
        try:
            return self._connect(entry.parameters)
        except _Refused as refusal:
            cause = refusal.cause
        except psycopg.OperationalError as error:
            if not entry.names_place:
                raise
            cause = error
            spacing_seconds = _LOST_PLACE_SECONDS
        match self._credentials:
            case FromSecret(reference=reference) if entry.secret is not None:
                secret = self._secrets.replacement(
                    reference,
                    entry.secret,
                    self._secrets.fetch_count(reference),
                    spacing_seconds=spacing_seconds,
                )
                if secret != entry.secret:
                    try:
                        return self._connect(self._with_secret(secret).parameters)
                    except _Refused as refusal:
                        cause = refusal.cause
            case _:
                pass
        raise cause

    def _entry(self) -> _Entry:
        match self._credentials:
            case FromSecret(reference=reference):
                secret = self._secrets.value(reference)
                try:
                    return self._with_secret(secret)
                except ConfigurationError:
                    # No server will refuse it: whoever puts it right waits for us to look again.
                    seen_count = self._secrets.fetch_count(reference)
                    repaired = self._secrets.replacement(reference, secret, seen_count)
                    if repaired == secret:
                        raise
                    return self._with_secret(repaired)
            case InUrl() | IamToken():
                assert self._fixed is not None  # noqa: S101 - made with the object
                return self._fixed
            case _:
                assert_never(self._credentials)

    def _with_secret(self, secret: str) -> _Entry:
        told = read_secret(secret)
        given = self._given
        if "host" in told:
            # Another host's port and address mean nothing for this one.
            given = {k: v for k, v in given.items() if k not in {"host", "hostaddr", "port"}}
        merged = {**given, **told}
        if missing := [name for name in ("user", "host") if not merged.get(name)]:
            raise ConfigurationError(
                f"DATABASE_URL: expected the {' and the '.join(missing)}, which the secret does not name, got nothing"
            )
        return _Entry(_completed(merged), secret, bool({"host", "port"} & told.keys()))

    def _connect(self, parameters: Parameters) -> BoundedConnection:
        """Try each host, and each address of its name, as libpq does."""
        give_up_at = time.monotonic() + _ATTEMPTS_SECONDS
        last: psycopg.Error | None = None
        was_refused = False
        for attempt in _addresses(parameters):
            if last is not None and time.monotonic() >= give_up_at:
                break
            try:
                return self._connect_to(attempt)
            except psycopg.OperationalError as error:
                last = error
                was_refused |= error.pgconn is not None and bool(error.pgconn.used_password)
            except (psycopg.ProgrammingError, UnicodeError):
                raise _unusable() from None
        assert last is not None  # noqa: S101 - there is one address at the least, or the names did not resolve
        if was_refused:
            raise _Refused(last)
        raise last

    def _connect_to(self, attempt: Mapping[str, Any]) -> BoundedConnection:
        secret: Mapping[str, Any] = {}
        if isinstance(self._credentials, IamToken):
            port = int(attempt.get("port") or _DEFAULT_PORT)
            secret = {
                "password": self._secrets.database_token(attempt["host"], port, attempt["user"])
            }
        return BoundedConnection.connect(
            **{**attempt, **secret},
            autocommit=True,
            # Prepared statements break behind transaction-mode poolers, and gain little at one statement a batch.
            prepare_threshold=None,
            row_factory=dict_row,
        )


def _unusable() -> ConfigurationError:
    return ConfigurationError(
        "DATABASE_URL: expected hosts, ports and times that PostgreSQL takes, got some that it does not"
    )


def _addresses(parameters: Parameters) -> list[Mapping[str, Any]]:
    try:
        return list(conninfo_attempts(parameters))
    except psycopg.OperationalError:
        # No name resolves, which passes.
        raise
    except (psycopg.Error, UnicodeError):
        raise _unusable() from None


def read_secret(text: str) -> Parameters:
    """The libpq parameters in a secret: those of a URL, of RDS's JSON, or a password alone.

    Raises:
        ConfigurationError: it is none of them; the message does not repeat it.
    """
    text = text.strip("\r\n")
    bare = text.strip()
    if bare.startswith(("postgresql://", "postgres://")):
        return _read_url(bare, f"{SETTING}'s secret")
    if bare.startswith("{") and bare.endswith("}"):
        return dict(_read_json(bare))
    if not bare or not text.isprintable():
        raise _nonsense("text that is none of them")
    return {"password": text}


def _read_json(text: str) -> Iterator[tuple[str, str]]:
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        raise _nonsense("braces without JSON in them") from None
    if not (isinstance(members.get("password"), str) and members["password"]):
        raise _nonsense("JSON without a password")
    for key, name in _JSON_KEYS.items():
        value = members.get(key)
        if value is None or value == "":
            continue
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise _nonsense(f"JSON whose {key} is neither a string nor a number")
        yield name, str(value)


def _nonsense(found: str) -> ConfigurationError:
    return ConfigurationError(f"{SETTING}: expected {_VALUE_FORMS}, got {found}")


def _read_url(url: str, place: str) -> Parameters:
    try:
        return dict(conninfo_to_dict(url))
    except (psycopg.ProgrammingError, UnicodeError):
        # The driver's message repeats the text, which holds a password.
        raise ConfigurationError(f"{place}: expected {_URL_FORM}, got text that is none") from None


def _completed(given: Mapping[str, Any], *, needs_tls: bool = False) -> Parameters:
    return with_tls({**_NETWORK, **given}, required=needs_tls)
