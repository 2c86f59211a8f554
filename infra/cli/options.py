"""Options that several commands share."""

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import typer

from infra.cli.instants import parse_instant
from shared.domain.matching import is_filter
from shared.domain.outcome import ErrorKind

_TENANT_NAME_CHARACTERS = range(1, 201)


def _tenant_name(name: str) -> str:
    if len(name) not in _TENANT_NAME_CHARACTERS:
        raise typer.BadParameter("must be 1 to 200 characters")
    return name


def _instant(text: str) -> datetime:
    try:
        return parse_instant(text, datetime.now(UTC))
    except ValueError as fault:
        raise typer.BadParameter(str(fault)) from None


def _type_filter(text: str | None) -> str | None:
    if text is not None and not is_filter(text):
        raise typer.BadParameter("write an event type, a prefix such as 'order.*', or '*'")
    return text


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, for scripts.")]
Tenant = Annotated[
    str, typer.Option(callback=_tenant_name, metavar="NAME", help="Whose data to work on.")
]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many at the most.")]
Id = Annotated[UUID, typer.Argument(metavar="ID")]

OfEndpoint = Annotated[UUID | None, typer.Option(metavar="ID", help="Only this endpoint's.")]
OfConsumer = Annotated[str | None, typer.Option(metavar="ID", help="Only this consumer's.")]
OfType = Annotated[
    str | None,
    typer.Option(callback=_type_filter, metavar="TYPE", help="Such as order.paid or 'order.*'."),
]
CreatedAfter = Annotated[
    datetime | None,
    typer.Option(parser=_instant, metavar="INSTANT", help="Made since: RFC 3339, or 2h for ago."),
]
CreatedBefore = Annotated[
    datetime | None, typer.Option(parser=_instant, metavar="INSTANT", help="Made before.")
]
Since = Annotated[
    datetime, typer.Option(parser=_instant, metavar="INSTANT", help="RFC 3339, or 2h for ago.")
]
OfErrorKind = Annotated[
    ErrorKind | None, typer.Option(help="Whose last attempt failed in this way.")
]


def items(text: str) -> list[str]:
    """What a list with commas holds; an empty text is an empty list."""
    return [item.strip() for item in text.split(",")] if text.strip() else []
