"""What an operator does: keys, endpoints, a look at deliveries, replay."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from shared.config import MAX_TIMEOUT_SECONDS
from shared.crypto import Sealer, new_api_key
from shared.domain import headers as http_headers
from shared.domain.matching import is_filter
from shared.domain.signing import HmacSecret, InvalidSecret, format_secret, parse_secret
from shared.domain.targets import InvalidTarget, TargetPolicy, parse_target
from shared.errors import Conflict, Invalid, NotFound
from shared.store import tenancy
from shared.store.connection import Database, Row

SCOPES = ("publish", "read", "manage")
OPERATE = "operate"
"""The scope of an operator's key: everything, for every tenant."""
MAX_NAME_LENGTH = 200
MAX_DESCRIPTION_LENGTH = 1000
MAX_FILTERS = 100
MAX_HEADERS = 20
MAX_RETRIES = 30
MAX_RETRY_DELAY_SECONDS = 86400

_CONSUMER = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
# PostgreSQL's text holds neither NUL nor half of a surrogate pair.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEndpoint:
    """What a user says about a new endpoint. None means: the default."""

    url: str
    event_types: Sequence[str] = ("*",)
    consumer: str | None = None
    description: str | None = None
    secret: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: int | None = None
    retry_delays_seconds: Sequence[int] | None = None
    max_in_flight: int | None = None
    rate_per_second: int | None = None


def create_key(
    database: Database, tenant_id: UUID, name: str, scopes: Sequence[str] = SCOPES
) -> Row:
    """Make an API key; the answer holds its text as `key`, which is shown this once and not stored.

    Raises:
        Invalid: the name cannot be stored, or there is no such scope.
        DatabaseUnavailable: see `Database.connection`.
    """
    if not name or not _is_storable(name, MAX_NAME_LENGTH):
        raise Invalid("name", f"must be 1 to {MAX_NAME_LENGTH} characters, none of them NUL")
    if not scopes or not set(scopes) <= set(SCOPES):
        raise Invalid("scopes", f"must be some of {', '.join(SCOPES)}")
    key = new_api_key()
    row = tenancy.create_api_key(database, tenant_id, name, key, scopes)
    return {"key": key.text, **row}


def create_endpoint(
    database: Database, sealer: Sealer, targets: TargetPolicy, tenant_id: UUID, new: NewEndpoint
) -> Row:
    """Make an endpoint; the answer holds its signing secret, which is shown this once.

    Raises:
        Invalid: a field breaks a rule; nothing is stored.
        DatabaseUnavailable: see `Database.connection`.
    """
    url = check_url(new.url, targets)
    secret = _secret(new.secret)
    _check(new)
    endpoint_id = tenancy.new_id(database)
    headers_sealed = (
        sealer.seal(msgspec.json.encode(dict(new.headers)), endpoint_id.bytes)
        if new.headers
        else None
    )
    endpoint = {
        "id": endpoint_id,
        "tenant_id": tenant_id,
        "consumer": new.consumer,
        "url": url,
        "description": new.description,
        "event_types": list(new.event_types),
        "timeout_seconds": new.timeout_seconds,
        "retry_delays_seconds": None
        if new.retry_delays_seconds is None
        else list(new.retry_delays_seconds),
        "max_in_flight": new.max_in_flight,
        "rate_per_second": new.rate_per_second,
    }
    row = tenancy.create_endpoint(
        database,
        {
            **endpoint,
            "headers_sealed": headers_sealed,
            "secret_sealed": sealer.seal(secret.encode(), endpoint_id.bytes),
        },
    )
    return {**endpoint, **row, "secret": secret}


def show_delivery(database: Database, tenant_id: UUID, delivery_id: UUID) -> Row:
    """A delivery with its payload and the timeline of its `attempts`.

    Raises:
        NotFound: the tenant has no such delivery.
        DatabaseUnavailable: see `Database.connection`.
    """
    found = tenancy.get_delivery(database, tenant_id, delivery_id)
    if found is None:
        raise NotFound(f"there is no delivery {delivery_id}")
    delivery, attempts = found
    return {**delivery, "attempts": attempts}


def replay(database: Database, tenant_id: UUID, delivery_id: UUID) -> None:
    """Ask for a delivery again: due at once, with a fresh retry schedule, its history kept.

    Raises:
        NotFound: the tenant has no such delivery.
        Conflict: it is in progress, or waits for its first attempt anyway.
        DatabaseUnavailable: see `Database.connection`.
    """
    row = tenancy.replay_delivery(database, tenant_id, delivery_id)
    if row is None:
        raise NotFound(f"there is no delivery {delivery_id}")
    if not row["replayed"]:
        raise Conflict(f"the delivery is {row['status_before']}: it is on its way already")


def check_url(url: str, targets: TargetPolicy) -> str:
    """The normal form of an endpoint's URL.

    Raises:
        Invalid: it is no URL that deliveries can be sent to.
    """
    try:
        target = parse_target(url)
    except InvalidTarget as fault:
        raise Invalid("url", str(fault)) from None
    refusal = targets.literal_refusal(target)
    if refusal is not None:
        raise Invalid(
            "url",
            f"must lead to a public address: {refusal}; LEASEHOOK_ALLOW_TARGETS opens networks",
        )
    return target.url


def _secret(given: str | None) -> str:
    if given is None:
        return format_secret(HmacSecret(secrets.token_bytes(32)))
    try:
        return format_secret(parse_secret(given))
    except InvalidSecret as fault:
        raise Invalid("secret", str(fault)) from None


def _check(new: NewEndpoint) -> None:
    if not 1 <= len(new.event_types) <= MAX_FILTERS or not all(map(is_filter, new.event_types)):
        raise Invalid(
            "event_types",
            f"must be 1 to {MAX_FILTERS} filters: an event type, a prefix such as 'order.*', or '*'",
        )
    if new.consumer is not None and not _CONSUMER.fullmatch(new.consumer):
        raise Invalid("consumer", "must be 1 to 128 letters, digits, '_', '.', ':' or '-'")
    if new.description is not None and not _is_storable(new.description, MAX_DESCRIPTION_LENGTH):
        raise Invalid(
            "description", f"must be at most {MAX_DESCRIPTION_LENGTH} characters, none of them NUL"
        )
    check_headers(new.headers)
    _within("timeout_seconds", new.timeout_seconds, 1, MAX_TIMEOUT_SECONDS)
    _within("max_in_flight", new.max_in_flight, 1, 10_000)
    _within("rate_per_second", new.rate_per_second, 1, 10_000)
    for index, delay in enumerate(new.retry_delays_seconds or ()):
        _within(f"retry_delays_seconds[{index}]", delay, 1, MAX_RETRY_DELAY_SECONDS)
    if len(new.retry_delays_seconds or ()) > MAX_RETRIES:
        raise Invalid("retry_delays_seconds", f"must be at most {MAX_RETRIES} delays")


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse custom headers that cannot travel, or that the sender sets itself.

    Raises:
        Invalid: names the header and the rule, never the value.
    """
    if len(headers) > MAX_HEADERS:
        raise Invalid("headers", f"must be at most {MAX_HEADERS}")
    seen = set()
    for name, value in headers.items():
        if not http_headers.is_name(name):
            raise Invalid(
                "headers", "names must be 1 to 100 characters of an HTTP token (RFC 9110 §5.6.2)"
            )
        if http_headers.is_reserved(name):
            raise Invalid(f"headers.{name}", "is set by Leasehook and cannot be chosen")
        if name.lower() in seen:
            raise Invalid(f"headers.{name}", "is given twice, in different cases")
        if not http_headers.is_value(value):
            raise Invalid(
                f"headers.{name}",
                f"must be 1 to {http_headers.MAX_VALUE_LENGTH} printable ASCII characters that neither begin nor end with a space",
            )
        seen.add(name.lower())


def _is_storable(text: str, most: int) -> bool:
    return len(text) <= most and _UNSTORABLE.search(text) is None


def _within(name: str, value: int | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        raise Invalid(name, f"must be a whole number from {low} to {high}")
