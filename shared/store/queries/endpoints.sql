-- name: ensure_consumer
insert into leasehook.consumers (tenant_id, id)
values (%(tenant_id)s, %(consumer)s)
on conflict do nothing;

-- name: hold_consumer
-- No row: it was deleted a moment ago. Held, it cannot be deleted before this transaction ends.
select c.id
from leasehook.consumers as c
where c.tenant_id = %(tenant_id)s
    and c.id = %(consumer)s
for key share;

-- name: create_endpoint
-- The endpoint, its circuit and its first secret: an endpoint without either of them cannot exist.
with endpoint as (
    insert into leasehook.endpoints (
        id,
        tenant_id,
        consumer,
        url,
        description,
        event_types,
        channels,
        ordered,
        headers_sealed,
        timeout_seconds,
        retry_delays_seconds,
        max_in_flight,
        rate_per_second
    )
    values (
        %(id)s,
        %(tenant_id)s,
        %(consumer)s,
        %(url)s,
        %(description)s,
        %(event_types)s::text[],
        %(channels)s::text[],
        %(ordered)s,
        %(headers_sealed)s,
        %(timeout_seconds)s,
        %(retry_delays_seconds)s::integer[],
        %(max_in_flight)s,
        %(rate_per_second)s
    )
    returning id, tenant_id
),

circuit as (
    insert into leasehook.circuits (endpoint_id, tenant_id)
    select endpoint.id, endpoint.tenant_id
    from endpoint
)

insert into leasehook.endpoint_secrets (tenant_id, endpoint_id, sealed)
select endpoint.tenant_id, endpoint.id, %(secret_sealed)s
from endpoint;

-- name: get_endpoint
select
    e.id,
    e.consumer,
    e.url,
    e.description,
    e.event_types,
    e.channels,
    e.ordered,
    e.headers_sealed,
    e.timeout_seconds,
    e.retry_delays_seconds,
    e.max_in_flight,
    e.rate_per_second,
    e.created_at,
    e.updated_at,
    e.disabled_at,
    e.disabled_reason,
    c.state as circuit_state,
    c.claimable_at as circuit_until,
    c.consecutive_failures,
    c.failing_since,
    (
        select s.sealed
        from leasehook.endpoint_secrets as s
        where s.endpoint_id = e.id
            and s.expires_at is null
        order by s.created_at desc
        limit 1
    ) as secret_sealed
from leasehook.endpoints as e
inner join leasehook.circuits as c on e.id = c.endpoint_id
where e.tenant_id = %(tenant_id)s
    and e.id = %(endpoint_id)s
    and e.deleted_at is null;

-- name: list_endpoints
-- Newest first. Looks at a bounded number of rows, so a page may have few of them and still a next one: `looked_to` is
-- the last id it came to, null when there is nothing beyond. The first row tells, even when no endpoint matches.
with looked_at as materialized (
    select e.id, e.disabled_at, e.deleted_at
    from leasehook.endpoints as e
    where e.tenant_id = %(tenant_id)s
        and (%(consumer)s::text is null or e.consumer = %(consumer)s)
        and (%(before)s::uuid is null or e.id < %(before)s)
    order by e.id desc
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
        and (%(disabled)s::boolean is null or (looked_at.disabled_at is not null) = %(disabled)s)
    order by looked_at.id desc
    limit %(limit)s
)

select
    sight.looked_to,
    e.id,
    e.consumer,
    e.url,
    e.description,
    e.event_types,
    e.channels,
    e.ordered,
    e.headers_sealed,
    e.timeout_seconds,
    e.retry_delays_seconds,
    e.max_in_flight,
    e.rate_per_second,
    e.created_at,
    e.updated_at,
    e.disabled_at,
    e.disabled_reason,
    c.state as circuit_state,
    c.claimable_at as circuit_until,
    c.consecutive_failures,
    c.failing_since,
    (
        select s.sealed
        from leasehook.endpoint_secrets as s
        where s.endpoint_id = e.id
            and s.expires_at is null
        order by s.created_at desc
        limit 1
    ) as secret_sealed
from sight
left join (
    matching
    inner join leasehook.endpoints as e on matching.id = e.id
    inner join leasehook.circuits as c on matching.id = c.endpoint_id
) on true
order by e.id desc;

-- name: lock_endpoint
-- Whoever changes an endpoint comes through here, one at a time. The circuit is locked first, as settling does.
with circuit as materialized (
    select c.endpoint_id
    from leasehook.circuits as c
    where c.tenant_id = %(tenant_id)s
        and c.endpoint_id = %(endpoint_id)s
    for no key update
)

select
    e.url,
    e.description,
    e.event_types,
    e.channels,
    e.ordered,
    e.headers_sealed,
    e.timeout_seconds,
    e.retry_delays_seconds,
    e.max_in_flight,
    e.rate_per_second,
    e.disabled_reason
from circuit
inner join leasehook.endpoints as e on circuit.endpoint_id = e.id
where e.tenant_id = %(tenant_id)s
    and e.deleted_at is null
for no key update of e;

-- name: update_endpoint
update leasehook.endpoints as e
set
    url = %(url)s,
    url_set_at = case when e.url = %(url)s then e.url_set_at else clock_timestamp() end,
    description = %(description)s,
    event_types = %(event_types)s::text[],
    channels = %(channels)s::text[],
    ordered = %(ordered)s,
    headers_sealed = %(headers_sealed)s,
    timeout_seconds = %(timeout_seconds)s,
    retry_delays_seconds = %(retry_delays_seconds)s::integer[],
    max_in_flight = %(max_in_flight)s,
    rate_per_second = %(rate_per_second)s,
    updated_at = statement_timestamp()
where e.tenant_id = %(tenant_id)s
    and e.id = %(endpoint_id)s;

-- name: enable_endpoint
update leasehook.endpoints as e
set disabled_at = null, disabled_reason = null, updated_at = statement_timestamp()
where e.tenant_id = %(tenant_id)s
    and e.id = %(endpoint_id)s
    and e.disabled_at is not null;

-- name: disable_endpoint
-- How long its deliveries have been parked is not made younger by an operator who confirms it.
update leasehook.endpoints as e
set
    disabled_at = coalesce(e.disabled_at, statement_timestamp()),
    disabled_reason = 'operator',
    updated_at = statement_timestamp()
where e.tenant_id = %(tenant_id)s
    and e.id = %(endpoint_id)s
    and e.disabled_reason is distinct from 'operator';

-- name: reset_circuit
-- Closed, with nothing counted, and whatever began before says nothing about it. After a recovery the number in flight
-- grows from one.
update leasehook.circuits as c
set
    state = 'closed',
    claimable_at = null,
    changed_at = clock_timestamp(),
    consecutive_failures = 0,
    open_count = 0,
    failing_since = null,
    held_until = '-infinity',
    recovered_at = case when %(recovers)s then clock_timestamp() else c.recovered_at end
where c.tenant_id = %(tenant_id)s
    and c.endpoint_id = %(endpoint_id)s;

-- name: take_turn_at_aligning
-- The endpoint's own row will not do: settling locks it after deliveries, and aligning reads it before.
select pg_advisory_xact_lock(hashtextextended('leasehook.align' || %(endpoint_id)s::text, 0));

-- name: align_deliveries
-- Some unfinished deliveries of an endpoint that are in line and should not be, or the other way round; `ordered` says
-- which they should be, null: as the endpoint is. They are locked in the order of their ids, as settling does.
with misplaced as materialized (
    select d.id, coalesce(%(ordered)s::boolean, e.ordered) as ordered
    from leasehook.endpoints as e
    inner join leasehook.deliveries as d on e.id = d.endpoint_id
    where e.tenant_id = %(tenant_id)s
        and e.id = %(endpoint_id)s
        and d.claimable_at is not null
        and d.ordered <> coalesce(%(ordered)s::boolean, e.ordered)
    limit %(limit)s
),

locked as materialized (
    select d.id, misplaced.ordered
    from leasehook.deliveries as d
    inner join misplaced on d.id = misplaced.id
    order by d.id
    for no key update of d
)

update leasehook.deliveries as d
set ordered = locked.ordered, rank = case when locked.ordered then 0 else d.rank end
from locked
where d.tenant_id = %(tenant_id)s
    and d.id = locked.id
returning d.id;

-- name: lately_ordered_endpoints
-- Ordered ones that were changed, perhaps to be so, while transactions that are over by now may have been publishing.
select e.tenant_id, e.id as endpoint_id
from leasehook.endpoints as e
where e.ordered
    and e.deleted_at is null
    and e.updated_at > statement_timestamp() - interval '2 days';

-- name: live_secret_count
select count(*) as total
from leasehook.endpoint_secrets as s
where s.tenant_id = %(tenant_id)s
    and s.endpoint_id = %(endpoint_id)s
    and (s.expires_at is null or s.expires_at > clock_timestamp());

-- name: expire_secrets
-- The secrets so far sign for the overlap and no longer; one that would have ended sooner still does. What has ended
-- is erased.
update leasehook.endpoint_secrets as s
set
    expires_at = least(s.expires_at, clock_timestamp() + %(overlap_seconds)s * interval '1 second'),
    sealed = case
        when %(overlap_seconds)s = 0 or s.expires_at <= clock_timestamp() then ''
        else s.sealed
    end
where s.tenant_id = %(tenant_id)s
    and s.endpoint_id = %(endpoint_id)s;

-- name: add_secret
insert into leasehook.endpoint_secrets (tenant_id, endpoint_id, sealed, created_at)
values (%(tenant_id)s, %(endpoint_id)s, %(sealed)s, clock_timestamp());

-- name: delete_endpoint
update leasehook.endpoints as e
set deleted_at = statement_timestamp(), updated_at = statement_timestamp(), headers_sealed = null
where e.tenant_id = %(tenant_id)s
    and e.id = %(endpoint_id)s
    and e.deleted_at is null
returning e.id;

-- name: cancel_some_waiting
-- Some of an endpoint's waiting deliveries; what another transaction is at is left to maintenance.
with waiting as materialized (
    select d.id
    from leasehook.deliveries as d
    where d.tenant_id = %(tenant_id)s
        and d.endpoint_id = %(endpoint_id)s
        and d.claimable_at is not null
        and d.status in ('pending', 'failed')
    limit %(limit)s
    for no key update skip locked
)

update leasehook.deliveries as d
set status = 'cancelled', claimable_at = null, finished_at = statement_timestamp()
from waiting
where d.tenant_id = %(tenant_id)s
    and d.id = waiting.id;

-- name: send_test_event
-- An event for one endpoint, whatever its filters; about an operational event Leasehook announces nothing.
with endpoint as materialized (
    select e.id, e.tenant_id, e.consumer, e.ordered
    from leasehook.endpoints as e
    where e.tenant_id = %(tenant_id)s
        and e.id = %(endpoint_id)s
        and e.deleted_at is null
),

event as (
    insert into leasehook.events (tenant_id, consumer, type, content_type, payload, operational)
    select endpoint.tenant_id, endpoint.consumer, %(type)s, 'application/json', %(payload)s, true
    from endpoint
    returning id
)

insert into leasehook.deliveries (tenant_id, event_id, endpoint_id, ordered, claimable_at)
select endpoint.tenant_id, event.id, endpoint.id, endpoint.ordered, clock_timestamp()
from endpoint
cross join event
returning event_id, id as delivery_id;
