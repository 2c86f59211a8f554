"""Instants as people write them: RFC 3339, or how long ago."""

import re
from datetime import UTC, datetime, timedelta

_AGO = re.compile(r"(\d{1,6})(s|min|h|d)", re.ASCII)
_UNIT_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def parse_instant(text: str, now: datetime) -> datetime:
    """The instant that a text means: `2030-01-31T09:00:00Z`, or so long before `now`: `90s`, `15min`, `2h`, `3d`.

    Raises:
        ValueError: it is neither; the message says what is.
    """
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            count, unit = ago.groups()
            return now - timedelta(seconds=int(count) * _UNIT_SECONDS[unit])
        if _RFC3339.fullmatch(text) is not None:
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError(
        "write an instant such as 2030-01-31T09:00:00Z, or how long ago: 90s, 15min, 2h, 3d"
    )
