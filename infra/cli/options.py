"""Options that several commands share."""

from typing import Annotated

import typer

_TENANT_NAME_CHARACTERS = range(1, 201)


def _tenant_name(name: str) -> str:
    if len(name) not in _TENANT_NAME_CHARACTERS:
        raise typer.BadParameter("must be 1 to 200 characters")
    return name


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, for scripts.")]
Tenant = Annotated[
    str, typer.Option(callback=_tenant_name, metavar="NAME", help="Whose data to work on.")
]
