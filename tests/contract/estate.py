"""One of everything that a tenant can own, and what the API's paths call it."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from shared import event_types, replay
from shared.keys import create_key
from shared.sources import NewSource, create_source
from shared.store.tenancy import ensure_tenant
from tests.management.conftest import Client
from tests.support.providers import GITHUB_SECRET, sign
from tests.support.world import World

Rows = dict[str, Counter[str]]


@dataclass(frozen=True)
class Estate:
    """A tenant and what it has: names that no other tenant uses, and one row at least in every table."""

    tenant_id: UUID
    key: str
    endpoint_id: UUID
    event_id: UUID
    dead_id: UUID
    waiting_id: UUID
    key_id: UUID
    replay_id: UUID
    source_id: UUID
    slug: str
    consumer: str
    event_type: str
    idempotency_key: str

    @property
    def by_parameter(self) -> dict[str, str]:
        """What a path or query parameter may be, by its name. A name that is missing here is a new kind of thing."""
        return {
            "consumer": self.consumer,
            "delivery_id": str(self.dead_id),
            "endpoint_id": str(self.endpoint_id),
            "event_id": str(self.event_id),
            "event_type": self.event_type,
            "idempotency_key": self.idempotency_key,
            "key_id": str(self.key_id),
            "name": self.event_type,
            "replay_id": str(self.replay_id),
            "slug": self.slug,
            "source_id": str(self.source_id),
            "tenant_id": str(self.tenant_id),
            "type": self.event_type,
        }

    @property
    def marks(self) -> list[str]:
        """Texts by which an answer shows something of this tenant."""
        return [*self.by_parameter.values(), str(self.waiting_id)]


def settle_down(world: World, client: Client, name: str) -> Estate:
    """Make a tenant that has everything."""
    tenant_id = ensure_tenant(world.database, name)
    key = world.key(tenant_id=tenant_id)
    consumer, event_type, idempotency_key = f"{name}.customer", f"{name}.paid", f"{name}-key"
    event_types.create(world.database, tenant_id, event_type, {"description": name})
    endpoint = world.endpoint(tenant_id=tenant_id, consumer=consumer, headers={"X-Key": name})
    published = world.publish(
        tenant_id=tenant_id,
        event_type=event_type,
        consumer=consumer,
        idempotency_key=idempotency_key,
    )
    [dead] = world.claim().claimed
    world.settle(world.report(dead, "bury", error_kind="connect_error", error_detail="refused"))
    # A replay that is heeded once: its key is kept, too.
    repeated = client.request(
        "POST",
        f"/v1/deliveries/{dead.delivery_id}/replay",
        headers={"authorization": f"Bearer {key}", "idempotency-key": "once"},
    )
    assert repeated.status_code == 202, repeated.text
    [dead] = world.claim().claimed
    world.settle(world.report(dead, "bury", error_kind="connect_error", error_detail="refused"))
    waiting = world.publish(
        tenant_id=tenant_id,
        event_type=event_type,
        consumer=consumer,
        deliver_at=world.now() + timedelta(hours=1),
    )
    source = create_source(
        world.database,
        world.sealer,
        tenant_id,
        NewSource(provider="github", slug=name, secret=GITHUB_SECRET),
    )
    for body in (b'{"action": "opened"}', b"{}"):
        signed = sign("github", body)
        good = body != b"{}"
        answer = client.request(
            "POST",
            f"/in/{name}",
            content=body if good else b'{"forged": true}',
            headers=dict(signed.headers),
        )
        assert answer.status_code == (200 if good else 401), answer.text
    return Estate(
        tenant_id=tenant_id,
        key=key,
        endpoint_id=endpoint["id"],
        event_id=published.event_id,
        dead_id=dead.delivery_id,
        waiting_id=world.one(
            "select id from leasehook.deliveries where event_id = %s", waiting.event_id
        )["id"],
        key_id=create_key(world.database, tenant_id, "unused")["id"],
        replay_id=replay.create(world.database, tenant_id, replay.ReplayFilter())["id"],
        source_id=source["id"],
        slug=name,
        consumer=consumer,
        event_type=event_type,
        idempotency_key=idempotency_key,
    )


def rows(world: World, tenant_id: UUID | None = None) -> Rows:
    """Every row of every table as text, or of one tenant's rows."""
    return {
        table: Counter(
            each["text"]
            for each in world.sql(
                f"""
                select to_jsonb(t)::text as text
                from leasehook.{table} as t
                where %s::text is null or to_jsonb(t) ->> 'tenant_id' = %s::text
                """,
                tenant_id and str(tenant_id),
                tenant_id and str(tenant_id),
            )
        )
        for table in tables(world)
    }


def tables(world: World) -> list[str]:
    """The names of all tables."""
    found = world.sql(
        """
        select relname as name
        from pg_class
        where relnamespace = 'leasehook'::regnamespace and relkind = 'r'
        order by relname
        """
    )
    return [row["name"] for row in found]
