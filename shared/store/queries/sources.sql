-- name: create_source
-- No row: the slug is taken.
with source as (
    insert into leasehook.sources (
        id, tenant_id, slug, provider, configuration, description, consumer, event_type_prefix, tolerance_seconds
    )
    values (
        %(id)s,
        %(tenant_id)s,
        %(slug)s,
        %(provider)s,
        %(configuration)s::json,
        %(description)s,
        %(consumer)s,
        %(event_type_prefix)s,
        %(tolerance_seconds)s
    )
    on conflict (slug) where deleted_at is null do nothing
    returning id, tenant_id
)

insert into leasehook.source_secrets (tenant_id, source_id, sealed)
select source.tenant_id, source.id, %(sealed)s
from source
returning source_id;

-- name: get_source
select
    s.id,
    s.slug,
    s.provider,
    s.configuration::text as configuration,
    s.description,
    s.consumer,
    s.event_type_prefix,
    s.tolerance_seconds,
    s.disabled_at,
    s.created_at,
    s.updated_at
from leasehook.sources as s
where s.tenant_id = %(tenant_id)s
    and (s.id = %(source_id)s or s.slug = %(slug)s)
    and s.deleted_at is null;

-- name: lock_source
select s.id
from leasehook.sources as s
where s.tenant_id = %(tenant_id)s
    and s.id = %(source_id)s
    and s.deleted_at is null
for no key update;

-- name: list_sources
-- Newest first, deleted ones left out. Looks at a bounded number of rows: `looked_to` is the last id it came to, null
-- when there is nothing beyond. The first row tells, even when no source is left.
with looked_at as materialized (
    select s.id, s.deleted_at
    from leasehook.sources as s
    where s.tenant_id = %(tenant_id)s
        and (%(before)s::uuid is null or s.id < %(before)s)
    order by s.id desc
    limit %(look_limit)s
),

sight as (
    select
        case
            when count(*) = %(look_limit)s then (array_agg(looked_at.id order by looked_at.id))[1]
        end as looked_to
    from looked_at
),

matching as (
    select looked_at.id
    from looked_at
    where looked_at.deleted_at is null
    order by looked_at.id desc
    limit %(limit)s
)

select
    sight.looked_to,
    s.id,
    s.slug,
    s.provider,
    s.configuration::text as configuration,
    s.description,
    s.consumer,
    s.event_type_prefix,
    s.tolerance_seconds,
    s.disabled_at,
    s.created_at,
    s.updated_at
from sight
left join (
    matching
    inner join leasehook.sources as s on matching.id = s.id
) on true
order by s.id desc;

-- name: update_source
update leasehook.sources as s
set
    description = %(description)s,
    consumer = %(consumer)s,
    event_type_prefix = %(event_type_prefix)s,
    tolerance_seconds = %(tolerance_seconds)s,
    updated_at = statement_timestamp()
where s.tenant_id = %(tenant_id)s
    and s.id = %(source_id)s;

-- name: switch_source
update leasehook.sources as s
set
    disabled_at = case when %(disabled)s then coalesce(s.disabled_at, statement_timestamp()) end,
    updated_at = statement_timestamp()
where s.tenant_id = %(tenant_id)s
    and s.id = %(source_id)s
    and (s.disabled_at is not null) <> %(disabled)s;

-- name: delete_source
update leasehook.sources as s
set deleted_at = statement_timestamp(), updated_at = statement_timestamp()
where s.tenant_id = %(tenant_id)s
    and s.id = %(source_id)s
    and s.deleted_at is null
returning s.id;

-- name: erase_source_secrets
-- Those that are accepted no longer, or all of them.
delete from leasehook.source_secrets as x
where x.tenant_id = %(tenant_id)s
    and x.source_id = %(source_id)s
    and (%(all)s or x.expires_at <= clock_timestamp());

-- name: expire_source_secrets
-- The secrets so far are accepted for the overlap and no longer; one that would have ended sooner still does.
update leasehook.source_secrets as x
set expires_at = least(x.expires_at, clock_timestamp() + %(overlap_seconds)s * interval '1 second')
where x.tenant_id = %(tenant_id)s
    and x.source_id = %(source_id)s;

-- name: live_source_secrets
select x.sealed
from leasehook.source_secrets as x
where x.tenant_id = %(tenant_id)s
    and x.source_id = %(source_id)s
    and (x.expires_at is null or x.expires_at > clock_timestamp())
order by x.created_at desc, x.id desc;

-- name: add_source_secret
insert into leasehook.source_secrets (tenant_id, source_id, sealed, created_at)
values (%(tenant_id)s, %(source_id)s, %(sealed)s, clock_timestamp());

-- name: list_received
-- Newest first; at most `look_limit` rows are looked at. The first row tells how far, as in list_sources. What is shown is
-- looked up row by row: before Postgres 18, with sorting disabled, all joins cost the planner the same.
with looked_at as materialized (
    select r.id, r.verdict
    from leasehook.received as r
    where r.tenant_id = %(tenant_id)s
        and r.source_id = %(source_id)s
        and (%(before)s::uuid is null or r.id < %(before)s)
    order by r.id desc
    limit %(look_limit)s
),

sight as (
    select
        case
            when count(*) = %(look_limit)s then (array_agg(looked_at.id order by looked_at.id))[1]
        end as looked_to
    from looked_at
),

matching as (
    select looked_at.id
    from looked_at
    where %(verdict)s::text is null or looked_at.verdict = %(verdict)s
    order by looked_at.id desc
    limit %(limit)s
)

select
    sight.looked_to,
    r.id,
    r.verdict,
    r.event_id,
    ev.type as event_type,
    ev.content_type,
    ev.payload_bytes,
    r.dedupe_id,
    r.headers,
    r.received_at,
    r.last_received_at,
    r.times
from sight
left join (
    matching
    cross join lateral (
        select
            one.id,
            one.verdict,
            one.event_id,
            one.dedupe_id,
            one.headers,
            one.received_at,
            one.last_received_at,
            one.times
        from leasehook.received as one
        where one.source_id = %(source_id)s
            and one.id = matching.id
        limit 1
    ) as r
    cross join lateral (
        select one.type, one.content_type, octet_length(one.payload) as payload_bytes
        from leasehook.events as one
        where one.id = r.event_id
        limit 1
    ) as ev
) on true
order by r.id desc;

-- name: source_refusals
select f.day, f.reason, f.count, f.last_at
from leasehook.source_refusals as f
where f.tenant_id = %(tenant_id)s
    and f.source_id = %(source_id)s
    and f.day > (statement_timestamp() at time zone 'utc')::date - %(days)s::integer
order by f.day desc, f.reason asc;
