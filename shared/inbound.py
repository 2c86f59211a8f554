"""The inbound gateway: a webhook is verified over its raw bytes, then stored and fanned out in one transaction.

Whoever cannot sign learns nothing: an address that is nobody's, a disabled source and a bad signature have the same
answer, and come to it by about the same work.
"""

import hmac
import json
import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never
from uuid import UUID

from shared.crypto import Sealer
from shared.domain.inbound import (
    Reason,
    Refused,
    Scheme,
    Verified,
    kept_headers,
    safe_event_type,
    verify,
)
from shared.errors import DatabaseUnavailable, Invalid
from shared.source_secrets import open_keys, scheme_of
from shared.store.connection import Database, Row

Headers = Mapping[str, Sequence[bytes]]
"""Raw values by lower-case name."""

OCTETS = "application/octet-stream"
"""The content type of what came without one, or with one that cannot be sent on."""

_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?", re.ASCII)
_CONTENT_TYPE = re.compile(r"[\x20-\x7e]{1,255}", re.ASCII)
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\u00a0-\ud7ff\ue000-\U0010ffff]")
_MAX_SHOWN = 200
# Whatever the provider. Never credentials or signatures: a header that is not named here, or as context in the
# provider's scheme, is not kept.
_KEPT_ALWAYS = ("content-type", "user-agent")

# A signature was computed over the body. Otherwise one is computed for nobody, so that refusing takes as long.
_NOBODYS_KEY = bytes(32)
_COMPUTED = frozenset({Reason.BAD_SIGNATURE, Reason.STALE_TIMESTAMP})

_log = logging.getLogger(__name__)


class Unheard(StrEnum):
    """Why a request was refused before its signature was looked at; counted beside `Reason`."""

    UNKNOWN_SLUG = "unknown_slug"
    DISABLED = "disabled"
    UNKNOWN_SCHEME = "unknown_scheme"


@dataclass(frozen=True, slots=True)
class Accepted:
    """Committed. A duplicate came before, as the same event, and was not stored again."""

    event_id: UUID
    tenant_id: UUID
    delivery_count: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Challenge:
    """A signed question whether the address is ours, which `text` answers. Nothing was stored."""

    text: str


@dataclass(frozen=True, slots=True)
class NotAccepted:
    """Refused, for a reason that the sender is not told."""


class RefusalCounts:
    """Counts that are on their way to the database. Safe for several threads.

    A few refusals are written one by one. Under a flood they gather here and go out together, so that refusing stays
    cheaper than asking; what a process that dies had gathered is lost.
    """

    def __init__(
        self, clock: Callable[[], float], *, burst: int = 100, per_second: int = 10
    ) -> None:
        self._clock = clock
        self._burst = burst
        self._per_second = per_second
        self._left = float(burst)
        self._asked_at = clock()
        self._gathered: Counter[tuple[UUID | None, UUID | None, str]] = Counter()
        self._lock = threading.Lock()

    def add(
        self, tenant_id: UUID | None, source_id: UUID | None, reason: str
    ) -> Mapping[tuple[UUID | None, UUID | None, str], int]:
        """Count one, and take what shall be written now: counts by tenant, source and reason, or nothing."""
        with self._lock:
            self._gathered[tenant_id, source_id, reason] += 1
            now = self._clock()
            earned = (now - self._asked_at) * self._per_second
            self._left = min(self._left + earned, self._burst)
            self._asked_at = now
            if self._left < 1:
                return {}
            self._left -= 1
            gathered, self._gathered = self._gathered, Counter()
            return gathered


class Gateway:
    """Receives webhooks for all sources of one database. Safe for several threads."""

    def __init__(
        self, database: Database, sealer: Sealer, refusals: RefusalCounts, now: Callable[[], float]
    ) -> None:
        """`now` is the Unix time in seconds."""
        self._database = database
        self._sealer = sealer
        self._refusals = refusals
        self._now = now

    def receive(
        self, slug: str, headers: Headers, body: bytes
    ) -> Accepted | Challenge | NotAccepted:
        """Judge a request to `/in/{slug}`, and store what its source's provider has signed.

        Raises:
            DatabaseUnavailable: it is not known to be stored: the provider shall send it again.
        """
        source = self._find(slug)
        heard = Unheard.UNKNOWN_SLUG if source is None else self._hear(source, headers, body)
        match heard:
            case Accepted() | Challenge():
                return heard
            case Reason() | Unheard():
                if heard not in _COMPUTED:
                    hmac.digest(_NOBODYS_KEY, body, "sha256")
                self._count(source, heard)
                return NotAccepted()
            case _:
                assert_never(heard)

    def _find(self, slug: str) -> Row | None:
        # Other texts are no slug, and may be none that the database can be asked for.
        if not _SLUG.fullmatch(slug):
            return None
        rows = self._database.fetch("find_source", {"slug": slug})
        return rows[0] if rows else None

    def _hear(
        self, source: Row, headers: Headers, body: bytes
    ) -> Accepted | Challenge | Reason | Unheard:
        if source["disabled"]:
            return Unheard.DISABLED
        try:
            scheme = scheme_of(source["provider"], read_configuration(source))
        except Invalid as fault:
            _log.error("source %s cannot be verified by this release: %s", source["id"], fault)
            return Unheard.UNKNOWN_SCHEME
        keys = open_keys(self._sealer, source["id"], source["sealed_secrets"])
        if not keys:
            _log.error("source %s has no secret that opens: rotate it", source["id"])
        verdict = verify(
            scheme,
            keys,
            headers,
            body,
            int(self._now()),
            tolerance_seconds=source["tolerance_seconds"],
        )
        match verdict:
            case Refused(reason=reason):
                return reason
            case Verified(challenge=str(text)):
                return Challenge(text)
            case Verified():
                kept = headers_to_keep(scheme, headers)
                return self._store(source, verdict, kept, content_type(headers), body)
            case _:
                assert_never(verdict)

    def _store(
        self, source: Row, verified: Verified, kept: Mapping[str, str], media_type: str, body: bytes
    ) -> Accepted | Unheard:
        [row] = self._database.fetch(
            "receive",
            {
                "source_id": source["id"],
                "type": type_of_event(source["event_type_prefix"], verified.event_type),
                "payload": body,
                "content_type": media_type,
                "dedupe_id": verified.dedupe_id,
                "headers": json.dumps(kept),
            },
        )
        if row["event_id"] is None:
            # It was disabled or deleted since it was found.
            return Unheard.DISABLED
        return Accepted(
            row["event_id"], source["tenant_id"], row["delivery_count"], row["duplicate"]
        )

    def _count(self, source: Row | None, reason: str) -> None:
        tenant_id, source_id = (
            (None, None) if source is None else (source["tenant_id"], source["id"])
        )
        counts = self._refusals.add(tenant_id, source_id, reason)
        if not counts:
            return
        try:
            self._database.fetch(
                "count_refusals",
                {
                    "tenant_id": [tenant_id for tenant_id, _, _ in counts],
                    "source_id": [source_id for _, source_id, _ in counts],
                    "reason": [each for _, _, each in counts],
                    "count": list(counts.values()),
                },
            )
        except DatabaseUnavailable as error:
            # The answer does not depend on it.
            _log.warning("refusals were not counted: %s", error)


def read_configuration(source: Row) -> dict[str, object] | None:
    """How the provider of a source's row signs; None unless it is the generic one."""
    text: str | None = source["configuration"]
    return None if text is None else json.loads(text)


def type_of_event(prefix: str | None, provider_type: str) -> str:
    """The type of the event: the provider's, behind the source's prefix, cut to what a type may have."""
    return safe_event_type(*filter(None, (prefix, provider_type)))


def content_type(headers: Headers) -> str:
    """The content type that the body came with, if it can be sent on."""
    text = b"".join(headers.get("content-type", ())[:1]).decode("latin-1").strip()
    return text if _CONTENT_TYPE.fullmatch(text) else OCTETS


def headers_to_keep(scheme: Scheme, headers: Headers) -> dict[str, str]:
    """The headers that are stored with what was received, as they can be shown."""
    return {
        name: printable(b", ".join(headers[name]).decode("utf-8", "replace"))
        for name in (*_KEPT_ALWAYS, *kept_headers(scheme))
        if name in headers
    }


def printable(text: str) -> str:
    """A text as it can be stored and shown: control characters and half characters replaced, cut where it gets long."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text[:_MAX_SHOWN])
