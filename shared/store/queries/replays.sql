-- name: replay_moment
-- An id and the instant of a job that is made now, by the database's clock.
select leasehook.uuid_v7() as id, statement_timestamp() as at;

-- name: count_unfinished_replay_jobs
select count(*) as unfinished_count
from leasehook.replay_jobs as j
where j.tenant_id = %(tenant_id)s
    and j.finished_at is null;

-- name: find_replayable_endpoint
select e.id
from leasehook.endpoints as e
where e.tenant_id = %(tenant_id)s
    and e.id = %(endpoint_id)s
    and e.deleted_at is null;

-- name: look_for_replays
-- One look of a walk: the next :limit deliveries between two ids, and which of them match the filter. What is read does
-- not depend on the filter: each walk has an index that holds its rows in the order of their ids, and only one of the
-- three is walked.
--
-- Tenant (or endpoint) and id are compared as one: told that the tenant is a constant, the planner may walk over the
-- primary key instead, and over the rows of everybody else.
with looked_at as materialized (
    (
        select d.id, d.event_id, d.endpoint_id, d.finished_at, d.status, d.last_error_kind
        from leasehook.deliveries as d
        where %(walk)s = 'dead'
            and d.dead_reason is not null
            and (d.tenant_id, d.id) > (%(tenant_id)s, %(cursor)s)
            and (d.tenant_id, d.id) < (%(tenant_id)s, %(end_id)s)
        order by d.tenant_id, d.id
        limit %(limit)s
    )
    union all
    (
        select d.id, d.event_id, d.endpoint_id, d.finished_at, d.status, d.last_error_kind
        from leasehook.deliveries as d
        where %(walk)s = 'endpoint'
            and d.tenant_id = %(tenant_id)s
            and (d.endpoint_id, d.id) > (%(endpoint_id)s, %(cursor)s)
            and (d.endpoint_id, d.id) < (%(endpoint_id)s, %(end_id)s)
        order by d.endpoint_id, d.id
        limit %(limit)s
    )
    union all
    (
        select d.id, d.event_id, d.endpoint_id, d.finished_at, d.status, d.last_error_kind
        from leasehook.deliveries as d
        where %(walk)s = 'tenant'
            and (d.tenant_id, d.id) > (%(tenant_id)s, %(cursor)s)
            and (d.tenant_id, d.id) < (%(tenant_id)s, %(end_id)s)
        order by d.tenant_id, d.id
        limit %(limit)s
    )
)

select
    (select count(*) from looked_at) as looked_at_count,
    (select looked_at.id from looked_at order by looked_at.id desc limit 1) as last_id,
    array(
        select looked_at.id
        from looked_at
        inner join leasehook.endpoints as e on looked_at.endpoint_id = e.id
        left join leasehook.events as ev on looked_at.event_id = ev.id
        where e.tenant_id = %(tenant_id)s
            and e.deleted_at is null
            and looked_at.status = any(%(statuses)s::leasehook.delivery_status[])
            and (looked_at.finished_at is null or looked_at.finished_at < %(created_at)s)
            and (%(endpoint_id)s::uuid is null or looked_at.endpoint_id = %(endpoint_id)s)
            and (%(error_kind)s::text is null or looked_at.last_error_kind = %(error_kind)s)
            and (%(consumer)s::text is null or ev.consumer = %(consumer)s)
            and (
                %(event_type)s::text is null
                or %(event_type)s = any(leasehook.filters_matching(ev.type))
            )
    ) as delivery_ids;

-- name: create_replay_job
insert into leasehook.replay_jobs (
    id,
    tenant_id,
    statuses,
    endpoint_id,
    consumer,
    event_type,
    created_after,
    created_before,
    error_kind,
    matched_count,
    matched_exactly,
    cursor,
    end_id,
    created_at,
    updated_at
)
values (
    %(id)s,
    %(tenant_id)s,
    %(statuses)s::leasehook.delivery_status[],
    %(endpoint_id)s,
    %(consumer)s,
    %(event_type)s,
    %(created_after)s,
    %(created_before)s,
    %(error_kind)s,
    %(matched_count)s,
    %(matched_exactly)s,
    %(cursor)s,
    %(end_id)s,
    %(created_at)s,
    %(created_at)s
);

-- name: list_replay_jobs
select
    j.id,
    j.statuses::text[] as statuses,
    j.endpoint_id,
    j.consumer,
    j.event_type,
    j.created_after,
    j.created_before,
    j.error_kind,
    j.state,
    j.matched_count,
    j.matched_exactly,
    j.looked_at_count,
    j.replayed_count,
    j.created_at,
    j.updated_at,
    j.finished_at
from leasehook.replay_jobs as j
where j.tenant_id = %(tenant_id)s
    and (%(before)s::uuid is null or j.id < %(before)s)
order by j.id desc
limit %(limit)s;

-- name: get_replay_job
select
    j.id,
    j.statuses::text[] as statuses,
    j.endpoint_id,
    j.consumer,
    j.event_type,
    j.created_after,
    j.created_before,
    j.error_kind,
    j.state,
    j.matched_count,
    j.matched_exactly,
    j.looked_at_count,
    j.replayed_count,
    j.created_at,
    j.updated_at,
    j.finished_at
from leasehook.replay_jobs as j
where j.tenant_id = %(tenant_id)s
    and j.id = %(job_id)s;

-- name: move_replay_job
-- To another state, from one of those that it may come from; no row if it is in none of them. A step that is under way
-- is waited for.
update leasehook.replay_jobs as j
set
    state = %(state)s,
    updated_at = statement_timestamp(),
    finished_at = case when %(state)s = 'cancelled' then statement_timestamp() end
where j.tenant_id = %(tenant_id)s
    and j.id = %(job_id)s
    and j.state = any(%(from_states)s::text[])
returning j.id;

-- name: lock_replay_job
-- The job whose turn it is (or a certain one), unless it is being stepped or changed at this moment.
select
    j.id,
    j.tenant_id,
    j.statuses::text[] as statuses,
    j.endpoint_id,
    j.consumer,
    j.event_type,
    j.error_kind,
    j.cursor,
    j.end_id,
    j.created_at
from leasehook.replay_jobs as j
where j.state = 'running'
    and (%(job_id)s::uuid is null or j.id = %(job_id)s)
order by j.updated_at, j.id
limit 1
for no key update skip locked;

-- name: replay_deliveries
-- Ask again for deliveries that matched when they were looked at, if they still do: due at once, with a fresh retry
-- schedule. Their rank lets everything that was published since go first, and the ordinary limits hold for them.
--
-- Endpoints are locked before deliveries, so that none is deleted, or becomes ordered, before its rows are in the queue
-- as it wants them.
with endpoint as materialized (
    select e.id, e.ordered
    from leasehook.endpoints as e
    where e.tenant_id = %(tenant_id)s
        and e.deleted_at is null
        and e.id in (
            select d.endpoint_id
            from leasehook.deliveries as d
            where d.id = any(%(delivery_ids)s::uuid[])
        )
    order by e.id
    for share
),

still_matching as materialized (
    select d.id, endpoint.ordered
    from leasehook.deliveries as d
    inner join endpoint on d.endpoint_id = endpoint.id
    where d.id = any(%(delivery_ids)s::uuid[])
        and d.tenant_id = %(tenant_id)s
        and d.status in ('failed', 'succeeded', 'dead', 'cancelled')
        and d.status = any(%(statuses)s::leasehook.delivery_status[])
        and (d.finished_at is null or d.finished_at < %(created_at)s)
    order by d.id
    for no key update of d
),

replayed as (
    update leasehook.deliveries as d
    set
        status = 'pending',
        claimable_at = statement_timestamp(),
        finished_at = null,
        dead_reason = null,
        attempt_base = d.attempt_count,
        ordered = still_matching.ordered,
        rank = case when still_matching.ordered then 0 else greatest(d.rank, %(rank)s) end
    from still_matching
    where d.id = still_matching.id
    returning 1
)

select count(*) as replayed_count
from replayed;

-- name: advance_replay_job
-- The end of a step, in its transaction. Whoever asks for `replay.finished` is told of the last one.
with advanced as (
    update leasehook.replay_jobs as j
    set
        cursor = coalesce(%(last_id)s, j.cursor),
        looked_at_count = j.looked_at_count + %(looked_at_count)s,
        replayed_count = j.replayed_count + %(replayed_count)s,
        state = case when %(is_last)s then 'finished' else j.state end,
        updated_at = clock_timestamp(),
        finished_at = case when %(is_last)s then clock_timestamp() end
    where j.id = %(job_id)s
    returning j.id, j.tenant_id, j.state, j.matched_count, j.looked_at_count, j.replayed_count, j.finished_at
)

select
    advanced.state,
    case
        when advanced.state = 'finished' then leasehook.announce(
            advanced.tenant_id,
            'replay.finished',
            jsonb_build_object(
                'replay_id', advanced.id,
                'looked_at_count', advanced.looked_at_count,
                'replayed_count', advanced.replayed_count,
                'at', advanced.finished_at
            )
        )
    end as announced_id
from advanced;

-- name: prune_replay_jobs
with expired as materialized (
    select j.id
    from leasehook.replay_jobs as j
    where j.finished_at < statement_timestamp() - %(retention_days)s * interval '1 day'
    limit %(limit)s
    for update skip locked
)

delete from leasehook.replay_jobs as j
using expired
where j.id = expired.id
returning 1;
