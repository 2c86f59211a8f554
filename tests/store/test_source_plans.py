"""What a list of received webhooks costs does not depend on how many came, nor on whose came last."""

import pytest

from shared import sources
from shared.listing import MOST_LOOKED_AT
from shared.sources import NewSource, Verdict, create_source, list_received
from tests.store.test_list_plans import Cost
from tests.support.providers import GITHUB_SECRET
from tests.support.world import World

COUNT = 30_000
LIMIT = 50
PAGE = LIMIT + 1

SEED = """
insert into leasehook.events (tenant_id, type, content_type, payload)
select {tenant}, 'push', 'application/json', '{{}}' from generate_series(1, {count});

insert into leasehook.received (tenant_id, source_id, event_id, verdict)
select {tenant}, {quiet}, ev.id, 'accepted' from leasehook.events as ev;

insert into leasehook.received (tenant_id, source_id, event_id, verdict)
select {tenant}, {busy}, ev.id, 'accepted' from leasehook.events as ev
"""


@pytest.mark.parametrize(
    ("verdict", "most_rows"), [(None, 2 * PAGE), ("accepted", MOST_LOOKED_AT + PAGE)]
)
def test_a_page_reads_a_bounded_number_of_rows_of_its_source(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    verdict: Verdict | None,
    most_rows: int,
) -> None:
    quiet, busy = (
        create_source(
            world.database,
            world.sealer,
            world.tenant_id,
            NewSource(provider="github", secret=GITHUB_SECRET),
        )["id"]
        for _ in range(2)
    )
    with world.database.connection() as connection:
        connection.execute("set session_replication_role = replica")
        seed = SEED.format(
            tenant=f"'{world.tenant_id}'", quiet=f"'{quiet}'", busy=f"'{busy}'", count=COUNT
        )
        connection.execute(seed.encode())
        connection.execute("set session_replication_role = origin")
        connection.execute("analyze")
    cost = Cost()
    monkeypatch.setattr(sources, "fetch", cost.fetch)

    page = list_received(world.database, world.tenant_id, quiet, verdict=verdict, limit=LIMIT)

    assert len(page.rows) == LIMIT
    assert cost.rows("received") <= most_rows
    assert cost.rows("events") <= PAGE
