"""The composition root: reads the settings and makes what the functions share, once per process, on first use."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from shared.config import Settings
from shared.crypto import Sealer
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
        return Database(self.settings.require_database_url())

    @cached_property
    def sealer(self) -> Sealer:
        """Seals and opens secrets."""
        return Sealer(self.settings.require_secret_keys())


@cache
def process_runtime() -> Runtime:
    """The runtime of this process, from its environment.

    Raises:
        ConfigurationError: a setting is wrong; the next call reads it again.
    """
    return Runtime.read(os.environ)
