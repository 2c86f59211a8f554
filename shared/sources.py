"""Sources: the addresses that other people's webhooks come to, and what came."""

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict
from uuid import UUID

from shared.crypto import Sealer
from shared.domain.inbound import Refused, Verified, verify
from shared.domain.matching import is_event_type
from shared.errors import Conflict, Invalid, NotFound
from shared.inbound import read_configuration
from shared.listing import MOST_LOOKED_AT, Listing, bounded
from shared.rules import check_consumer, check_range, is_storable
from shared.source_secrets import (
    check_source_tolerance,
    choose_inbound_secret,
    open_keys,
    scheme_of,
    seal_key,
)
from shared.store.connection import Connection, Database, Row, fetch
from shared.store.tenancy import new_id

SLUG_PATTERN = "^[a-z0-9]([a-z0-9_-]{0,62}[a-z0-9])?$"
MAX_DESCRIPTION_LENGTH = 500
MAX_PREFIX_LENGTH = 64
MAX_REFUSAL_DAYS = 90
DEFAULT_OVERLAP_SECONDS = 86400
MAX_OVERLAP_SECONDS = 30 * 86400
MAX_LIVE_SECRETS = 5
"""Every one of them is tried on each request."""

Verdict = Literal["accepted", "duplicate"]

_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?", re.ASCII)
_CHANGEABLE = ("description", "consumer", "event_type_prefix", "tolerance_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSource:
    """What a user says about a new source. None means: the default, which is a random slug and secret."""

    provider: str
    slug: str | None = None
    secret: str | None = field(default=None, repr=False)
    configuration: Mapping[str, Any] | None = None
    description: str | None = None
    consumer: str | None = None
    event_type_prefix: str | None = None
    tolerance_seconds: int | None = None


class SourceChanges(TypedDict, total=False):
    """What a user wants changed. A name that is absent stays as it is; None means: the default."""

    description: str | None
    consumer: str | None
    event_type_prefix: str | None
    tolerance_seconds: int | None


def create_source(database: Database, sealer: Sealer, tenant_id: UUID, new: NewSource) -> Row:
    """Make a source; the answer holds its `secret`, which is shown this once.

    Raises:
        Invalid: a field breaks a rule; nothing is stored.
        Conflict: the slug is taken.
        DatabaseUnavailable: see `Database.connection`.
    """
    slug = secrets.token_hex(12) if new.slug is None else new.slug
    if not _SLUG.fullmatch(slug):
        raise Invalid(
            "slug",
            "must be 1 to 64 lower-case letters, digits, '-' or '_', with a letter or digit at both ends",
        )
    scheme = scheme_of(new.provider, new.configuration)
    settings = {name: getattr(new, name) for name in _CHANGEABLE}
    _check_settings(settings)
    check_source_tolerance(scheme, new.tolerance_seconds)
    secret, key = choose_inbound_secret(new.provider, scheme, new.secret)
    source_id = new_id(database)
    stored = {
        **settings,
        "id": source_id,
        "tenant_id": tenant_id,
        "slug": slug,
        "provider": new.provider,
        "configuration": None if new.configuration is None else json.dumps(dict(new.configuration)),
        "sealed": seal_key(sealer, source_id, key),
    }
    with database.as_tenant(tenant_id) as connection:
        if not fetch(connection, "create_source", stored):
            raise Conflict("the slug is taken: choose another, or none and get a random one")
        shown = _show(connection, tenant_id, source_id)
    return {**shown, "secret": secret}


def get_source(database: Database, tenant_id: UUID, source: UUID | str) -> Row:
    """A source by its id or its slug, without secrets.

    Raises:
        NotFound: the tenant has no such source.
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.as_tenant(tenant_id) as connection:
        return _show(connection, tenant_id, source)


def list_sources(
    database: Database, tenant_id: UUID, *, before: UUID | None = None, limit: int
) -> Listing:
    """Up to `limit` sources of those made before `before`, newest first; looks at a bounded number of rows.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    asked = {
        "tenant_id": tenant_id,
        "before": before,
        "limit": limit + 1,
        "look_limit": MOST_LOOKED_AT,
    }
    with bounded(database, tenant_id) as connection:
        return _listing(fetch(connection, "list_sources", asked), limit, _shown)


def change_source(
    database: Database, tenant_id: UUID, source_id: UUID, changes: SourceChanges
) -> Row:
    """Change some fields of a source. What was received stays as it is.

    Raises:
        NotFound: the tenant has no such source.
        Invalid: a field breaks a rule; nothing is changed.
        DatabaseUnavailable: see `Database.connection`.
    """
    _check_settings(changes)
    key = {"tenant_id": tenant_id, "source_id": source_id}
    with database.as_tenant(tenant_id) as connection:
        _lock(connection, key)
        before = _show(connection, tenant_id, source_id)
        scheme = scheme_of(before["provider"], before["configuration"])
        check_source_tolerance(scheme, changes.get("tolerance_seconds"))
        after = {name: before[name] for name in _CHANGEABLE} | dict(changes)
        fetch(connection, "update_source", after | key)
        return _show(connection, tenant_id, source_id)


def switch_source(database: Database, tenant_id: UUID, source_id: UUID, *, disabled: bool) -> Row:
    """Accept nothing from a source's provider until it is enabled, or accept again.

    Raises:
        NotFound: the tenant has no such source.
        DatabaseUnavailable: see `Database.connection`.
    """
    key = {"tenant_id": tenant_id, "source_id": source_id}
    with database.as_tenant(tenant_id) as connection:
        fetch(connection, "switch_source", key | {"disabled": disabled})
        return _show(connection, tenant_id, source_id)


def delete_source(database: Database, tenant_id: UUID, source_id: UUID) -> None:
    """Delete a source: nothing more is accepted, its secrets are erased, and its slug is free.

    What was received stays for its retention.

    Raises:
        NotFound: the tenant has no such source.
        DatabaseUnavailable: see `Database.connection`.
    """
    key = {"tenant_id": tenant_id, "source_id": source_id}
    with database.as_tenant(tenant_id) as connection:
        if not fetch(connection, "delete_source", key):
            raise _missing(source_id)
        fetch(connection, "erase_source_secrets", key | {"all": True})


def rotate_source_secret(
    database: Database,
    sealer: Sealer,
    tenant_id: UUID,
    source_id: UUID,
    *,
    secret: str | None = None,
    overlap_seconds: int = DEFAULT_OVERLAP_SECONDS,
) -> Row:
    """Accept a new secret at once, and beside it the old ones for `overlap_seconds`.

    The answer is the source with the new `secret`, which is shown this once.

    Raises:
        NotFound: the tenant has no such source.
        Invalid: the secret, or the overlap, breaks a rule.
        Conflict: as many secrets are accepted already as may.
        DatabaseUnavailable: see `Database.connection`.
    """
    check_range("overlap_seconds", overlap_seconds, 0, MAX_OVERLAP_SECONDS)
    key = {"tenant_id": tenant_id, "source_id": source_id}
    with database.as_tenant(tenant_id) as connection:
        _lock(connection, key)
        shown = _show(connection, tenant_id, source_id)
        scheme = scheme_of(shown["provider"], shown["configuration"])
        text, new_key = choose_inbound_secret(shown["provider"], scheme, secret)
        fetch(connection, "expire_source_secrets", key | {"overlap_seconds": overlap_seconds})
        fetch(connection, "erase_source_secrets", key | {"all": overlap_seconds == 0})
        if len(fetch(connection, "live_source_secrets", key)) >= MAX_LIVE_SECRETS:
            raise Conflict(
                f"{MAX_LIVE_SECRETS} secrets are accepted already: wait until one of them ends, or rotate with "
                "overlap_seconds 0, which ends them all at once"
            )
        sealed = seal_key(sealer, source_id, new_key)
        fetch(connection, "add_source_secret", key | {"sealed": sealed})
    return {**shown, "secret": text}


def list_received(
    database: Database,
    tenant_id: UUID,
    source_id: UUID,
    *,
    verdict: Verdict | None = None,
    before: UUID | None = None,
    limit: int,
) -> Listing:
    """Up to `limit` of what a source received before `before`, newest first; looks at a bounded number of rows.

    Raises:
        NotFound: the tenant has no such source.
        DatabaseUnavailable: see `Database.connection`.
    """
    asked = {
        "tenant_id": tenant_id,
        "source_id": source_id,
        "verdict": verdict,
        "before": before,
        "limit": limit + 1,
        # One more than a page, or as many as a rare verdict may take.
        "look_limit": limit + 1 if verdict is None else MOST_LOOKED_AT,
    }
    with bounded(database, tenant_id) as connection:
        _show(connection, tenant_id, source_id)
        return _listing(fetch(connection, "list_received", asked), limit, dict)


def refusals(database: Database, tenant_id: UUID, source_id: UUID, days: int) -> list[Row]:
    """How often requests to a source were refused, by day (UTC) and reason, the newest day first.

    `days` is how many days, today among them, 1 to MAX_REFUSAL_DAYS.

    Raises:
        NotFound: the tenant has no such source.
        DatabaseUnavailable: see `Database.connection`.
    """
    check_range("days", days, 1, MAX_REFUSAL_DAYS)
    key = {"tenant_id": tenant_id, "source_id": source_id}
    with database.as_tenant(tenant_id) as connection:
        _show(connection, tenant_id, source_id)
        return fetch(connection, "source_refusals", key | {"days": days})


def judge_request(
    database: Database,
    sealer: Sealer,
    tenant_id: UUID,
    source_id: UUID,
    *,
    headers: Mapping[str, Sequence[bytes]],
    body: bytes,
    now: int,
) -> Verified | Refused:
    """What the gateway would say to a request at the Unix time `now`, and why. Nothing is stored.

    Raises:
        NotFound: the tenant has no such source.
        DatabaseUnavailable: see `Database.connection`.
    """
    key = {"tenant_id": tenant_id, "source_id": source_id}
    with database.as_tenant(tenant_id) as connection:
        source = _show(connection, tenant_id, source_id)
        rows = fetch(connection, "live_source_secrets", key)
    keys = open_keys(sealer, source_id, [row["sealed"] for row in rows])
    scheme = scheme_of(source["provider"], source["configuration"])
    return verify(scheme, keys, headers, body, now, tolerance_seconds=source["tolerance_seconds"])


def _check_settings(settings: Mapping[str, Any]) -> None:
    description = settings.get("description")
    if description is not None and not is_storable(description, MAX_DESCRIPTION_LENGTH):
        raise Invalid(
            "description", f"must be at most {MAX_DESCRIPTION_LENGTH} characters, none of them NUL"
        )
    check_consumer("consumer", settings.get("consumer"))
    prefix = settings.get("event_type_prefix")
    if prefix is not None and not (len(prefix) <= MAX_PREFIX_LENGTH and is_event_type(prefix)):
        raise Invalid(
            "event_type_prefix",
            f"must be at most {MAX_PREFIX_LENGTH} letters, digits, '_' and '-', in parts with '.' between them",
        )


def _lock(connection: Connection, key: Mapping[str, UUID]) -> None:
    if not fetch(connection, "lock_source", key):
        raise _missing(key["source_id"])


def _show(connection: Connection, tenant_id: UUID, source: UUID | str) -> Row:
    by_id = isinstance(source, UUID)
    asked = {
        "tenant_id": tenant_id,
        "source_id": source if by_id else None,
        "slug": None if by_id else source,
    }
    rows = fetch(connection, "get_source", asked)
    if not rows:
        raise _missing(source)
    return _shown(rows[0])


def _shown(row: Row) -> Row:
    return {**row, "configuration": read_configuration(row), "path": f"/in/{row['slug']}"}


def _listing(rows: Sequence[Row], limit: int, show: Callable[[Row], Row]) -> Listing:
    looked_to: UUID | None = rows[0]["looked_to"]
    matching = [row for row in rows if row["id"] is not None]
    shown = [show(row) for row in matching[:limit]]
    for row in shown:
        del row["looked_to"]
    return Listing(shown, shown[-1]["id"] if len(matching) > limit else looked_to)


def _missing(source: UUID | str) -> NotFound:
    return NotFound(f"there is no source {source}")
