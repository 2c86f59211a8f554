"""Ids that hold an instant (UUID version 7 with a fraction of 12 bits, as `leasehook.uuid_v7` makes them)."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

FIRST_ID = UUID(int=0)
LAST_ID = UUID(int=2**128 - 1)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_VERSION, _VARIANT = 7, 0b10


def first_id_at(at: datetime) -> UUID:
    """The lowest id that can be made at an instant (aware, microseconds): ids made before are lower, later ones higher.

    An instant before 1970 counts as 1970.
    """
    milliseconds, microseconds = divmod(max(at - _EPOCH, timedelta()) // _MICROSECOND, 1000)
    fraction = microseconds * 4096 // 1000
    return UUID(int=milliseconds << 80 | _VERSION << 76 | fraction << 64 | _VARIANT << 62)
