"""Which database a command works on, and whose rows in it."""

import os
from collections.abc import Mapping
from uuid import UUID

from infra.state import live_states, state_directory
from shared.errors import ConfigurationError, NotFound
from shared.runtime import Runtime, process_runtime


def connect(**overrides: str) -> Runtime:
    """The runtime of this process, on DATABASE_URL or on the running `leasehook dev`.

    The settings go into the process's environment, where the functions look for them, as they do on Lambda.

    Args:
        overrides: environment variables that this command decides.

    Raises:
        ConfigurationError: a setting is wrong, or there is no database.
    """
    os.environ.update({**found_settings(os.environ), **overrides})
    return process_runtime()


def found_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What a running `leasehook dev` adds to the environment; what is set there already stays.

    Raises:
        ConfigurationError: DATABASE_URL is not set nor a secret in its stead, and no `leasehook dev` is running.
    """
    database_url = environment.get("DATABASE_URL", "").strip()
    if environment.get("LEASEHOOK_DATABASE_CREDENTIALS", "").strip() and not database_url:
        return {}
    states = live_states(state_directory(environment))
    if database_url:
        states = [state for state in states if state.database_url == database_url]
    elif not states:
        raise ConfigurationError(
            "no database: start `leasehook dev` in another terminal, or set DATABASE_URL to "
            "postgresql://user:password@host:5432/database"
        )
    settings = states[0].settings if states else {}
    return {
        name: value for name, value in settings.items() if not environment.get(name, "").strip()
    }


def find_tenant(runtime: Runtime, name: str) -> UUID:
    """The id of an existing tenant.

    Raises:
        NotFound: there is none of that name.
        DatabaseUnavailable: see `Database.connection`.
    """
    rows = runtime.database.fetch("find_tenant", {"name": name})
    if not rows:
        raise NotFound(
            f"there is no tenant '{name}': `leasehook keys create --tenant NAME` makes one"
        )
    return UUID(str(rows[0]["id"]))
