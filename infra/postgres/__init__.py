"""A private Postgres server from unpacked binaries: nothing to install, no Docker, no administrator.

What lies in the data directory:

    lock            held (flock) by every process of a running server, names the process that started it
    server.log      the output of this start; `server.log.old` that of the one before
    cluster/        appears complete or not at all: it is made as `cluster.new` and then renamed
        password    of the superuser `postgres`, readable by the server's account only
        data/       Postgres' own data directory

The server listens on 127.0.0.1 or on a socket in a private directory, never on both, and always asks for
the password. It ends with the process that started it, however that process ends.
"""

import sys

if sys.platform == "win32":
    raise ImportError(
        "The embedded Postgres runs on Linux and macOS only. On Windows work inside WSL, "
        "or set DATABASE_URL to a server that is already running."
    )

from infra.postgres.binaries import SUPPORTED_VERSIONS, find_binaries
from infra.postgres.errors import DataDirectoryInUse, PostgresError
from infra.postgres.server import Server, start_postgres

__all__ = [
    "SUPPORTED_VERSIONS",
    "DataDirectoryInUse",
    "PostgresError",
    "Server",
    "find_binaries",
    "start_postgres",
]
