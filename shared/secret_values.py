"""The one place that asks AWS for a secret: values of Secrets Manager and Parameter Store, and tokens for RDS.

Through Powertools Parameters on boto3, which the Lambda runtime brings along and a process without such a secret never
imports.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, assert_never

from shared.errors import ConfigurationError, DatabaseUnavailable

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.parameters import BaseProvider
    from boto3.session import Session

# A value is kept until the database refuses it: one that expired would make Secrets Manager's outages ours.
_KEPT_SECONDS = 10 * 365 * 86400
# Twice (with one retry) they are well below the 20 seconds that ingest has, so that it answers for itself.
_CONNECT_SECONDS = 2
_READ_SECONDS = 2
_ATTEMPTS = 2
_FRUITLESS_FETCHES = 3
"""After so many that brought nothing new, the next ones are spaced."""
_SPACING_SECONDS = 1.0
_FORGET_SECONDS = 60.0
_BUSY = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "LimitExceededException",
    }
)


class SecretStore(Enum):
    """Where a secret is kept; the value is the word before the colon of a reference."""

    SECRETS_MANAGER = "secretsmanager"
    PARAMETER_STORE = "ssm"


@dataclass(frozen=True, slots=True)
class SecretReference:
    """A secret by the setting that refers to it, its store, and its name or ARN there."""

    setting: str
    store: SecretStore
    name: str


REFERENCE_FORMS = "secretsmanager:<name or ARN> or ssm:<parameter name>"


def parse_reference(setting: str, text: str) -> SecretReference | None:
    """The secret that a setting's text refers to; None if it is no reference.

    Raises:
        ValueError: it is a reference without a name; the message says what is expected.
    """
    word, colon, name = text.partition(":")
    stores = {store.value: store for store in SecretStore}
    if not colon or word not in stores:
        return None
    name = name.strip()
    # Both services' names are short and plain; what else comes here was meant for another setting.
    if not name or len(name) > 2048 or not name.isprintable() or " " in name:
        raise ValueError(REFERENCE_FORMS)
    return SecretReference(setting, stores[word], name)


@dataclass(slots=True)
class _Fetches:
    """How it went for one secret: when the last one ended, which it was, and how many in a row brought nothing new."""

    ended_at: float
    count: int = 1
    fruitless_count: int = 0


class SecretValues:
    """Secrets of AWS, each fetched when it is first asked for and kept for the life of the process.

    `clock` is the wall clock in seconds: another one may stand still while a Lambda environment is frozen. Safe for
    several threads.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._providers: dict[SecretStore, BaseProvider] = {}
        self._fetches: dict[SecretReference, _Fetches] = {}
        self._unreadable: set[SecretReference] = set()
        self._rds: Any = None

    def fetch_count(self, reference: SecretReference) -> int:
        """How often the secret was fetched, for `replacement` to know what has been seen."""
        with self._lock:
            return self._fetches[reference].count if reference in self._fetches else 0

    def value(self, reference: SecretReference) -> str:
        """The secret's text.

        Raises:
            ConfigurationError: there is no such secret, or this process may not read it.
            DatabaseUnavailable: its store did not answer.
        """
        with self._lock:
            known = reference in self._fetches
            value = self._get(reference, force_fetch=reference in self._unreadable)
            if not known:
                self._fetches[reference] = _Fetches(self._clock())
            return value

    def replacement(
        self,
        reference: SecretReference,
        refused: str,
        seen_count: int,
        *,
        spacing_seconds: float = 0.0,
    ) -> str:
        """The secret's text after `refused` was found to be wrong: fetched again, once.

        A fetch serves all who were refused before it ended. Where the fetches bring nothing new again and again, they
        are spaced by a second: then something else is wrong, and every environment asks.

        Args:
            reference: the secret.
            refused: the text that was wrong.
            seen_count: `fetch_count` when it was found to be.
            spacing_seconds: no fetch sooner than so long after the last one.

        Raises:
            ConfigurationError, DatabaseUnavailable: see `value`.
        """
        with self._lock:
            fetches = self._fetches.setdefault(reference, _Fetches(self._clock(), seen_count))
            kept = self._get(reference, force_fetch=False)
            if kept != refused or fetches.count != seen_count:
                return kept
            age_seconds = self._clock() - fetches.ended_at
            if not 0 <= age_seconds <= _FORGET_SECONDS:
                fetches.fruitless_count = 0
            if fetches.fruitless_count >= _FRUITLESS_FETCHES:
                spacing_seconds = max(spacing_seconds, _SPACING_SECONDS)
            # Backwards, the clock was put right, and nobody knows.
            if 0 <= age_seconds < spacing_seconds:
                return kept
            value = self._get(reference, force_fetch=True)
            fetches.ended_at = self._clock()
            fetches.count += 1
            fetches.fruitless_count = fetches.fruitless_count + 1 if value == refused else 0
            return value

    def database_token(self, host: str, port: int, user: str) -> str:
        """A password for RDS's IAM authentication, with which a connection may begin for 15 minutes.

        It is signed here; nobody is asked.

        Raises:
            ConfigurationError: there are no AWS credentials, or no region.
        """
        setting = "LEASEHOOK_DATABASE_CREDENTIALS"
        with self._lock, _explaining(setting):
            if self._rds is None:
                self._rds = self._session.client("rds")
            token = self._rds.generate_db_auth_token(DBHostname=host, Port=port, DBUsername=user)
        return str(token)

    @cached_property
    def _session(self) -> "Session":
        from boto3.session import Session  # noqa: PLC0415 - only who has such a secret pays for it

        return Session()

    def _get(self, reference: SecretReference, *, force_fetch: bool) -> str:
        with _explaining(reference.setting):
            options: dict[str, Any] = {}
            if reference.store is SecretStore.PARAMETER_STORE:
                options["decrypt"] = True
            value = self._provider(reference.store).get(
                reference.name, max_age=_KEPT_SECONDS, force_fetch=force_fetch, **options
            )
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                value = None
        if not isinstance(value, str):
            self._unreadable.add(reference)
            raise ConfigurationError(
                f"{reference.setting}: expected a secret with text in it, got binary data"
            )
        self._unreadable.discard(reference)
        return value

    def _provider(self, store: SecretStore) -> "BaseProvider":
        if store in self._providers:
            return self._providers[store]
        from aws_lambda_powertools.utilities.parameters import (  # noqa: PLC0415 - imports boto3
            SecretsProvider,
            SSMProvider,
        )
        from botocore.config import Config  # noqa: PLC0415 - as boto3

        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        )
        provider: BaseProvider
        match store:
            case SecretStore.SECRETS_MANAGER:
                provider = SecretsProvider(boto_config=config, boto3_session=self._session)
            case SecretStore.PARAMETER_STORE:
                provider = SSMProvider(boto_config=config, boto3_session=self._session)
            case _:
                assert_never(store)
        self._providers[store] = provider
        return provider


@contextmanager
def _explaining(setting: str) -> Iterator[None]:
    """Turn AWS's errors into ours."""
    try:
        from aws_lambda_powertools.utilities.parameters import (  # noqa: PLC0415 - imports boto3
            GetParameterError,
        )
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as boto3
    except ImportError:
        raise ConfigurationError(
            f"{setting}: expected boto3, which Lambda brings along, got none: install leasehook[local]"
        ) from None
    try:
        yield
    except GetParameterError as error:
        # Powertools wraps what happened.
        raise _explained(setting, error.__context__ or error) from None
    except (BotoCoreError, ClientError) as error:
        raise _explained(setting, error) from None


def _explained(setting: str, error: BaseException) -> ConfigurationError | DatabaseUnavailable:
    """What somebody has to put right, or what passes; without AWS's words, which name secrets, keys and roles."""
    from botocore.exceptions import (  # noqa: PLC0415 - as boto3
        ClientError,
        NoCredentialsError,
        NoRegionError,
        PartialCredentialsError,
    )

    match error:
        case ClientError():
            code = str(error.response.get("Error", {}).get("Code", "unknown"))
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
            if status >= 500 or code in _BUSY:
                return DatabaseUnavailable(f"{setting}: the store of the secret is busy: {code}")
            return ConfigurationError(
                f"{setting}: expected a secret that exists and that this process may read (and decrypt), got {code}"
            )
        case NoRegionError():
            return ConfigurationError(
                f"{setting}: expected a region in AWS_DEFAULT_REGION, got nothing"
            )
        case NoCredentialsError() | PartialCredentialsError():
            return ConfigurationError(f"{setting}: expected AWS credentials, got none")
        case _:
            return DatabaseUnavailable(
                f"{setting}: the store of the secret did not answer: {type(error).__name__}"
            )
