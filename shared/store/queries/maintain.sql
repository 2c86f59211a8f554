-- name: queue_health
-- One pass over the queue's index, whatever the history: finished rows are not in it.
select
    count(*) filter (
        where d.status <> 'in_progress' and d.claimable_at <= statement_timestamp() and e.disabled_at is null
    ) as due_count,
    coalesce(
        extract(epoch from statement_timestamp() - min(d.claimable_at) filter (
            where d.status <> 'in_progress' and e.disabled_at is null
        )),
        0
    )::float8 as due_age_seconds,
    count(*) filter (where d.status = 'in_progress') as in_progress_count,
    count(*) filter (
        where d.status = 'in_progress' and d.claimable_at <= statement_timestamp()
    ) as lapsed_count,
    count(*) filter (
        where d.status <> 'in_progress' and d.claimable_at > statement_timestamp()
    ) as waiting_count,
    count(*) filter (where d.status <> 'in_progress' and e.disabled_at is not null) as parked_count
from leasehook.deliveries as d
inner join leasehook.endpoints as e on d.endpoint_id = e.id
where d.claimable_at is not null;

-- name: open_circuit_count
select count(*) as open_circuit_count
from leasehook.circuits as c
where c.state <> 'closed';

-- name: disable_failing_endpoints
-- A lapse of `failing_since` is judged here and not while settling, so that a busy endpoint is not looked at on
-- every failure. Each endpoint is disabled, and its tenant told, once: the row's own condition is checked again under
-- its lock.
with disabled as (
    update leasehook.endpoints as e
    set
        disabled_at = statement_timestamp(),
        disabled_reason = 'failing',
        updated_at = statement_timestamp()
    from leasehook.circuits as c
    where c.endpoint_id = e.id
        and c.failing_since <= statement_timestamp() - %(disable_after_days)s * interval '1 day'
        and e.disabled_at is null
        and e.deleted_at is null
    returning e.id, e.tenant_id, e.disabled_at
)

select
    disabled.id,
    disabled.tenant_id,
    leasehook.announce(
        disabled.tenant_id,
        'endpoint.disabled',
        jsonb_build_object('endpoint_id', disabled.id, 'reason', 'failing', 'at', disabled.disabled_at)
    ) as announced_id
from disabled;

-- name: bury_parked
-- Deliveries whose endpoint has been disabled for too long become dead, and stay replayable.
with parked as materialized (
    select d.id
    from leasehook.endpoints as e
    cross join lateral (
        select q.id
        from leasehook.deliveries as q
        where q.endpoint_id = e.id
            and q.claimable_at is not null
            and q.status in ('pending', 'failed')
            and q.created_at < statement_timestamp() - %(parked_days)s * interval '1 day'
        limit %(limit)s
        for no key update skip locked
    ) as d
    where e.disabled_at < statement_timestamp() - %(parked_days)s * interval '1 day'
    limit %(limit)s
),

-- The tenant is told, as when settling; about Leasehook's own events it is not.
buried as (
    update leasehook.deliveries as d
    set
        status = 'dead',
        dead_reason = 'parked_too_long',
        claimable_at = null,
        finished_at = statement_timestamp()
    from parked
    where d.id = parked.id
    returning
        d.id,
        d.tenant_id,
        d.event_id,
        d.endpoint_id,
        d.attempt_count,
        d.dead_reason,
        d.last_status_code,
        d.last_error_kind,
        d.finished_at
)

select
    buried.id,
    case
        when not ev.operational then leasehook.announce(
            buried.tenant_id,
            'delivery.dead',
            jsonb_build_object(
                'delivery_id', buried.id,
                'event_id', buried.event_id,
                'event_type', ev.type,
                'endpoint_id', buried.endpoint_id,
                'attempt_count', buried.attempt_count,
                'reason', buried.dead_reason,
                'status_code', buried.last_status_code,
                'error_kind', buried.last_error_kind,
                'at', buried.finished_at
            )
        )
    end as announced_id
from buried
inner join leasehook.events as ev on buried.event_id = ev.id;

-- name: cancel_orphaned
-- What was published while its endpoint was being deleted.
with orphaned as materialized (
    select d.id
    from leasehook.endpoints as e
    cross join lateral (
        select q.id
        from leasehook.deliveries as q
        where q.endpoint_id = e.id
            and q.claimable_at is not null
            and (q.status in ('pending', 'failed') or q.claimable_at <= statement_timestamp())
        limit %(limit)s
        for no key update skip locked
    ) as d
    where e.deleted_at is not null
    limit %(limit)s
)

update leasehook.deliveries as d
set
    status = 'cancelled',
    claimable_at = null,
    claimed_at = null,
    lease_token = null,
    finished_at = statement_timestamp()
from orphaned
where d.id = orphaned.id
returning d.id;

-- name: prune_cursor
select m.cursor
from leasehook.maintenance as m
where m.task = %(task)s;

-- name: save_prune_cursor
insert into leasehook.maintenance (task, cursor)
values (%(task)s, %(cursor)s)
on conflict (task) do update
set cursor = excluded.cursor, updated_at = statement_timestamp();

-- name: prune_deliveries
-- One bounded step of the walk over events, oldest first (their ids are ordered by time). An event goes when it is old
-- enough and so is every delivery of it: finished ones after the retention, dead ones after theirs; what is unfinished
-- stays. This half deletes the deliveries, and their attempts with them. The age is asked again by the delete itself: a
-- delivery that is replayed at this moment is no longer finished once its lock is ours.
-- `scanned` and `last_id` say how far the step looked.
with step as materialized (
    select ev.id
    from leasehook.events as ev
    where ev.id > %(cursor)s
        and ev.created_at < statement_timestamp() - %(retention_days)s * interval '1 day'
    order by ev.id
    limit %(limit)s
),

expired as materialized (
    select step.id
    from step
    where not exists (
        select 1
        from leasehook.deliveries as d
        where d.event_id = step.id
            and (
                d.finished_at is null
                or d.finished_at >= statement_timestamp() - interval '1 day' * case
                    when d.status = 'dead' then %(dead_retention_days)s
                    else %(retention_days)s
                end
            )
    )
),

pruned as (
    delete from leasehook.deliveries as d
    using expired
    where d.event_id = expired.id
        and d.finished_at is not null
    returning 1
)

select
    (select count(*) from step) as scanned,
    (select step.id from step order by step.id desc limit 1) as last_id,
    (select count(*) from pruned) as deliveries,
    array(select expired.id from expired) as event_ids;

-- name: prune_events
-- The second half of a step, in the same transaction: the events that have no delivery left.
delete from leasehook.events as ev
where ev.id = any(%(event_ids)s::uuid[])
    and not exists (
        select 1
        from leasehook.deliveries as d
        where d.event_id = ev.id
    )
returning ev.id;

-- name: prune_idempotency_keys
with expired as materialized (
    select k.tenant_id, k.key
    from leasehook.idempotency_keys as k
    where k.created_at < statement_timestamp() - %(idempotency_days)s * interval '1 day'
    order by k.created_at
    limit %(limit)s
    for update skip locked
)

delete from leasehook.idempotency_keys as k
using expired
where k.tenant_id = expired.tenant_id
    and k.key = expired.key
returning 1;
