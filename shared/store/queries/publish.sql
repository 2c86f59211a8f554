-- name: publish
-- One round trip: the key, the event and its deliveries, committed when the answer arrives. No row: the key is not
-- known, or may not publish.
with caller as materialized (
    select k.tenant_id
    from leasehook.api_keys as k
    where k.key_hash = %(key_hash)s
        and k.revoked_at is null
        and 'publish' = any(k.scopes)
)

select published.event_id, published.delivery_count, published.repeated
from caller
cross join lateral leasehook.publish_bytes(
    tenant_id => caller.tenant_id,
    type => %(type)s,
    payload => %(payload)s,
    content_type => %(content_type)s,
    consumer => %(consumer)s,
    idempotency_key => %(idempotency_key)s,
    deliver_at => %(deliver_at)s,
    priority => %(priority)s,
    channels => %(channels)s::text[]
) as published;

-- name: publish_batch
-- Many events in one transaction, published in their order.
with caller as materialized (
    select k.tenant_id
    from leasehook.api_keys as k
    where k.key_hash = %(key_hash)s
        and k.revoked_at is null
        and 'publish' = any(k.scopes)
),

batch as materialized (
    select *
    from unnest(
        %(type)s::text[],
        %(payload)s::bytea[],
        %(content_type)s::text[],
        %(consumer)s::text[],
        %(idempotency_key)s::text[],
        %(deliver_at)s::timestamptz[],
        %(priority)s::integer[],
        %(channels)s::jsonb[]
    ) with ordinality as b (
        type, payload, content_type, consumer, idempotency_key, deliver_at, priority, channels, position
    )
    order by b.position
),

-- Batches with idempotency keys take turns, tenant by tenant: two that hold the same keys in another order would wait
-- for each other for ever.
turn as materialized (
    select pg_advisory_xact_lock(hashtextextended('leasehook.publish_batch' || caller.tenant_id::text, 0))
    from caller
    where exists (select 1 from batch where batch.idempotency_key is not null)
),

published as materialized (
    select batch.position, result.event_id, result.delivery_count, result.repeated
    from caller
    cross join (select count(*) from turn) as turns
    cross join batch
    cross join lateral leasehook.publish_bytes(
        tenant_id => caller.tenant_id,
        type => batch.type,
        payload => batch.payload,
        content_type => batch.content_type,
        consumer => batch.consumer,
        idempotency_key => batch.idempotency_key,
        deliver_at => batch.deliver_at,
        priority => batch.priority,
        channels => (select array_agg(channel) from jsonb_array_elements_text(batch.channels) as channel)
    ) as result
)

select published.event_id, published.delivery_count, published.repeated
from published
order by published.position;

-- name: publish_as_tenant
select published.event_id, published.delivery_count, published.repeated
from leasehook.publish_bytes(
    tenant_id => %(tenant_id)s,
    type => %(type)s,
    payload => %(payload)s,
    content_type => %(content_type)s,
    consumer => %(consumer)s,
    idempotency_key => %(idempotency_key)s,
    deliver_at => %(deliver_at)s,
    priority => %(priority)s,
    channels => %(channels)s::text[]
) as published;
