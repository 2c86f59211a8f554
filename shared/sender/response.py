"""Reading one HTTP/1.1 response from bytes, within limits. No I/O: bytes go in, a verdict comes out."""

import re
from dataclasses import dataclass

import httptools

from shared.domain.outcome import Answered, ErrorKind, Unanswered

HEAD_CAP_BYTES = 64 * 1024
HEADER_CAP_COUNT = 256

_OPENING = b"HTTP/"
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"keep-alive"})
_KEEP_ALIVE_TIMEOUT = re.compile(rb"\btimeout\s*=\s*(\d{1,6})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Response:
    """The final status and headers, and as much of the body as was wanted and arrived.

    `headers` are the raw lines in order, names in the sender's case. The body is as it was on the wire, without
    its chunking: nothing is decompressed.
    """

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    truncated: bool

    def answered(self) -> Answered:
        """What a delivery keeps of it."""
        retry_after: list[str] = []
        location = None
        for name, value in self.headers:
            match name.lower():
                case b"retry-after":
                    retry_after.append(value.decode("latin-1"))
                case b"location":
                    location = value.decode("latin-1")
                case _:
                    pass
        return Answered(self.status, self.body, self.truncated, tuple(retry_after), location)


class _Unacceptable(Exception):
    """Raised inside parser callbacks to stop the parser at once; the message is for the operator."""


class ResponseReader:
    """Reads one response. Feed it until it is settled, or tell it how the stream ended; it never raises.

    Attributes:
        verdict: the response, or why it is none; None while undecided.
        started: whether any byte has arrived.
        reusable: whether the connection is at a clean message boundary and both sides keep it open.
        keep_alive_seconds: the receiver's `Keep-Alive: timeout`, if it sent one.
    """

    __slots__ = (
        "_body",
        "_body_bytes",
        "_body_cap_bytes",
        "_expects_body",
        "_framed",
        "_head_is_complete",
        "_header_bytes",
        "_headers",
        "_is_interim",
        "_opening",
        "_parser",
        "_received_bytes",
        "_status",
        "keep_alive_seconds",
        "reusable",
        "verdict",
    )

    def __init__(self, body_cap_bytes: int, *, expects_body: bool = True) -> None:
        self.verdict: Response | Unanswered | None = None
        self.reusable = False
        self.keep_alive_seconds: int | None = None
        self._body_cap_bytes = body_cap_bytes
        self._expects_body = expects_body
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._header_bytes = 0
        self._received_bytes = 0
        self._opening = b""
        self._status = 0
        self._framed = False
        self._is_interim = False
        self._head_is_complete = False
        # Parser and reader refer to each other: the reader lets go once settled, so that no garbage cycle is left.
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    @property
    def started(self) -> bool:
        """Whether any byte of a response has arrived."""
        return self._received_bytes > 0

    def feed(self, data: bytes) -> bool:
        """Take bytes from the wire; True once the verdict is in."""
        parser = self._parser
        if parser is None:
            self.reusable = False
            return True
        self._received_bytes += len(data)
        try:
            self._check_opening(data)
            parser.feed_data(data)
            self._check_size()
        except _Unacceptable as problem:
            self._break_off(str(problem))
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # llhttp reports an exception of a callback as an error of its own, with ours as the context.
            cause = error.__context__
            self._break_off(str(cause if isinstance(cause, _Unacceptable) else error))
        if self.verdict is None:
            return False
        self._parser = None
        return True

    def finish(self, *, in_good_order: bool) -> Response | Unanswered | None:
        """Say that no more bytes come, and take the verdict; None if there is no answer.

        Args:
            in_good_order: the receiver closed the stream, which is how a body without a length ends. A reset or a
                deadline only cuts the body off. Without effect on a settled reader.
        """
        self._parser = None
        if self.verdict is None and self._head_is_complete:
            self._settle(truncated=self._framed or not in_good_order)
        return self.verdict

    def _check_opening(self, data: bytes) -> None:
        """Refuse RTSP, ICE and leading blank lines: llhttp reads them, but they are no answer to what we sent."""
        if len(self._opening) < len(_OPENING):
            self._opening += data[: len(_OPENING) - len(self._opening)]
            if not _OPENING.startswith(self._opening):
                raise _Unacceptable("the answer does not begin with HTTP/")

    def _check_size(self) -> None:
        """Bound what the callbacks do not see: a header line without end, endless chunk extensions."""
        if self.verdict is not None:
            return
        if not self._head_is_complete:
            if self._received_bytes > HEAD_CAP_BYTES:
                raise _Unacceptable(f"the headers are longer than {HEAD_CAP_BYTES:,} bytes")
        elif self._received_bytes > 2 * HEAD_CAP_BYTES + 8 * self._body_cap_bytes:
            raise _Unacceptable("the body's framing is out of proportion to the body")

    def _break_off(self, problem: str) -> None:
        """End on bytes that are not acceptable: an answer whose head was complete stays an answer."""
        self.reusable = False
        if self.verdict is not None:
            return
        if self._head_is_complete:
            self._settle(truncated=True)
        else:
            self.verdict = Unanswered(ErrorKind.PROTOCOL, problem)

    def _settle(self, *, truncated: bool) -> None:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self.verdict = Response(self._status, tuple(self._headers), body, truncated)

    def on_message_begin(self) -> None:
        """Parser callback. After a final response this is data nobody asked for."""
        if self.verdict is not None:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Parser callback, also called for trailers, which are only counted."""
        if self.verdict is not None:
            return
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > HEAD_CAP_BYTES:
            raise _Unacceptable(f"the headers are longer than {HEAD_CAP_BYTES:,} bytes")
        if self._head_is_complete:
            return
        if len(self._headers) == HEADER_CAP_COUNT:
            raise _Unacceptable(f"there are more than {HEADER_CAP_COUNT} headers")
        self._headers.append((name, value))
        if (lowered := name.lower()) in _FRAMING:
            if lowered != b"keep-alive":
                self._framed = True
            elif match := _KEEP_ALIVE_TIMEOUT.search(value):
                self.keep_alive_seconds = int(match[1])

    def on_headers_complete(self) -> None:
        """Parser callback."""
        parser = self._parser
        if self.verdict is not None or parser is None:
            return
        status = parser.get_status_code()
        if parser.get_http_version() not in {"1.1", "1.0"}:
            raise _Unacceptable("the answer is not HTTP/1.1 or HTTP/1.0")
        if status < 100:
            raise _Unacceptable("the status is not a number from 100 to 999")
        if status == 101:
            raise _Unacceptable("the receiver switched protocols")
        if status < 200:
            self._is_interim = True
            return
        self._status = status
        self._head_is_complete = True
        if not self._expects_body:
            self._settle(truncated=False)

    def on_body(self, data: bytes) -> None:
        """Parser callback."""
        if self.verdict is not None:
            return
        room = self._body_cap_bytes - self._body_bytes
        if len(data) <= room:
            self._body.append(data)
            self._body_bytes += len(data)
        else:
            self._body.append(data[:room])
            self._settle(truncated=True)

    def on_message_complete(self) -> None:
        """Parser callback. An interim response is forgotten: the one that counts follows."""
        parser = self._parser
        if self._is_interim:
            self._is_interim = False
            self._headers.clear()
            self._framed = False
            self.keep_alive_seconds = None
        elif self.verdict is None and parser is not None:
            self.reusable = parser.should_keep_alive()
            self._settle(truncated=False)
