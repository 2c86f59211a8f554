"""The log of a Lambda function: JSON lines by Powertools' Logger, for our lines and for everybody else's.

One query of CloudWatch Logs Insights covers all functions, since every line has the same keys: `level`, `location` (the
module), `message`, `timestamp`, `service`, `cold_start`, `function_request_id`, and where there is one `correlation_id`,
`release` and `xray_trace_id`. AWS_LAMBDA_LOG_LEVEL and POWERTOOLS_LOG_LEVEL say which lines are written.

The modules below log with the standard library, and say nothing about how. So the command line and `leasehook dev`,
which run the same modules outside of Lambda, keep their own way of speaking.
"""

import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, cast

from shared.errors import LeasehookError

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

RELEASE_VARIABLE = "LEASEHOOK_RELEASE"
"""What tells one release's lines from another's, and its function from the published version before it."""

_OURS = ("shared", "functions")
_SWITCHES = ("POWERTOOLS_DEV", "POWERTOOLS_LOG_DEDUPLICATION_DISABLED")
"""What Powertools' Logger reads as true or false, and fails at if it is neither."""


class FunctionLog:
    """What one Lambda function writes to stderr; stdout is left to the metrics.

    Args:
        service: the function's name in every line.
    """

    def __init__(self, service: str) -> None:
        # Here, so that it belongs to the start of the environment and to no invocation.
        import aws_lambda_powertools  # noqa: F401, PLC0415

        self._service = service
        self._is_cold = True

    @contextmanager
    def invocation(self, context: object, correlation_id: str | None = None) -> Iterator[None]:
        """Write what is logged in the block, by whichever logger, as lines of this invocation.

        `context` is Lambda's, whose request id is all that is taken from it. Without one this is no Lambda, and whoever
        called decides about logging.
        """
        if context is None:
            yield
            return
        logger = self._logger
        logger.append_keys(
            cold_start=self._is_cold,
            function_request_id=getattr(context, "aws_request_id", None),
            correlation_id=correlation_id,
        )
        self._is_cold = False
        handler = logger.registered_handler
        root = logging.getLogger()
        displaced = [each for each in root.handlers if _is_of_the_runtime(each)]
        for each in displaced:
            root.removeHandler(each)
        root.addHandler(handler)
        for name in _OURS:
            # Zero, which Lambda's TRACE comes out as, would ask the root logger.
            logging.getLogger(name).setLevel(max(logger.log_level, 1))
        try:
            yield
        finally:
            for name in _OURS:
                logging.getLogger(name).setLevel(logging.NOTSET)
            root.removeHandler(handler)
            for each in displaced:
                root.addHandler(each)

    def line(self, level: int, location: str, message: str) -> str | None:
        """A line without fields of its own, as Powertools writes it now; None if its level is not logged.

        For those that log too much for a call each: see `shared.telemetry.attempt_log`.
        """
        logger = self._logger
        if level < logger.log_level:
            return None
        record = logging.LogRecord(location, level, location, 0, message, None, None)
        return logger.registered_handler.format(record)

    @cached_property
    def _logger(self) -> "Logger":
        fault = ""
        try:
            logger = self._make_logger(None)
        except (TypeError, ValueError):
            # What a typing error would take down here is the publishing of events.
            fault = "POWERTOOLS_LOG_LEVEL: expected DEBUG, INFO, WARNING, ERROR or CRITICAL; INFO is used"
            try:
                logger = self._make_logger("INFO")
            except ValueError:
                for name in _SWITCHES:
                    os.environ.pop(name, None)
                # Those attempts got as far as handlers without a form.
                logging.getLogger(self._service).handlers.clear()
                fault = f"{' and '.join(_SWITCHES)}: expected true or false; they are ignored"
                logger = self._make_logger("INFO")
        handler = logger.registered_handler
        handler.setLevel(logger.log_level)
        handler.addFilter(_admit)
        if release := os.environ.get(RELEASE_VARIABLE, "").strip():
            logger.append_keys(release=release)
        if fault:
            logger.warning(fault)
        return logger

    def _make_logger(self, level: str | None) -> "Logger":
        from aws_lambda_powertools import Logger  # noqa: PLC0415

        return Logger(
            service=self._service,
            level=level,
            # For lines of the level DEBUG, of which there are none; a rate that is none would stop every invocation.
            sampling_rate=0.0,
            stream=cast("IO[str]", _Stderr()),
            # The line's number moves with every release, so that no query could name it.
            location="%(name)s",
            # Lambda reads level and time of a line only if the time is in this form.
            use_rfc3339=True,
            utc=True,
            json_serializer=_serialize,
            serialize_stacktrace=False,
        )


class _Stderr:
    """The standard error of the moment: Lambda's runtime puts a stream of its own in its place."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _is_of_the_runtime(handler: logging.Handler) -> bool:
    """Whether Lambda's runtime put it there (awslambdaric): it would write each line again, in its own form."""
    return type(handler).__name__.startswith("LambdaLogger")


def _admit(record: logging.LogRecord) -> bool:
    """Leave out what libraries chat about (Mangum tells the path of every request), and what exceptions quote."""
    if record.name.partition(".")[0] not in _OURS and record.levelno < logging.WARNING:
        return False
    if record.name == "asyncio":
        # Behind the first line it describes tasks, and quotes their exceptions.
        record.msg, record.args = record.getMessage().partition("\n")[0], ()
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        # Powertools takes these before it looks at the exception itself.
        record.exception = _describe(error)
        record.exception_name = type(error).__name__
        record.exception_notes = None
    return True


def _describe(error: BaseException) -> str:
    """A traceback that says where, and what only if the words are ours.

    Others' messages quote what they were given: Postgres prints the row that breaks a constraint.
    """
    parts = []
    chain: BaseException | None = error
    seen: set[int] = set()
    while chain is not None and id(chain) not in seen:
        seen.add(id(chain))
        said = f": {chain}" if isinstance(chain, LeasehookError) else ""
        frames = "".join(traceback.format_tb(chain.__traceback__))
        parts.append(
            f"Traceback (most recent call last):\n{frames}{type(chain).__qualname__}{said}"
        )
        if isinstance(chain, BaseExceptionGroup):
            parts.extend(_describe(each) for each in chain.exceptions)
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    return "\n\nwhich came from\n\n".join(parts)


def _serialize(line: dict[str, Any]) -> str:
    """One line of ASCII, whatever is in it, without what says nothing (`taskName` is Python's own, from 3.12 on)."""
    for name in ("sampling_rate", "taskName"):
        line.pop(name, None)
    return json.dumps(line, default=str, separators=(",", ":"))
