"""What can go wrong with a private Postgres server."""


class PostgresError(RuntimeError):
    """The server cannot be started or used; the message says what to do."""


class DataDirectoryInUse(PostgresError):
    """Another server, or another process that is starting one, holds the data directory."""


class PortTaken(PostgresError):
    """Something else listens on the port."""
