-- name: publish
-- One round trip: the key, the event and its deliveries, committed when the answer arrives. No row: the key is not
-- known, or may not publish. A row with `refused_type`: nothing was published, see leasehook.publish_judged.
with caller as materialized (
    select k.tenant_id
    from leasehook.api_keys as k
    where k.key_hash = %(key_hash)s
        and k.revoked_at is null
        and 'publish' = any(k.scopes)
)

select
    answer.event_id,
    caller.tenant_id,
    answer.delivery_count,
    answer.repeated,
    answer.refused_type,
    answer.version,
    answer.schema,
    answer.archived,
    array[0] as positions
from caller
cross join lateral leasehook.publish_judged(
    tenant_id => caller.tenant_id,
    schema_version => %(schema_version)s,
    type => %(type)s,
    payload => %(payload)s,
    content_type => %(content_type)s,
    consumer => %(consumer)s,
    idempotency_key => %(idempotency_key)s,
    deliver_at => %(deliver_at)s,
    priority => %(priority)s,
    channels => %(channels)s::text[]
) as answer;

-- name: publish_batch
-- Many events in one transaction, published in their order: all of them, or none and a row for each type that stands in
-- the way (see leasehook.publish_judged; at most `most_types` of them), with the positions of its events, from 0.
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
        %(channels)s::jsonb[],
        %(schema_version)s::integer[]
    ) with ordinality as b (
        type, payload, content_type, consumer, idempotency_key, deliver_at, priority, channels, schema_version, position
    )
    order by b.position
),

-- A key that was used before gets its first answer again, whatever has become of the type since.
refused as materialized (
    select t.name, t.version, t.archived_at is not null as archived, array_agg(batch.position::integer - 1) as positions
    from caller
    cross join batch
    inner join leasehook.event_types as t
        on t.tenant_id = caller.tenant_id and t.name = batch.type
    where (t.archived_at is not null or (t.schema is not null and t.version <> batch.schema_version))
        and not exists (
            select from leasehook.idempotency_keys as k
            where k.tenant_id = caller.tenant_id
                and k.key = batch.idempotency_key
        )
    group by t.tenant_id, t.name
    limit %(most_types)s
),

admitted as materialized (
    select caller.tenant_id
    from caller
    where not exists (select from refused)
),

-- Batches with idempotency keys take turns, tenant by tenant: two that hold the same keys in another order would wait
-- for each other for ever.
turn as materialized (
    select pg_advisory_xact_lock(hashtextextended('leasehook.publish_batch' || admitted.tenant_id::text, 0))
    from admitted
    where exists (select 1 from batch where batch.idempotency_key is not null)
),

published as materialized (
    select batch.position, result.event_id, admitted.tenant_id, result.delivery_count, result.repeated
    from admitted
    cross join (select count(*) from turn) as turns
    cross join batch
    cross join lateral leasehook.publish_bytes(
        tenant_id => admitted.tenant_id,
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

select answer.*
from (
    select
        published.event_id,
        published.tenant_id,
        published.delivery_count,
        published.repeated,
        null::text as refused_type,
        null::integer as version,
        null::text as schema,
        null::boolean as archived,
        null::integer[] as positions,
        published.position
    from published
    union all
    select null, null, null, null, refused.name, refused.version, t.schema::text, refused.archived, refused.positions, 0
    from caller
    cross join refused
    inner join leasehook.event_types as t
        on t.tenant_id = caller.tenant_id and t.name = refused.name
) as answer
order by answer.position;

-- name: publish_as_tenant
-- Like `publish`, for a caller that reaches the database itself.
select
    answer.event_id,
    %(tenant_id)s::uuid as tenant_id,
    answer.delivery_count,
    answer.repeated,
    answer.refused_type,
    answer.version,
    answer.schema,
    answer.archived,
    array[0] as positions
from leasehook.publish_judged(
    tenant_id => %(tenant_id)s,
    schema_version => %(schema_version)s,
    type => %(type)s,
    payload => %(payload)s,
    content_type => %(content_type)s,
    consumer => %(consumer)s,
    idempotency_key => %(idempotency_key)s,
    deliver_at => %(deliver_at)s,
    priority => %(priority)s,
    channels => %(channels)s::text[]
) as answer;
