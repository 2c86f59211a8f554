"""The provider `hmac`: a signature scheme that a user describes."""

import re
from collections.abc import Mapping
from typing import Final

from shared.domain.headers import is_name
from shared.domain.inbound.schemes import (
    DEFAULT_TOLERANCE_SECONDS,
    Base64Secret,
    Entry,
    Header,
    InvalidScheme,
    Pointer,
    Scheme,
    TextSecret,
    Timestamp,
    check_tolerance,
)

MAX_TEMPLATE_LENGTH = 200
MAX_PREFIX_LENGTH = 50
MAX_POINTER_LENGTH = 200

_SETTINGS: Final = (
    "signature_header",
    "encoding",
    "prefix",
    "separator",
    "signed",
    "algorithm",
    "secret",
    "timestamp_header",
    "timestamp_prefix",
    "tolerance_seconds",
    "id_header",
    "id_pointer",
    "type_header",
    "type_pointer",
)

# A place for credentials. What is read from one as an id or a type would be stored and shown.
_SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})

_TEMPLATE = re.compile(r"(?:[ -z|~]|\{(?:body|timestamp|id)\})+", re.ASCII)
_PLACEHOLDER = re.compile(r"\{(\w+)\}", re.ASCII)
_PREFIX = re.compile(r"(?:[!-~][ -~]*)?", re.ASCII)
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)+")


def generic(**configuration: object) -> Scheme:
    """A scheme of the user's own. A setting that is None is the same as one left out.

    Args:
        **configuration: these settings, of which the first two are required:

            - `signature_header`: the header with the signature.
            - `encoding`: `hex` or `base64`.
            - `prefix`: what stands before the signature, such as `sha256=`.
            - `separator`: `" "`, `","` or `";"` when the header holds several entries.
            - `signed`: what is signed, `{body}` by default, such as `{timestamp}.{body}` or `{id}.{timestamp}.{body}`.
            - `algorithm`: `sha256` (the default) or `sha512`.
            - `secret`: `text` (the default: the key is the secret's UTF-8), or `base64` (with or without `whsec_`).
            - `timestamp_header`, or `timestamp_prefix` such as `t=` when it is an entry of the signature header; in
              whole seconds since 1970. Required when `signed` has `{timestamp}`, and refused when not.
            - `tolerance_seconds`: how far from now the timestamp may be, 300 by default.
            - `id_header` or `id_pointer` (a JSON Pointer into the body): what a retry repeats.
            - `type_header` or `type_pointer`: the event's type.

    Raises:
        InvalidScheme: a setting is unknown, missing or breaks a rule.
    """
    for name in configuration:
        if name not in _SETTINGS:
            raise InvalidScheme(name, f"is not known; known are {', '.join(_SETTINGS)}")
    given = {name: value for name, value in configuration.items() if value is not None}
    signature_header = _header(given, "signature_header")
    if signature_header is None:
        raise InvalidScheme("signature_header", "is required: the name of the header")
    prefix, separator = _entries(given)
    signed = _template(given)
    event_id = _id(given, signature_header, signed)
    event_type = _place(given, "type_header", "type_pointer", signature_header)
    if "{timestamp}" in signed:
        timestamp = _timestamp(
            given, signature_header, event_id, prefix=prefix, separator=separator
        )
    else:
        timestamp = None
        for name in ("timestamp_header", "timestamp_prefix", "tolerance_seconds"):
            if name in given:
                raise InvalidScheme(
                    name, "needs {timestamp} in `signed`: anyone can change a timestamp not signed"
                )
    scheme = Scheme(
        signature_header=signature_header,
        encoding="hex" if _choice(given, "encoding", "hex", "base64") == "hex" else "base64",
        signed=signed.encode("ascii"),
        prefix=prefix.encode("ascii"),
        separator=None if separator is None else separator.encode("ascii"),
        algorithm="sha512" if _algorithm(given) == "sha512" else "sha256",
        secret=_secret(given),
        timestamp=timestamp,
        id=event_id,
        id_excludes=_id_excludes(signed).encode("ascii"),
        types=() if event_type is None else ((event_type,),),
    )
    if scheme.tolerance_seconds is not None:
        check_tolerance(scheme, scheme.tolerance_seconds)
    return scheme


def _text(given: Mapping[str, object], name: str, default: str) -> str:
    value = given.get(name, default)
    if not isinstance(value, str):
        raise InvalidScheme(name, "must be a text")
    return value


def _choice(given: Mapping[str, object], name: str, *choices: str) -> str:
    text = _text(given, name, "")
    if text not in choices:
        raise InvalidScheme(name, f"must be {' or '.join(map(repr, choices))}")
    return text


def _algorithm(given: Mapping[str, object]) -> str:
    return _choice({"algorithm": "sha256", **given}, "algorithm", "sha256", "sha512")


def _secret(given: Mapping[str, object]) -> TextSecret | Base64Secret:
    form = _choice({"secret": "text", **given}, "secret", "text", "base64")
    return TextSecret() if form == "text" else Base64Secret()


def _header(given: Mapping[str, object], name: str) -> str | None:
    if name not in given:
        return None
    text = _text(given, name, "")
    if not is_name(text):
        raise InvalidScheme(name, "must be the name of a header, such as X-Signature")
    return text.lower()


def _pointer(given: Mapping[str, object], name: str) -> Pointer | None:
    if name not in given:
        return None
    text = _text(given, name, "")
    if len(text) > MAX_POINTER_LENGTH or not text.isprintable() or _POINTER.fullmatch(text) is None:
        raise InvalidScheme(
            name,
            f"must be a JSON Pointer of at most {MAX_POINTER_LENGTH} characters, such as /data/id",
        )
    return Pointer(text)


def _told(given: Mapping[str, object], name: str, signature_header: str) -> str | None:
    """A header that holds something to be told, not to be kept secret."""
    header = _header(given, name)
    if header == signature_header or header in _SECRET_HEADERS:
        raise InvalidScheme(
            name, "must not be a header with credentials, nor the one with the signature"
        )
    return header


def _place(
    given: Mapping[str, object], header: str, pointer: str, signature_header: str
) -> Header | Pointer | None:
    name = _told(given, header, signature_header)
    path = _pointer(given, pointer)
    if name is not None and path is not None:
        raise InvalidScheme(pointer, f"must be left out when {header} is given")
    return path if name is None else Header(name)


def _entries(given: Mapping[str, object]) -> tuple[str, str | None]:
    prefix = _prefix(given, "prefix")
    if "separator" not in given:
        return prefix, None
    separator = _choice(given, "separator", " ", ",", ";")
    if separator in prefix:
        raise InvalidScheme("prefix", "must not hold the separator")
    return prefix, separator


def _prefix(given: Mapping[str, object], name: str) -> str:
    prefix = _text(given, name, "")
    if len(prefix) > MAX_PREFIX_LENGTH or _PREFIX.fullmatch(prefix) is None:
        raise InvalidScheme(
            name,
            f"must be at most {MAX_PREFIX_LENGTH} printable ASCII characters, no space before them",
        )
    return prefix


def _template(given: Mapping[str, object]) -> str:
    template = _text(given, "signed", "{body}")
    names = _PLACEHOLDER.findall(template)
    if (
        len(template) > MAX_TEMPLATE_LENGTH
        or _TEMPLATE.fullmatch(template) is None
        or len(names) != len(set(names))
        or "body" not in names
    ):
        raise InvalidScheme(
            "signed",
            f"must be at most {MAX_TEMPLATE_LENGTH} printable ASCII characters with {{body}} once and {{timestamp}} "
            "and {id} at most once, such as {timestamp}.{body}",
        )
    return template


def _id(given: Mapping[str, object], signature_header: str, signed: str) -> Header | Pointer | None:
    place = _place(given, "id_header", "id_pointer", signature_header)
    if "{id}" in signed and not isinstance(place, Header):
        raise InvalidScheme("id_header", "is required when `signed` has {id}")
    if "{id}{" in signed or "}{id}" in signed:
        raise InvalidScheme(
            "signed",
            "must have a separator between {id} and what is beside it, such as {id}.{body}",
        )
    return place


def _id_excludes(signed: str) -> str:
    """The characters that end or begin the id, wherever it stands between other things."""
    before, found, after = signed.partition("{id}")
    if not found:
        return ""
    left = before.rpartition("}")[2] if "}" in before else ""
    right = after.partition("{")[0] if "{" in after else ""
    return "".join(sorted({*left, *right}))


def _timestamp(
    given: Mapping[str, object],
    signature_header: str,
    event_id: Header | Pointer | None,
    *,
    prefix: str,
    separator: str | None,
) -> Timestamp:
    header = _told(given, "timestamp_header", signature_header)
    entry = _prefix(given, "timestamp_prefix")
    if (header is None) == (not entry):
        raise InvalidScheme(
            "timestamp_header",
            "is required when `signed` has {timestamp} (or timestamp_prefix, and not both of them)",
        )
    tolerance = given.get("tolerance_seconds", DEFAULT_TOLERANCE_SECONDS)
    if not isinstance(tolerance, int):
        raise InvalidScheme("tolerance_seconds", "must be a whole number of seconds")
    if header is not None:
        if event_id == Header(header):
            raise InvalidScheme("timestamp_header", "must be another header than the id's")
        return Timestamp(Header(header), tolerance)
    if separator is None or separator in entry:
        raise InvalidScheme(
            "timestamp_prefix", "needs a separator, which it must not hold: it begins an entry"
        )
    if not prefix or entry.startswith(prefix) or prefix.startswith(entry):
        raise InvalidScheme(
            "timestamp_prefix", "must tell its entry from a signature's, which needs a prefix too"
        )
    return Timestamp(Entry(entry.encode("ascii")), tolerance)
