"""An endpoint's fields: as options of the commands, as values from them, and as people read them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli.options import items

if TYPE_CHECKING:
    from shared.store.connection import Row

Channels = Annotated[
    str | None, typer.Option(metavar="A,B,…", help="Takes only events in one of these.")
]
Description = Annotated[str | None, typer.Option()]
Secret = Annotated[
    str | None, typer.Option(help="Signs requests: whsec_… or whsk_…. Default: a new one.")
]
Headers = Annotated[
    list[str] | None, typer.Option(metavar="'NAME: VALUE'", help="Sent along; repeat it.")
]
TimeoutSeconds = Annotated[int | None, typer.Option(help="For a whole attempt, 1 to 30.")]
MaxInFlight = Annotated[int | None, typer.Option(help="Requests at the same time.")]
RatePerSecond = Annotated[int | None, typer.Option(help="Requests per second.")]
RetryDelaysSeconds = Annotated[
    str | None, typer.Option(metavar="10,60,…", help="Before each retry; '' for no retries.")
]


class Kind(StrEnum):
    """How requests are signed."""

    V1 = "v1"
    V1A = "v1a"


Signing = Annotated[
    Kind | None,
    typer.Option(help="v1: with a shared secret. v1a: the receiver needs a public key only."),
]


class Unsettable(StrEnum):
    """Fields that can go back to their default."""

    CHANNELS = "channels"
    DESCRIPTION = "description"
    HEADERS = "headers"
    TIMEOUT_SECONDS = "timeout-seconds"
    RETRY_DELAYS_SECONDS = "retry-delays-seconds"
    MAX_IN_FLIGHT = "max-in-flight"
    RATE_PER_SECOND = "rate-per-second"


def default_of(field: Unsettable) -> Any:  # noqa: ANN401 - of the kind that the field has
    """What stands for a field's default when an endpoint is changed."""
    return {} if field is Unsettable.HEADERS else None


def read_headers(lines: Sequence[str]) -> dict[str, str]:
    """Header lines by name. The values often are credentials, so no message repeats them.

    Raises:
        BadParameter: a line is no header, or a name is there twice.
    """
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise typer.BadParameter("write a header as 'Name: value'")
        if name.strip() in headers:
            raise typer.BadParameter(f"the header {name.strip()} is given twice")
        headers[name.strip()] = value.strip()
    return headers


def read_delays(text: str) -> list[int]:
    """Delays in seconds.

    Raises:
        BadParameter: they are none.
    """
    delays = items(text)
    if not all(each.isascii() and each.isdigit() and len(each) <= len("86400") for each in delays):
        raise typer.BadParameter(
            "write the delays as whole seconds from 1 to 86400, separated by commas"
        )
    return [int(each) for each in delays]


def state_words(row: "Row") -> str:
    """Whether an endpoint is sent to."""
    if row["disabled_at"] is not None:
        return f"disabled: {row['disabled_reason']}"
    state: str = row["circuit"]["state"]
    return "ok" if state == "closed" else f"circuit {state.replace('_', ' ')}"


def print_endpoint(row: "Row", as_json: bool) -> None:
    """An endpoint, with its secret if it is in the row."""
    from infra.cli.output import (  # noqa: PLC0415 - rich loads slowly
        instant_text,
        print_fields,
        print_json,
    )

    if as_json:
        print_json(row)
        return
    delays = row["retry_delays_seconds"]
    print_fields(
        [
            ("id", row["id"]),
            ("url", row["url"]),
            ("state", state_words(row)),
            ("circuit until", instant_text(row["circuit"]["until"])),
            ("failing since", instant_text(row["circuit"]["failing_since"])),
            ("takes", ", ".join(row["event_types"])),
            ("channels", row["channels"] and ", ".join(row["channels"])),
            ("consumer", row["consumer"]),
            ("description", row["description"]),
            ("ordered", "yes" if row["ordered"] else None),
            ("headers", ", ".join(row["header_names"] or []) or None),
            ("timeout", row["timeout_seconds"] and f"{row['timeout_seconds']} s"),
            ("retries after", None if delays is None else _delays_text(delays)),
            ("in flight", row["max_in_flight"] and f"{row['max_in_flight']} at most"),
            ("rate", row["rate_per_second"] and f"{row['rate_per_second']} per second at most"),
            ("signing", row["signing"]),
            ("public key", row["public_key"]),
            ("secret", row.get("secret")),
            ("made", instant_text(row["created_at"])),
        ]
    )


def _delays_text(delays: Sequence[int]) -> str:
    return ", ".join(f"{each} s" for each in delays) if delays else "none"
