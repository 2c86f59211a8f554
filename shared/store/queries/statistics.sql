-- name: endpoint_exists
select 1 as one
from leasehook.endpoints as e
where e.tenant_id = %(tenant_id)s
    and e.id = %(endpoint_id)s
    and e.deleted_at is null;

-- name: endpoint_statistics
-- The newest attempts of an endpoint within a window, up to %(limit)s of them.
with sample as materialized (
    select a.started_at, a.duration_ms, a.status_code, a.error_kind, a.error_detail
    from leasehook.attempts as a
    where a.tenant_id = %(tenant_id)s
        and a.endpoint_id = %(endpoint_id)s
        and a.started_at >= statement_timestamp() - %(window_seconds)s * interval '1 second'
    order by a.started_at desc
    limit %(limit)s + 1
),

counted as materialized (
    select sample.*
    from sample
    limit %(limit)s
),

totals as (
    select
        count(*) as attempts,
        count(*) filter (where counted.error_kind is null) as successes,
        percentile_cont(array[0.5, 0.95, 0.99]) within group (order by counted.duration_ms)
        filter (where counted.status_code is not null) as latencies_ms
    from counted
)

select
    totals.attempts,
    totals.successes,
    totals.latencies_ms,
    (select count(*) from sample) > totals.attempts as sampled,
    failure.started_at as failed_at,
    failure.error_kind,
    failure.status_code,
    failure.error_detail
from totals
left join (
    select counted.*
    from counted
    where counted.error_kind is not null
    order by counted.started_at desc
    limit 1
) as failure on true;

-- name: tenant_queue
-- What of a tenant is unfinished, endpoint by endpoint and each in the order of the queue, up to %(limit)s deliveries
-- and %(endpoint_limit)s endpoints.
with visited as materialized (
    select e.id, e.disabled_at
    from leasehook.endpoints as e
    where e.tenant_id = %(tenant_id)s
        and e.deleted_at is null
    order by e.id
    limit %(endpoint_limit)s + 1
),

unfinished as materialized (
    select visited.disabled_at, d.status, d.claimable_at
    from (select visited.* from visited limit %(endpoint_limit)s) as visited
    cross join lateral (
        select q.status, q.claimable_at
        from leasehook.deliveries as q
        where q.endpoint_id = visited.id
            and q.claimable_at is not null
        order by q.endpoint_id, q.rank, q.claimable_at
        limit %(limit)s + 1
    ) as d
    limit %(limit)s + 1
),

dead as materialized (
    select count(*) as total
    from (
        select 1
        from leasehook.deliveries as d
        where d.tenant_id = %(tenant_id)s
            and d.dead_reason is not null
        limit %(limit)s + 1
    ) as some_dead
)

select
    count(*) filter (
        where u.status <> 'in_progress' and u.claimable_at <= statement_timestamp() and u.disabled_at is null
    ) as due,
    count(*) filter (
        where u.status <> 'in_progress' and u.claimable_at > statement_timestamp() and u.disabled_at is null
    ) as waiting,
    count(*) filter (where u.status = 'in_progress') as in_progress,
    count(*) filter (where u.status <> 'in_progress' and u.disabled_at is not null) as parked,
    least((select dead.total from dead), %(limit)s) as dead,
    extract(epoch from statement_timestamp() - min(u.claimable_at) filter (
        where u.status <> 'in_progress' and u.claimable_at <= statement_timestamp() and u.disabled_at is null
    ))::float8 as oldest_due_age_seconds,
    count(*) > %(limit)s
    or (select count(*) from visited) > %(endpoint_limit)s
    or (select dead.total from dead) > %(limit)s as capped
from unfinished as u;

-- name: tenant_throughput
-- A tenant's deliveries since an instant (its id: %(from_id)s), by the minute they were made in; the newest %(limit)s
-- at the most. The tenant is said as in `walk_deliveries`.
with sample as materialized (
    select d.created_at, d.status
    from leasehook.deliveries as d
    where d.tenant_id between (select %(tenant_id)s::uuid) and (select %(tenant_id)s::uuid)
        and d.id >= %(from_id)s
    order by d.tenant_id desc, d.id desc
    limit %(limit)s + 1
)

select
    date_trunc('minute', sample.created_at, 'UTC') as minute_at,
    count(*) as made,
    count(*) filter (where sample.status = 'succeeded') as succeeded,
    count(*) filter (where sample.status = 'dead') as dead,
    (select count(*) from sample) > %(limit)s as capped
from sample
group by 1
order by 1;

-- name: dead_count
-- Up to %(limit)s.
select count(*) as total
from (
    select 1
    from leasehook.deliveries as d
    where d.dead_reason is not null
    limit %(limit)s
) as some_dead;

-- name: endpoint_counts
select
    count(*) as endpoints,
    count(*) filter (where e.disabled_at is not null) as disabled
from leasehook.endpoints as e
where e.deleted_at is null;

-- name: circuit_counts
select c.state, count(*) as total
from leasehook.circuits as c
group by c.state;

-- name: database_health
-- A transaction left open keeps dead rows from being cleared away, and every claim steps over them. Of the sessions of
-- other roles it is seen only with pg_read_all_stats.
select
    coalesce(
        (
            select extract(epoch from clock_timestamp() - min(s.xact_start))
            from pg_stat_activity as s
            where s.datname = current_database()
                and s.pid <> pg_backend_pid()
        ),
        0
    )::float8 as oldest_transaction_age_seconds,
    t.n_dead_tup as dead_tuples,
    t.n_live_tup as live_tuples
from pg_stat_user_tables as t
where t.relid = 'leasehook.deliveries'::regclass;
