-- name: find_source
-- What verifying a request to a slug needs, in one round trip.
select
    s.id,
    s.tenant_id,
    s.provider,
    s.configuration::text as configuration,
    s.event_type_prefix,
    s.tolerance_seconds,
    s.disabled_at is not null as disabled,
    array(
        select x.sealed
        from leasehook.source_secrets as x
        where x.source_id = s.id
            and (x.expires_at is null or x.expires_at > statement_timestamp())
        order by x.created_at desc, x.id desc
    ) as sealed_secrets
from leasehook.sources as s
where s.slug = %(slug)s
    and s.deleted_at is null;

-- name: receive
select answer.event_id, answer.delivery_count, answer.duplicate
from leasehook.receive(
    source_id => %(source_id)s,
    type => %(type)s,
    payload => %(payload)s,
    content_type => %(content_type)s,
    dedupe_id => %(dedupe_id)s,
    headers => %(headers)s::jsonb
) as answer;

-- name: count_refusals
-- A count that is lost in a crash is no loss, so nobody waits for the disk. Rows are taken in one order, so that two who
-- count do not wait for each other.
with hurried as materialized (
    select set_config('synchronous_commit', 'off', true)
)

insert into leasehook.source_refusals as f (tenant_id, source_id, day, reason, count, last_at)
select
    refused.tenant_id,
    refused.source_id,
    (statement_timestamp() at time zone 'utc')::date,
    refused.reason,
    refused.count,
    statement_timestamp()
from hurried
cross join unnest(
    %(tenant_id)s::uuid[], %(source_id)s::uuid[], %(reason)s::text[], %(count)s::bigint[]
) as refused (tenant_id, source_id, reason, count)
order by refused.source_id, refused.reason
on conflict (source_id, day, reason) do update
set count = f.count + excluded.count, last_at = excluded.last_at;

-- name: prune_source_refusals
with expired as materialized (
    select f.ctid as place
    from leasehook.source_refusals as f
    where f.day < (statement_timestamp() at time zone 'utc')::date - %(retention_days)s::integer
    order by f.day
    limit %(limit)s
    for update skip locked
)

delete from leasehook.source_refusals as f
using expired
where f.ctid = expired.place
returning 1;
