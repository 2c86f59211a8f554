-- name: walk_events
-- Look at a bounded number of a tenant's events, newest first, and say which pass the filters. `frontier` is the last
-- one that was looked at; null: there are no more. See `walk_deliveries`.
with walked as materialized (
    select arm.*
    from (
        select ev.id, ev.type, ev.consumer
        from leasehook.events as ev
        where %(path)s = 'tenant'
            and ev.tenant_id between (select %(tenant_id)s::uuid) and (select %(tenant_id)s::uuid)
            and ev.id >= %(from_id)s
            and ev.id < %(before_id)s
        order by ev.tenant_id desc, ev.id desc
        limit %(lane_limit)s
    ) as arm
    union all
    select arm.*
    from (
        select ev.id, ev.type, ev.consumer
        from leasehook.events as ev
        where %(path)s = 'consumer'
            and ev.tenant_id between (select %(tenant_id)s::uuid) and (select %(tenant_id)s::uuid)
            and ev.consumer between (select %(consumer)s::text) and (select %(consumer)s::text)
            and ev.id >= %(from_id)s
            and ev.id < %(before_id)s
        order by ev.tenant_id desc, ev.consumer desc, ev.id desc
        limit %(lane_limit)s
    ) as arm
    union all
    select ev.id, ev.type, ev.consumer
    from leasehook.idempotency_keys as k
    inner join leasehook.events as ev on k.event_id = ev.id
    where %(path)s = 'idempotency_key'
        and k.tenant_id = %(tenant_id)s
        and k.key = %(idempotency_key)s
        and ev.tenant_id = %(tenant_id)s
        and ev.id >= %(from_id)s
        and ev.id < %(before_id)s
),

matched as materialized (
    select walked.id
    from walked
    where (%(consumer)s::text is null or walked.consumer = %(consumer)s)
        and (%(event_type)s::text is null or walked.type = %(event_type)s)
        and (%(type_prefix)s::text is null or starts_with(walked.type, %(type_prefix)s))
    order by walked.id desc
    limit %(limit)s
)

select
    array(select matched.id from matched order by matched.id desc) as ids,
    array(select matched.id from matched order by matched.id desc) as keys,
    case
        when (select count(*) from walked) = %(lane_limit)s
            then (select walked.id from walked order by walked.id limit 1)
    end as frontier;

-- name: show_events
select
    ev.id,
    ev.type,
    ev.consumer,
    ev.content_type,
    octet_length(ev.payload) as payload_bytes,
    ev.channels,
    ev.priority,
    case when isfinite(ev.deliver_at) then ev.deliver_at end as deliver_at,
    ev.operational,
    ev.created_at
from unnest(%(ids)s::uuid[]) with ordinality as wanted (id, position)
inner join leasehook.events as ev on wanted.id = ev.id
where ev.tenant_id = %(tenant_id)s
order by wanted.position;

-- name: get_payload
-- The first %(most_bytes)s bytes; `payload_bytes` says how many there are.
select
    ev.content_type,
    octet_length(ev.payload) as payload_bytes,
    substring(ev.payload from 1 for %(most_bytes)s) as payload
from leasehook.events as ev
where ev.tenant_id = %(tenant_id)s
    and ev.id = %(event_id)s;

-- name: reach_of_event
-- A tenant's newest endpoints, as they are now, each with its delivery of an event if it has one.
with newest as materialized (
    select e.*
    from leasehook.endpoints as e
    where e.tenant_id = %(tenant_id)s
    order by e.id desc
    limit %(limit)s
)

select
    e.id as endpoint_id,
    e.consumer,
    e.event_types,
    e.channels,
    e.created_at,
    e.deleted_at,
    e.disabled_at is not null as disabled,
    d.id as delivery_id,
    coalesce(d.claimable_at is not null, false) as unfinished
from newest as e
left join lateral (
    select own.id, own.claimable_at
    from leasehook.deliveries as own
    where own.tenant_id = %(tenant_id)s
        and own.event_id = %(event_id)s
        and own.endpoint_id = e.id
    limit 1
) as d on true
order by e.id desc;
