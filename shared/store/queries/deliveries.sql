-- name: keep_to_indexes
-- For this transaction: rows come in the order of an index, from where they begin, up to a limit. A plan that collects
-- rows and then sorts them reads all there are, and is taken when few are expected.
select
    set_config('enable_bitmapscan', 'off', true) as bitmapscan,
    set_config('enable_sort', 'off', true) as sort;

-- name: walk_deliveries
-- Look at a bounded number of a tenant's deliveries, newest first, and say which pass the filters. `frontier` is the
-- last one that was looked at; null: there are no more.
--
-- One arm runs, by %(path)s; each reads one index in order and nothing else, up to %(lane_limit)s rows per lane.
-- A filter that matches little can make a page short, never slow. Of several lanes (endpoints), what lies beyond a lane
-- that was cut off is left for the next page.
--
-- Two things keep the planner to the one index that begins with the tenant or lane. The primary key has the order too,
-- and would do for a tenant who owns most rows, if the others' did not stand in front in their thousands: so the tenant
-- is said as a range whose ends are not known while planning, which is taken for a rare one. Within a lane rows are
-- compared as pairs, an order that no other index has.
-- The deliveries of one event are in the order of their endpoints, all others in that of their own ids.
with walked as materialized (
    select null::uuid as lane, arm.*
    from (
        select d.id as key, d.id, d.event_id, d.endpoint_id, d.status, d.last_error_kind
        from leasehook.deliveries as d
        where %(path)s = 'tenant'
            and d.tenant_id between (select %(tenant_id)s::uuid) and (select %(tenant_id)s::uuid)
            and d.id >= %(from_id)s
            and d.id < least(%(before_id)s::uuid, %(before_key)s::uuid)
        order by d.tenant_id desc, d.id desc
        limit %(lane_limit)s
    ) as arm
    union all
    select null, arm.*
    from (
        select d.id, d.id, d.event_id, d.endpoint_id, d.status, d.last_error_kind
        from leasehook.deliveries as d
        where %(path)s = 'dead'
            and d.dead_reason is not null
            and d.tenant_id between (select %(tenant_id)s::uuid) and (select %(tenant_id)s::uuid)
            and d.id >= %(from_id)s
            and d.id < least(%(before_id)s::uuid, %(before_key)s::uuid)
        order by d.tenant_id desc, d.id desc
        limit %(lane_limit)s
    ) as arm
    union all
    select e.id, arm.*
    from leasehook.endpoints as e
    cross join lateral (
        select d.id, d.id, d.event_id, d.endpoint_id, d.status, d.last_error_kind
        from leasehook.deliveries as d
        where (d.endpoint_id, d.id) >= (e.id, %(from_id)s)
            and (d.endpoint_id, d.id) < (e.id, least(%(before_id)s::uuid, %(before_key)s::uuid))
        order by d.endpoint_id desc, d.id desc
        limit %(lane_limit)s
    ) as arm
    where %(path)s = 'endpoints'
        and e.tenant_id = %(tenant_id)s
        and e.id = any(%(lanes)s::uuid[])
    union all
    select null, arm.*
    from leasehook.events as ev
    cross join lateral (
        select d.endpoint_id, d.id, d.event_id, d.endpoint_id, d.status, d.last_error_kind
        from leasehook.deliveries as d
        where (d.event_id, d.endpoint_id) >= (ev.id, '00000000-0000-0000-0000-000000000000')
            and (d.event_id, d.endpoint_id) < (ev.id, %(before_key)s)
        order by d.event_id desc, d.endpoint_id desc
        limit %(lane_limit)s
    ) as arm
    where %(path)s = 'event'
        and ev.tenant_id = %(tenant_id)s
        and ev.id = %(event_id)s
),

frontier as materialized (
    select lane.lowest_keys[1] as key
    from (
        select array_agg(walked.key order by walked.key) as lowest_keys
        from walked
        group by walked.lane
        having count(*) = %(lane_limit)s
    ) as lane
    order by lane.lowest_keys[1] desc
    limit 1
),

matched as materialized (
    select walked.key, walked.id
    from walked
    left join frontier on true
    left join leasehook.events as ev on walked.event_id = ev.id
    left join leasehook.endpoints as e on walked.endpoint_id = e.id
    where (frontier.key is null or walked.key >= frontier.key)
        and walked.id >= %(from_id)s
        and walked.id < %(before_id)s
        and (%(status)s::text is null or walked.status::text = %(status)s)
        and (%(endpoint_id)s::uuid is null or walked.endpoint_id = %(endpoint_id)s)
        and (%(error_kind)s::text is null or walked.last_error_kind = %(error_kind)s)
        and (%(consumer)s::text is null or e.consumer = %(consumer)s)
        and (%(event_type)s::text is null or ev.type = %(event_type)s)
        and (%(type_prefix)s::text is null or starts_with(ev.type, %(type_prefix)s))
    order by walked.key desc
    limit %(limit)s
)

select
    array(select matched.id from matched order by matched.key desc) as ids,
    array(select matched.key from matched order by matched.key desc) as keys,
    (select frontier.key from frontier) as frontier;

-- name: endpoints_of_consumer
select e.id
from leasehook.endpoints as e
where e.tenant_id = %(tenant_id)s
    and e.consumer = %(consumer)s
order by e.id
limit %(limit)s;

-- name: show_deliveries
-- The rows are fetched before anything is joined to them: endpoints by events is a product that few guess right.
with wanted as materialized (
    select d.*
    from leasehook.deliveries as d
    where d.tenant_id = %(tenant_id)s
        and d.id = any(%(ids)s::uuid[])
)

select
    d.id,
    d.event_id,
    d.endpoint_id,
    ev.type as event_type,
    e.consumer,
    d.status::text as status,
    d.status in ('pending', 'failed') and e.disabled_at is not null as parked,
    d.attempt_count,
    d.created_at,
    d.claimable_at,
    d.finished_at,
    d.last_status_code,
    d.last_error_kind,
    d.dead_reason
from wanted as d
inner join leasehook.events as ev on d.event_id = ev.id
inner join leasehook.endpoints as e on d.endpoint_id = e.id
order by array_position(%(ids)s::uuid[], d.id);

-- name: show_request
-- What the requests of a delivery are made of, besides its payload and secrets.
select d.claimed_at, ev.content_type, e.headers_sealed
from leasehook.deliveries as d
inner join leasehook.events as ev on d.event_id = ev.id
inner join leasehook.endpoints as e on d.endpoint_id = e.id
where d.tenant_id = %(tenant_id)s
    and d.id = %(delivery_id)s;

-- name: get_delivery
select
    d.id,
    d.event_id,
    d.endpoint_id,
    ev.type as event_type,
    ev.content_type,
    ev.payload,
    e.url,
    d.status::text as status,
    d.attempt_count,
    d.created_at,
    d.claimable_at,
    d.claimed_at,
    d.finished_at,
    d.last_status_code,
    d.last_error_kind,
    d.dead_reason
from leasehook.deliveries as d
inner join leasehook.events as ev on d.event_id = ev.id
inner join leasehook.endpoints as e on d.endpoint_id = e.id
where d.tenant_id = %(tenant_id)s
    and d.id = %(delivery_id)s;

-- name: list_attempts
-- The newest attempts, up to a hundred; one without a stored result is an attempt whose worker never reported, or
-- (the newest one of a delivery in progress) one that is under way. Responses are cut so that all of them fit into one
-- answer of a Lambda function.
select
    numbers.number,
    a.started_at,
    a.duration_ms,
    a.status_code,
    case
        when a.number is not null then a.error_kind
        when d.status = 'in_progress' and numbers.number = d.attempt_count then null
        else 'lost'
    end as error_kind,
    a.error_detail,
    left(a.response, 8192) as response,
    coalesce(a.response_truncated or length(a.response) > 8192, false) as response_truncated,
    coalesce(a.late, false) as late
from leasehook.deliveries as d
cross join lateral generate_series(greatest(d.attempt_count - 99, 1), d.attempt_count) as numbers (number)
left join leasehook.attempts as a on d.id = a.delivery_id and numbers.number = a.number
where d.tenant_id = %(tenant_id)s
    and d.id = %(delivery_id)s
order by numbers.number;

-- name: replay_delivery
-- Due at once, with a fresh retry schedule. No row: it is in progress, or waits for its first attempt.
update leasehook.deliveries as d
set
    status = 'pending',
    claimable_at = statement_timestamp(),
    finished_at = null,
    dead_reason = null,
    attempt_base = d.attempt_count
where d.tenant_id = %(tenant_id)s
    and d.id = %(delivery_id)s
    and d.status in ('failed', 'succeeded', 'dead', 'cancelled')
returning d.id;

-- name: lock_delivery
-- Replays and cancellations of one delivery take turns.
select d.status::text as status, e.deleted_at is not null as endpoint_deleted
from leasehook.deliveries as d
inner join leasehook.endpoints as e on d.endpoint_id = e.id
where d.tenant_id = %(tenant_id)s
    and d.id = %(delivery_id)s
for no key update of d;

-- name: remember_replay
-- No row: a replay under this key was asked for before.
insert into leasehook.replay_requests (delivery_id, key, tenant_id)
values (%(delivery_id)s, %(key)s, %(tenant_id)s)
on conflict do nothing
returning key;

-- name: cancel_delivery
-- Call off a delivery that waits; no row: it does not.
update leasehook.deliveries as d
set
    status = 'cancelled',
    claimable_at = null,
    finished_at = statement_timestamp()
where d.tenant_id = %(tenant_id)s
    and d.id = %(delivery_id)s
    and d.status in ('pending', 'failed')
returning d.id;
