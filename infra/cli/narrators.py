"""Who tells what `leasehook dev` does: sentences for a person, or one line of JSON for a script."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.cli.output import print_json, say
from infra.receiver import Received
from infra.state import DevState
from shared.courier import printable
from shared.dispatch import Attempted, AttemptLog
from shared.telemetry import attempt_log

_SHOWN_CHARACTERS = 200


class JsonNarrator:
    """Writes one line to stdout when all is ready; everything else goes to stderr."""

    def step(self, text: str) -> None:
        """See `infra.local.Narrator`."""
        say(text, stderr=True)

    def received(self, webhook: Received) -> None:
        """See `infra.local.Narrator`."""
        say(_received(webhook), stderr=True)

    def ready(self, state: DevState) -> None:
        """See `infra.local.Narrator`."""
        print_json(
            {
                "url": state.url,
                "api_key": state.api_key,
                "database_url": state.database_url,
                "console_url": f"{state.url}/console",
            }
        )

    @property
    def attempts(self) -> AttemptLog:
        """JSON lines."""
        return attempt_log(sys.stderr)


class TerminalNarrator:
    """Speaks to whoever sits at the terminal."""

    def step(self, text: str) -> None:
        """See `infra.local.Narrator`."""
        say(text)

    def received(self, webhook: Received) -> None:
        """See `infra.local.Narrator`."""
        say(_received(webhook))

    def ready(self, state: DevState) -> None:
        """See `infra.local.Narrator`."""
        say(_welcome(state, _program(), database_is_set=bool(os.environ.get("DATABASE_URL"))))

    @property
    def attempts(self) -> AttemptLog:
        """Sentences."""
        return _tell_attempts


def _tell_attempts(attempts: Sequence[Attempted]) -> None:
    for each in attempts:
        result = each.status_code if each.status_code is not None else each.error_kind
        say(
            f"delivery {each.delivery_id}: attempt {each.attempt}, {result} in {each.duration_ms} ms"
        )


def _received(webhook: Received) -> str:
    if webhook.fault is not None:
        return f"demo receiver: refused a request, {webhook.fault}"
    text = printable(webhook.body.decode("utf-8", "replace"))
    if len(text) > _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "…"
    return f"demo receiver: got {webhook.message_id}, signature good: {text}"


def _program() -> str:
    """How to call this program in another terminal of the same folder."""
    called = Path(sys.argv[0]).resolve()
    found = shutil.which("leasehook")
    if found is not None and Path(found).resolve() == called:
        return "leasehook"
    near = os.path.relpath(called)
    return shlex.quote(str(called) if near.startswith(os.pardir) else near)


def _welcome(state: DevState, program: str, *, database_is_set: bool) -> str:
    note = (
        "\nDATABASE_URL is set, so in shells that have it these commands work on that database: unset it first.\n"
        if database_is_set
        else ""
    )
    return f"""
Leasehook is running. Ctrl-C stops it; the data stays.

  API      {state.url}
  API key  {state.api_key}

Publish an event, in another terminal:

  curl {state.url}/v1/events \\
    -H 'authorization: Bearer {state.api_key}' \\
    -d '{{"type": "demo.hello", "payload": {{"text": "Hello again"}}}}'

or with the command line, which finds this database by itself:

  {program} publish demo.hello '{{"text": "Hello again"}}'
  {program} deliveries list
  {program} tail
  {program} doctor
  {program} endpoints create --url https://example.com/webhooks --event-types 'order.*'
{note}"""
