"""How providers sign their webhooks, as data: supporting one more provider is one more row of PROVIDERS."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

DEFAULT_TOLERANCE_SECONDS = 300
MAX_TOLERANCE_SECONDS = 86_400

Encoding = Literal["hex", "base64"]
Algorithm = Literal["sha256", "sha512"]


class InvalidScheme(ValueError):
    """A setting of a signature scheme breaks a rule.

    Attributes:
        field: the setting, such as `signed`.
        rule: what it must be; never repeats the offending value.
    """

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Header:
    """The value of a header. `name` is in lower case."""

    name: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What follows `prefix` in that entry of the signature header which begins with it."""

    prefix: bytes


@dataclass(frozen=True, slots=True)
class Pointer:
    """What a JSON Pointer (RFC 6901) finds in the body. Of a form, the fields, or the JSON in its field `payload`."""

    path: str


@dataclass(frozen=True, slots=True)
class Word:
    """This very text."""

    text: str


Place = Header | Pointer | Word


@dataclass(frozen=True, slots=True)
class Timestamp:
    """Where the signed time of sending is, in whole seconds since 1970, and how far from now it may be by default."""

    place: Header | Entry
    tolerance_seconds: int = DEFAULT_TOLERANCE_SECONDS


@dataclass(frozen=True, slots=True)
class Challenge:
    """A provider asks once whether the address is ours: where the body says so, and what to send back."""

    place: Pointer
    text: str
    echo: Pointer


@dataclass(frozen=True, slots=True)
class TextSecret:
    """The key is the secret's text in UTF-8, prefix and all.

    `pattern` is what all of the text must match; `accepted` tells the user so.
    """

    pattern: str = r".{16,512}"
    accepted: str = "16 to 512 printable characters"


@dataclass(frozen=True, slots=True)
class Base64Secret:
    """The key is what the secret's base64 decodes to, after an optional `whsec_`."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How one provider signs.

    Attributes:
        signature_header: its name in lower case.
        encoding: how the digest is written. Hexadecimal may be in either case.
        signed: what the signature is over: a template of `{body}`, `{timestamp}` and `{id}`, each at most once.
        prefix: what an entry of the signature header begins with when it holds a signature of this kind. Entries
            that begin otherwise are of other, perhaps weaker, kinds, and never looked at.
        separator: what stands between entries; None when the header is one entry.
        algorithm: the hash function of the HMAC.
        secret: how the provider's secret is written.
        timestamp: None when the provider signs none.
        id: where the event's id is, which a retry repeats and nothing else shares; None when there is none.
        id_excludes: bytes that an id may not hold, because with them `signed` could be read in two ways.
        types: where the event's type is: the first of these of which every place holds something, joined by full stops.
        challenge: None when the provider sends none.
        context: further headers worth keeping: about the event, none of them secret.
    """

    signature_header: str
    encoding: Encoding
    signed: bytes = b"{body}"
    prefix: bytes = b""
    separator: bytes | None = None
    algorithm: Algorithm = "sha256"
    secret: TextSecret | Base64Secret = TextSecret()
    timestamp: Timestamp | None = None
    id: Header | Pointer | None = None
    id_excludes: bytes = b""
    types: tuple[tuple[Place, ...], ...] = ()
    challenge: Challenge | None = None
    context: tuple[str, ...] = ()

    @property
    def tolerance_seconds(self) -> int | None:
        """How far from now a timestamp may be by default; None when no timestamp is signed."""
        return None if self.timestamp is None else self.timestamp.tolerance_seconds


def check_tolerance(scheme: Scheme, seconds: int) -> None:
    """Refuse a tolerance that would leave a timestamp unchecked, or that has none to check.

    Raises:
        InvalidScheme: see above.
    """
    if scheme.timestamp is None:
        raise InvalidScheme("tolerance_seconds", "must be left out, since no timestamp is signed")
    # `type` because a JSON true is an int to isinstance.
    if type(seconds) is not int or not 1 <= seconds <= MAX_TOLERANCE_SECONDS:
        raise InvalidScheme(
            "tolerance_seconds",
            f"must be a whole number of seconds from 1 to {MAX_TOLERANCE_SECONDS}",
        )


PROVIDERS: Mapping[str, Scheme] = MappingProxyType(
    {
        "stripe": Scheme(
            signature_header="stripe-signature",
            encoding="hex",
            signed=b"{timestamp}.{body}",
            prefix=b"v1=",
            separator=b",",
            secret=TextSecret(
                r"whsec_[A-Za-z0-9+/=_-]{16,506}",
                "the endpoint's signing secret as Stripe shows it: 'whsec_' and at least 16 letters and digits",
            ),
            timestamp=Timestamp(Entry(b"t=")),
            id=Pointer("/id"),
            types=((Pointer("/type"),),),
        ),
        "github": Scheme(
            signature_header="x-hub-signature-256",
            encoding="hex",
            prefix=b"sha256=",
            id=Header("x-github-delivery"),
            types=((Header("x-github-event"), Pointer("/action")), (Header("x-github-event"),)),
            context=(
                "x-github-hook-id",
                "x-github-hook-installation-target-id",
                "x-github-hook-installation-target-type",
            ),
        ),
        "shopify": Scheme(
            signature_header="x-shopify-hmac-sha256",
            encoding="base64",
            # Not x-shopify-event-id: webhooks about different things that one action caused share that.
            id=Header("x-shopify-webhook-id"),
            types=((Header("x-shopify-topic"),),),
            context=(
                "x-shopify-api-version",
                "x-shopify-event-id",
                "x-shopify-shop-domain",
                "x-shopify-triggered-at",
            ),
        ),
        "slack": Scheme(
            signature_header="x-slack-signature",
            encoding="hex",
            signed=b"v0:{timestamp}:{body}",
            prefix=b"v0=",
            secret=TextSecret(
                r"[A-Za-z0-9]{32,64}",
                "the app's signing secret as Slack shows it: 32 letters and digits",
            ),
            timestamp=Timestamp(Header("x-slack-request-timestamp")),
            id=Pointer("/event_id"),
            types=(
                (Pointer("/event/type"),),
                (Pointer("/type"),),
                (Word("command"), Pointer("/command")),
            ),
            challenge=Challenge(Pointer("/type"), "url_verification", Pointer("/challenge")),
            context=("x-slack-retry-num", "x-slack-retry-reason"),
        ),
        "standard_webhooks": Scheme(
            signature_header="webhook-signature",
            encoding="base64",
            signed=b"{id}.{timestamp}.{body}",
            prefix=b"v1,",
            separator=b" ",
            secret=Base64Secret(),
            timestamp=Timestamp(Header("webhook-timestamp")),
            id=Header("webhook-id"),
            id_excludes=b".",
            types=((Pointer("/type"),),),
        ),
    }
)
