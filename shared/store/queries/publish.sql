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
    priority => %(priority)s
) as published;

-- name: publish_batch
-- Many events in one transaction. In the order of their idempotency keys, so that two batches with the same keys wait
-- for each other instead of deadlocking.
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
        %(priority)s::integer[]
    ) with ordinality as b (
        type, payload, content_type, consumer, idempotency_key, deliver_at, priority, position
    )
    order by b.idempotency_key, b.position
),

published as materialized (
    select batch.position, result.event_id, result.delivery_count, result.repeated
    from caller
    cross join batch
    cross join lateral leasehook.publish_bytes(
        tenant_id => caller.tenant_id,
        type => batch.type,
        payload => batch.payload,
        content_type => batch.content_type,
        consumer => batch.consumer,
        idempotency_key => batch.idempotency_key,
        deliver_at => batch.deliver_at,
        priority => batch.priority
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
    priority => %(priority)s
) as published;
