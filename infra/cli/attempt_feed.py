"""The attempts of a tenant as they are reported, for who follows them."""

from collections.abc import Sequence
from uuid import UUID

from shared.store.connection import Database, Row

_MOST_ROWS = 2000

_NOW = "select statement_timestamp() as at"

# An attempt has no place in a sequence: it is stored when it is reported, a while after it began. So each look takes in
# what ended within the last seconds, and who asks leaves out what he has had. The index gives what began a minute ago
# or later, which is longer than an attempt may take.
_ENDED_LATELY = """
select
    a.delivery_id,
    a.number as attempt,
    d.event_id,
    ev.type as event_type,
    a.endpoint_id,
    a.started_at,
    a.duration_ms,
    a.status_code,
    a.error_kind,
    a.error_detail,
    a.late,
    d.status::text as delivery_status
from leasehook.endpoints as e
cross join lateral (
    select own.*
    from leasehook.attempts as own
    where own.endpoint_id = e.id
        and own.started_at >= statement_timestamp() - interval '60 seconds'
        and own.started_at + own.duration_ms * interval '1 millisecond'
            >= greatest(%(since)s, statement_timestamp() - interval '15 seconds')
    order by own.started_at desc
    limit %(limit)s
) as a
inner join leasehook.deliveries as d on a.delivery_id = d.id
inner join leasehook.events as ev on d.event_id = ev.id
where e.tenant_id = %(tenant_id)s
    and (%(endpoint_id)s::uuid is null or e.id = %(endpoint_id)s)
order by a.started_at + a.duration_ms * interval '1 millisecond', a.delivery_id, a.number
limit %(limit)s
"""


class AttemptFeed:
    """The attempts of a tenant, or of one of its endpoints, that end from now on."""

    def __init__(self, database: Database, tenant_id: UUID, endpoint_id: UUID | None) -> None:
        """Begins at the database's present instant.

        Raises:
            DatabaseUnavailable: see `Database.connection`.
        """
        self._database = database
        self._tenant_id = tenant_id
        self._endpoint_id = endpoint_id
        self._had: set[tuple[UUID, int]] = set()
        with database.as_tenant(tenant_id) as connection:
            [clock] = connection.execute(_NOW).fetchall()
        self._since = clock["at"]

    def news(self) -> Sequence[Row]:
        """What was reported since the last call, in the order in which it ended.

        An attempt that is reported more than 15 seconds after its end, as after trouble with the database, is missed;
        where thousands end in a second, they are told up to 15 seconds late.

        Raises:
            DatabaseUnavailable: see `Database.connection`; the next call goes on from here.
        """
        asked = {
            "tenant_id": self._tenant_id,
            "endpoint_id": self._endpoint_id,
            "since": self._since,
            "limit": _MOST_ROWS,
        }
        with self._database.as_tenant(self._tenant_id) as connection:
            rows = connection.execute(_ENDED_LATELY, asked).fetchall()
        had, self._had = self._had, {_key(row) for row in rows}
        return [row for row in rows if _key(row) not in had]


def _key(row: Row) -> tuple[UUID, int]:
    return row["delivery_id"], row["attempt"]
