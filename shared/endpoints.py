"""Endpoints: made, looked at, changed, rotated, switched off and on, deleted, and tried out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict
from uuid import UUID

import msgspec

from shared.crypto import Sealer
from shared.domain.signing import format_secret
from shared.domain.targets import TargetPolicy
from shared.endpoint_rules import check_fields, check_url
from shared.endpoint_secrets import (
    Signing,
    choose_secret,
    header_names,
    open_secret,
    public_key_of,
    seal_headers,
    seal_secret,
    signing_of,
)
from shared.errors import Conflict, Invalid, NotFound
from shared.listing import MOST_LOOKED_AT, Listing
from shared.store.connection import Connection, Database, Row, fetch
from shared.store.tenancy import new_id

TEST_EVENT_TYPE = "leasehook.test"
DEFAULT_OVERLAP_SECONDS = 86400
MAX_OVERLAP_SECONDS = 30 * 86400
MAX_LIVE_SECRETS = 5
"""Every one of them adds a signature to each request."""

_CANCELLED_AT_ONCE = 2000
_ALIGNED_AT_ONCE = 2000
_OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEndpoint:
    """What a user says about a new endpoint. None means: the default."""

    url: str
    event_types: Sequence[str] = ("*",)
    channels: Sequence[str] | None = None
    consumer: str | None = None
    description: str | None = None
    secret: str | None = field(default=None, repr=False)
    signing: Signing | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: int | None = None
    retry_delays_seconds: Sequence[int] | None = None
    max_in_flight: int | None = None
    rate_per_second: int | None = None
    ordered: bool = False


class EndpointChanges(TypedDict, total=False):
    """What a user wants changed. A name that is absent stays as it is; None means: the default."""

    url: str
    event_types: Sequence[str]
    channels: Sequence[str] | None
    description: str | None
    headers: Mapping[str, str]
    timeout_seconds: int | None
    retry_delays_seconds: Sequence[int] | None
    max_in_flight: int | None
    rate_per_second: int | None
    ordered: bool


def create_endpoint(
    database: Database, sealer: Sealer, targets: TargetPolicy, tenant_id: UUID, new: NewEndpoint
) -> Row:
    """Make an endpoint, and its consumer if that is new; the answer holds its `secret`, which is shown this once.

    Raises:
        Invalid: a field breaks a rule; nothing is stored.
        DatabaseUnavailable: see `Database.connection`.
    """
    fields = asdict(new)
    url = check_url(new.url, targets)
    secret = choose_secret(new.secret, new.signing, "v1")
    check_fields(fields)
    endpoint_id = new_id(database)
    stored = {
        **_columns(fields),
        "id": endpoint_id,
        "tenant_id": tenant_id,
        "url": url,
        "headers_sealed": seal_headers(sealer, endpoint_id, new.headers),
        "secret_sealed": seal_secret(sealer, endpoint_id, secret),
    }
    with database.as_tenant(tenant_id) as connection:
        if new.consumer is not None:
            _ensure_consumer(connection, tenant_id, new.consumer)
        fetch(connection, "create_endpoint", stored)
        shown = _show(connection, sealer, tenant_id, endpoint_id)
    return {**shown, "secret": format_secret(secret)}


def get_endpoint(database: Database, sealer: Sealer, tenant_id: UUID, endpoint_id: UUID) -> Row:
    """An endpoint, without its secret and its headers' values.

    `signing`, `public_key` and `header_names` are None when they cannot be opened with the configured keys.

    Raises:
        NotFound: the tenant has no such endpoint.
        DatabaseUnavailable: see `Database.connection`.
    """
    with database.as_tenant(tenant_id) as connection:
        return _show(connection, sealer, tenant_id, endpoint_id)


def list_endpoints(
    database: Database,
    sealer: Sealer,
    tenant_id: UUID,
    *,
    consumer: str | None = None,
    disabled: bool | None = None,
    before: UUID | None = None,
    limit: int,
) -> Listing:
    """Up to `limit` endpoints of those made before `before`, newest first.

    Looks at a bounded number of rows, so there may be more although fewer than `limit` were found.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    asked = {
        "tenant_id": tenant_id,
        "consumer": consumer,
        "disabled": disabled,
        "before": before,
        "limit": limit + 1,
        "look_limit": MOST_LOOKED_AT,
    }
    with database.as_tenant(tenant_id) as connection:
        rows = fetch(connection, "list_endpoints", asked)
    looked_to: UUID | None = rows[0]["looked_to"]
    matching = [row for row in rows if row["id"] is not None]
    shown = [_shown(sealer, row) for row in matching[:limit]]
    return Listing(shown, shown[-1]["id"] if len(matching) > limit else looked_to)


def change_endpoint(
    database: Database,
    sealer: Sealer,
    targets: TargetPolicy,
    tenant_id: UUID,
    endpoint_id: UUID,
    *,
    changes: EndpointChanges,
) -> Row:
    """Change some fields of an endpoint.

    Another URL begins with a closed circuit and nothing counted against it; if failures had disabled the endpoint it
    is enabled again, and an operator's disabling stays. Deliveries that wait go to the URL, with the secrets, headers
    and limits, that are in force when they are sent.

    Raises:
        NotFound: the tenant has no such endpoint.
        Invalid: a field breaks a rule; nothing is changed.
        DatabaseUnavailable: see `Database.connection`.
    """
    check_fields(changes)
    values: dict[str, Any] = dict(changes)
    if "url" in changes:
        values["url"] = check_url(changes["url"], targets)
    if "headers" in changes:
        values["headers_sealed"] = seal_headers(sealer, endpoint_id, changes["headers"])
    key = {"tenant_id": tenant_id, "endpoint_id": endpoint_id}
    if changes.get("ordered"):
        # Before the endpoint itself, so that from its first ordered claim on everything waiting is in the line.
        _align_deliveries(database, key, ordered=True)
    with database.as_tenant(tenant_id) as connection:
        before = _lock(connection, key)
        if values:
            after = _columns(before | values)
            fetch(connection, "update_endpoint", after | key)
            if after["url"] != before["url"]:
                _begin_anew(connection, key, before)
        shown = _show(connection, sealer, tenant_id, endpoint_id)
    if "ordered" in changes:
        # Once more: for what was published meanwhile by transactions that still saw the endpoint as it was.
        _align_deliveries(database, key, ordered=None)
    return shown


def rotate_secret(
    database: Database,
    sealer: Sealer,
    tenant_id: UUID,
    endpoint_id: UUID,
    *,
    secret: str | None = None,
    signing: Signing | None = None,
    overlap_seconds: int = DEFAULT_OVERLAP_SECONDS,
) -> Row:
    """Sign with a new secret at once, and beside it with the old ones for `overlap_seconds`.

    The answer is the endpoint with the new `secret`, which is shown this once. Without `secret` one is made, of the
    same kind as the last one or as `signing` says.

    Raises:
        NotFound: the tenant has no such endpoint.
        Invalid: the secret, or the overlap, breaks a rule.
        Conflict: as many secrets sign already as may.
        DatabaseUnavailable: see `Database.connection`.
    """
    if not 0 <= overlap_seconds <= MAX_OVERLAP_SECONDS:
        raise Invalid("overlap_seconds", f"must be from 0 to {MAX_OVERLAP_SECONDS}")
    key = {"tenant_id": tenant_id, "endpoint_id": endpoint_id}
    with database.as_tenant(tenant_id) as connection:
        _lock(connection, key)
        current = _show(connection, sealer, tenant_id, endpoint_id)
        chosen = choose_secret(secret, signing, current["signing"] or "v1")
        [live] = fetch(connection, "live_secret_count", key)
        if overlap_seconds and live["total"] >= MAX_LIVE_SECRETS:
            raise Conflict(
                f"{MAX_LIVE_SECRETS} secrets sign already: wait until one of them ends, or rotate with "
                "overlap_seconds 0, which ends them all at once"
            )
        fetch(connection, "expire_secrets", key | {"overlap_seconds": overlap_seconds})
        sealed = seal_secret(sealer, endpoint_id, chosen)
        fetch(connection, "add_secret", key | {"sealed": sealed})
        shown = _show(connection, sealer, tenant_id, endpoint_id)
    return {**shown, "secret": format_secret(chosen)}


def enable_endpoint(database: Database, sealer: Sealer, tenant_id: UUID, endpoint_id: UUID) -> Row:
    """Send to an endpoint again: its circuit is closed, and what was parked goes out gently, from one at a time on.

    Raises:
        NotFound: the tenant has no such endpoint.
        DatabaseUnavailable: see `Database.connection`.
    """
    key = {"tenant_id": tenant_id, "endpoint_id": endpoint_id}
    with database.as_tenant(tenant_id) as connection:
        _lock(connection, key)
        before = _show(connection, sealer, tenant_id, endpoint_id)
        recovers = before["disabled_at"] is not None or before["circuit"]["state"] != "closed"
        fetch(connection, "enable_endpoint", key)
        fetch(connection, "reset_circuit", key | {"recovers": recovers})
        return _show(connection, sealer, tenant_id, endpoint_id)


def disable_endpoint(database: Database, sealer: Sealer, tenant_id: UUID, endpoint_id: UUID) -> Row:
    """Send nothing to an endpoint until it is enabled; its deliveries, new ones too, are parked and keep their attempts.

    Raises:
        NotFound: the tenant has no such endpoint.
        DatabaseUnavailable: see `Database.connection`.
    """
    key = {"tenant_id": tenant_id, "endpoint_id": endpoint_id}
    with database.as_tenant(tenant_id) as connection:
        _lock(connection, key)
        fetch(connection, "disable_endpoint", key)
        return _show(connection, sealer, tenant_id, endpoint_id)


def delete_endpoint(database: Database, tenant_id: UUID, endpoint_id: UUID) -> None:
    """Delete an endpoint: nothing more is sent to it, and its secrets and headers are erased.

    Deliveries that wait are cancelled, a bounded number of them at once and the rest by maintenance; the history of
    what was sent stays for its retention.

    Raises:
        NotFound: the tenant has no such endpoint.
        DatabaseUnavailable: see `Database.connection`.
    """
    key = {"tenant_id": tenant_id, "endpoint_id": endpoint_id}
    with database.as_tenant(tenant_id) as connection:
        if not fetch(connection, "delete_endpoint", key):
            raise _missing(endpoint_id)
        fetch(connection, "expire_secrets", key | {"overlap_seconds": 0})
        fetch(connection, "cancel_some_waiting", key | {"limit": _CANCELLED_AT_ONCE})


def send_test_event(database: Database, sealer: Sealer, tenant_id: UUID, endpoint_id: UUID) -> Row:
    """Send an endpoint, and it alone, an event of TEST_EVENT_TYPE; returns `event_id` and `delivery_id`.

    Raises:
        NotFound: the tenant has no such endpoint.
        Conflict: it is disabled, so the event would not be sent.
        DatabaseUnavailable: see `Database.connection`.
    """
    if get_endpoint(database, sealer, tenant_id, endpoint_id)["disabled_at"] is not None:
        raise Conflict("the endpoint is disabled, so nothing is sent to it: enable it first")
    payload = msgspec.json.encode(
        {"endpoint_id": str(endpoint_id), "message": "This is a test event from Leasehook."}
    )
    # Not as the tenant, who may not write events and deliveries but by publishing: both rows take their tenant from
    # the endpoint's row, and their foreign keys hold them to it.
    rows = database.fetch(
        "send_test_event",
        {
            "tenant_id": tenant_id,
            "endpoint_id": endpoint_id,
            "type": TEST_EVENT_TYPE,
            "payload": payload,
        },
    )
    if not rows:
        raise _missing(endpoint_id)
    return rows[0]


def align_lines(database: Database) -> None:
    """Put in line what was being published by transactions that did not see yet that its endpoint had become ordered.

    For maintenance: such a transaction may have ended long after the change.

    Raises:
        DatabaseUnavailable: see `Database.connection`.
    """
    for key in database.fetch("lately_ordered_endpoints", {}):
        _align_deliveries(database, key, ordered=None)


def _ensure_consumer(connection: Connection, tenant_id: UUID, consumer: str) -> None:
    key = {"tenant_id": tenant_id, "consumer": consumer}
    while True:
        fetch(connection, "ensure_consumer", key)
        if fetch(connection, "hold_consumer", key):
            return


def _begin_anew(connection: Connection, key: Mapping[str, UUID], before: Row) -> None:
    """What an endpoint's failures led to was about the URL it had."""
    was_given_up = before["disabled_reason"] not in (None, _OPERATOR)
    if was_given_up:
        fetch(connection, "enable_endpoint", key)
    fetch(connection, "reset_circuit", {**key, "recovers": was_given_up})


def _align_deliveries(database: Database, key: Mapping[str, UUID], *, ordered: bool | None) -> None:
    """Put all unfinished deliveries in line or out of it (None: as the endpoint is now).

    In short transactions, because settling waits for the rows; and in turns, so that the last of several that change
    the same endpoint has the last word.
    """
    asked = {**key, "ordered": ordered, "limit": _ALIGNED_AT_ONCE}
    while True:
        with database.as_tenant(key["tenant_id"]) as connection:
            fetch(connection, "take_turn_at_aligning", key)
            if len(fetch(connection, "align_deliveries", asked)) < _ALIGNED_AT_ONCE:
                return


def _columns(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as query parameters: sequences of any kind are arrays in SQL."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()
    }


def _lock(connection: Connection, key: Mapping[str, UUID]) -> Row:
    rows = fetch(connection, "lock_endpoint", key)
    if not rows:
        raise _missing(key["endpoint_id"])
    return rows[0]


def _show(connection: Connection, sealer: Sealer, tenant_id: UUID, endpoint_id: UUID) -> Row:
    rows = fetch(connection, "get_endpoint", {"tenant_id": tenant_id, "endpoint_id": endpoint_id})
    if not rows:
        raise _missing(endpoint_id)
    return _shown(sealer, rows[0])


def _shown(sealer: Sealer, row: Row) -> Row:
    """What may be shown of an endpoint's row."""
    secret = open_secret(sealer, row["id"], row["secret_sealed"])
    return {
        **{name: row[name] for name in _SHOWN_AS_STORED},
        "header_names": header_names(sealer, row["id"], row["headers_sealed"]),
        "signing": secret and signing_of(secret),
        "public_key": secret and public_key_of(secret),
        "circuit": {
            "state": row["circuit_state"],
            "until": row["circuit_until"],
            "consecutive_failures": row["consecutive_failures"],
            "failing_since": row["failing_since"],
        },
    }


_SHOWN_AS_STORED = (
    "id",
    "url",
    "description",
    "consumer",
    "event_types",
    "channels",
    "timeout_seconds",
    "retry_delays_seconds",
    "max_in_flight",
    "rate_per_second",
    "ordered",
    "disabled_at",
    "disabled_reason",
    "created_at",
    "updated_at",
)


def _missing(endpoint_id: UUID) -> NotFound:
    return NotFound(f"there is no endpoint {endpoint_id}")
