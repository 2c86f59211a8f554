"""The composition root: reads the settings and makes what the functions share, once per process, on first use."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from shared.config import Settings, parse_secret_keys
from shared.crypto import Sealer
from shared.errors import ConfigurationError
from shared.secret_values import SecretReference, SecretValues
from shared.store.connection import Database


@dataclass(frozen=True)
class Runtime:
    """What a process works with; each part is made when it is first asked for."""

    settings: Settings

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Runtime":
        """A runtime for these environment variables.

        Raises:
            ConfigurationError: a setting is wrong.
        """
        return cls(Settings.read(environment))

    @cached_property
    def database(self) -> Database:
        """The connections."""
        settings = self.settings
        return Database(
            settings.require_database_url(),
            settings.database_credentials,
            secrets=self._secrets,
            statement_seconds=settings.statement_timeout_seconds,
        )

    @cached_property
    def sealer(self) -> Sealer:
        """Seals and opens secrets, with keys that are fetched once where the setting says where they are.

        Raises:
            ConfigurationError: there is no key, or none that is one; the next call looks again.
            DatabaseUnavailable: the store of the key did not answer; likewise.
        """
        keys = self.settings.require_secret_keys()
        if isinstance(keys, SecretReference):
            keys = self._fetched_keys(keys)
        return Sealer(keys)

    @cached_property
    def _secrets(self) -> SecretValues:
        return SecretValues()

    def _fetched_keys(self, reference: SecretReference) -> tuple[bytes, ...]:
        text = self._secrets.value(reference)
        try:
            return _keys_in(reference, text)
        except ConfigurationError:
            # Whoever puts it right waits for us to look again.
            seen_count = self._secrets.fetch_count(reference)
            repaired = self._secrets.replacement(reference, text, seen_count)
            if repaired == text:
                raise
            return _keys_in(reference, repaired)


def _keys_in(reference: SecretReference, text: str) -> tuple[bytes, ...]:
    try:
        keys = parse_secret_keys(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{reference.setting}: expected {error}, got a secret that is not shown"
        ) from None
    if not keys:
        raise ConfigurationError(
            f"{reference.setting}: expected a secret with a key in it, got nothing"
        )
    return keys


@cache
def process_runtime() -> Runtime:
    """The runtime of this process, from its environment.

    Raises:
        ConfigurationError: a setting is wrong; the next call reads it again.
    """
    return Runtime.read(os.environ)
