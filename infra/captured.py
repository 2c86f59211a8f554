"""Captured HTTP requests: headers and body of one, as a proxy or a dump tool writes it to a file."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared.errors import Invalid

_REQUEST_LINE = re.compile(rb"[A-Z]+ \S+( HTTP/[0-9.]+)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
_BLANK_LINE = re.compile(rb"\r?\n\r?\n")


@dataclass(frozen=True, slots=True)
class CapturedRequest:
    """`headers` by lower-case name, the `body` as it was sent, and `notes` on what was odd about the capture."""

    headers: Mapping[str, Sequence[bytes]]
    body: bytes
    notes: Sequence[str]


def parse_request(data: bytes) -> CapturedRequest:
    """Read a request: a request line, which may be missing, the headers, an empty line, and the body.

    A body that is longer than its Content-Length is cut to it: editors add a line end to what they save.

    Raises:
        Invalid: it has no such form, or the body is incomplete or in chunks.
    """
    end = _BLANK_LINE.search(data)
    head, body = (data, b"") if end is None else (data[: end.start()], data[end.end() :])
    lines = head.replace(b"\r\n", b"\n").split(b"\n")
    if _REQUEST_LINE.fullmatch(lines[0]):
        lines = lines[1:]
    headers: dict[str, list[bytes]] = defaultdict(list)
    for line in filter(None, lines):
        match = _HEADER.fullmatch(line)
        if match is None:
            raise Invalid(
                "file", "must hold headers ('Name: value', one a line), an empty line and the body"
            )
        headers[match[1].decode("ascii").lower()].append(match[2])
    if "transfer-encoding" in headers:
        raise Invalid("file", "has a body in chunks: save the body as the application read it")
    return _cut(
        dict(headers), body, [] if end else ["there is no empty line, so the body is empty"]
    )


def _cut(headers: Mapping[str, Sequence[bytes]], body: bytes, notes: list[str]) -> CapturedRequest:
    [length, *_] = headers.get("content-length", [b""])
    if not re.fullmatch(rb"[0-9]{1,12}", length):
        return CapturedRequest(headers, body, notes)
    if len(body) < int(length):
        raise Invalid(
            "file", f"has {len(body)} bytes of a body of {int(length)}: it was not captured whole"
        )
    if len(body) > int(length):
        notes.append(
            f"{len(body) - int(length)} bytes after the body's Content-Length were left out"
        )
    return CapturedRequest(headers, body[: int(length)], notes)
