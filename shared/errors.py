"""What can go wrong, for the edge to answer and the command line to print.

LeasehookError
├── ConfigurationError      a setting is missing or wrong; names key, expected and got
├── Invalid                 a request's field breaks a rule                         422
├── TooLarge                a request or payload has too many bytes                 413
├── Conflict                the request contradicts what is stored                  409
├── NotFound                no such thing, or not yours                             404
├── Unauthorized            no API key, or none that is known                       401
├── Forbidden               the key lacks the scope                                 403
├── TooManyRequests         the key has used up its requests for now                429
├── DatabaseUnavailable     the database did not answer; nothing is known stored    503
└── StatementRefused        the database refused a statement for what is in it
"""


class LeasehookError(Exception):
    """The root. Its message is meant for the person who can act on it."""


class ConfigurationError(LeasehookError):
    """A setting is missing or wrong; the message names the key, what is expected and what was found."""


class Invalid(LeasehookError):
    """A field of a request breaks a rule.

    Attributes:
        field: where in the request, such as `type` or `events[3].payload`.
        rule: what the field must be; never repeats the offending value.
    """

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule

    def within(self, parent: str) -> "Invalid":
        """The same fault seen from an enclosing object or list."""
        return Invalid(f"{parent}.{self.field}", self.rule)


class TooLarge(LeasehookError):
    """A request or a payload has more bytes than are accepted."""


class Conflict(LeasehookError):
    """The request contradicts what is stored."""


class NotFound(LeasehookError):
    """There is no such thing, or it belongs to another tenant."""


class Unauthorized(LeasehookError):
    """No API key was given, or none that is known."""


class Forbidden(LeasehookError):
    """The API key is valid and lacks the scope."""


class TooManyRequests(LeasehookError):
    """The API key has used up its requests for now.

    Attributes:
        retry_after_seconds: when the next one will be answered.
    """

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__(
            f"the API key has used up its requests: try again in {retry_after_seconds} s"
        )
        self.retry_after_seconds = retry_after_seconds


class DatabaseUnavailable(LeasehookError):
    """The database did not answer, or refused for a reason that passes."""


class SchemaOutdated(DatabaseUnavailable):
    """The database lacks what this release names: its migrations are still to be run."""


class StatementRefused(LeasehookError):
    """The database refused a statement for what is in it; the same statement will be refused again."""
