-- name: list_deliveries
select
    d.id,
    d.event_id,
    d.endpoint_id,
    ev.type as event_type,
    d.status::text as status,
    d.attempt_count,
    d.created_at,
    d.claimable_at,
    d.finished_at,
    d.last_status_code,
    d.last_error_kind,
    d.dead_reason
from leasehook.deliveries as d
inner join leasehook.events as ev on d.event_id = ev.id
where d.tenant_id = %(tenant_id)s
    and (%(status)s::leasehook.delivery_status is null or d.status = %(status)s)
    and (%(endpoint_id)s::uuid is null or d.endpoint_id = %(endpoint_id)s)
    and (%(before)s::uuid is null or d.id < %(before)s)
order by d.id desc
limit %(limit)s;

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
-- Every attempt number up to the last; one without a stored result is an attempt whose worker never reported, or
-- (the newest one of a delivery in progress) one that is under way.
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
    a.response,
    coalesce(a.response_truncated, false) as response_truncated,
    coalesce(a.late, false) as late
from leasehook.deliveries as d
cross join lateral generate_series(1, d.attempt_count) as numbers (number)
left join leasehook.attempts as a on d.id = a.delivery_id and numbers.number = a.number
where d.tenant_id = %(tenant_id)s
    and d.id = %(delivery_id)s
order by numbers.number;

-- name: replay_delivery
-- Ask for a delivery again, with a fresh retry schedule. A row that is in progress or already waiting for its first
-- attempt is left alone: `replayed` says which it was.
with found as materialized (
    select d.id, d.status::text as status_before
    from leasehook.deliveries as d
    where d.tenant_id = %(tenant_id)s
        and d.id = %(delivery_id)s
    for no key update
),

replayed as (
    update leasehook.deliveries as d
    set
        status = 'pending',
        claimable_at = statement_timestamp(),
        finished_at = null,
        dead_reason = null,
        attempt_base = d.attempt_count
    from found
    where d.id = found.id
        and d.status in ('failed', 'succeeded', 'dead', 'cancelled')
    returning d.id
)

select
    found.status_before,
    found.id in (select replayed.id from replayed) as replayed
from found;
