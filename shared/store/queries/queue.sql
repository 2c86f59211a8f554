-- name: claim
-- Take up to :limit deliveries that are due, or whose lease has lapsed, and return all that sending needs.
--
-- Endpoints are chosen first, then rows of each: a skip scan over the queue's index visits one entry per lane (an
-- endpoint and a rank in use), from a moving start, and that entry already says whether anything in the lane is
-- due. So an endpoint with a huge backlog costs as much as one with a single row, and an endpoint that is disabled,
-- held back or open is passed over without reading or writing its rows.
--
-- Endpoints with a limit, a circuit that is not closed, or a recent recovery are gated: their circuit row is locked
-- (locked ones are skipped: another claim is at it) and their claim_count must still be what this statement's
-- snapshot says. If it is not, a claim committed in between whose rows this snapshot cannot count, and the
-- endpoint is left for the next round. That makes limits and the single half-open probe exact over all drains.
--
-- A claim that is lost in a crash of the server only means "due again", so it need not wait for the disk.
with recursive
clock as materialized (
    select
        statement_timestamp() as at,
        set_config('synchronous_commit', 'off', true) as commit_mode
),

lanes as (
    select 1 as visit, head.*
    from (
        select d.endpoint_id, d.rank, d.claimable_at
        from leasehook.deliveries as d
        where d.claimable_at is not null
            and d.endpoint_id > %(after)s
        order by d.endpoint_id, d.rank, d.claimable_at
        limit 1
    ) as head
    union all
    select lanes.visit + 1, head.*
    from lanes
    cross join lateral (
        select d.endpoint_id, d.rank, d.claimable_at
        from leasehook.deliveries as d
        where d.claimable_at is not null
            and (d.endpoint_id, d.rank) > (lanes.endpoint_id, lanes.rank)
        order by d.endpoint_id, d.rank, d.claimable_at
        limit 1
    ) as head
    where lanes.visit < %(visit_limit)s
),

sweep as materialized (
    select
        count(*) as visits,
        (array_agg(lanes.endpoint_id order by lanes.visit desc))[1] as last_endpoint_id
    from lanes
),

due as materialized (
    select
        e.id as endpoint_id,
        array_agg(lanes.rank order by lanes.rank) as ranks,
        c.claim_count,
        c.state <> 'closed'
        or c.recovered_at > clock.at - interval '10 seconds'
        or e.max_in_flight is not null
        or e.rate_per_second is not null
        or e.ordered as gated,
        least(
            ceil(%(limit)s::float8 / count(*) over ())::integer,
            coalesce(busy.room, %(endpoint_limit)s)
        ) as share
    from lanes
    cross join clock
    left join unnest(
        %(busy_endpoint_ids)s::uuid[],
        %(busy_endpoint_room)s::integer[]
    ) as busy (endpoint_id, room) on lanes.endpoint_id = busy.endpoint_id
    inner join leasehook.endpoints as e on lanes.endpoint_id = e.id
    inner join leasehook.circuits as c on lanes.endpoint_id = c.endpoint_id
    where lanes.claimable_at <= clock.at
        and e.disabled_at is null
        and e.deleted_at is null
        and coalesce(busy.room, 1) > 0
        and coalesce(e.timeout_seconds, %(timeout_seconds)s) <= %(remaining_seconds)s
        and (c.state = 'closed' or c.claimable_at <= clock.at)
        and c.held_until <= clock.at
        and c.paced_until <= clock.at
    group by e.id, c.endpoint_id, clock.at, busy.room
),

gates as materialized (
    select
        c.endpoint_id,
        c.state,
        c.recovered_at,
        c.paced_until,
        e.max_in_flight,
        e.rate_per_second,
        e.ordered
    from due
    inner join leasehook.circuits as c on due.endpoint_id = c.endpoint_id
    inner join leasehook.endpoints as e on due.endpoint_id = e.id
    cross join clock
    where due.gated
        and c.claim_count = due.claim_count
        and (c.state = 'closed' or c.claimable_at <= clock.at)
        and c.held_until <= clock.at
        and c.paced_until <= clock.at
    for no key update of c skip locked
),

allowances as materialized (
    select due.endpoint_id, due.ranks, false as ordered, due.share as allowance
    from due
    where not due.gated
    union all
    select
        due.endpoint_id,
        due.ranks,
        gates.ordered,
        case
            when gates.state <> 'closed' or gates.ordered then 1
            else least(
                due.share,
                gates.max_in_flight - in_flight.total,
                -- What the rate has left over from the last half second, and one at least.
                case
                    when gates.rate_per_second is not null then greatest(
                        1,
                        floor(gates.rate_per_second * extract(epoch from
                            clock.at - greatest(gates.paced_until, clock.at - interval '0.5 seconds')
                        ))
                    )::integer
                end,
                case
                    when gates.recovered_at > clock.at - interval '10 seconds'
                        then floor(power(2, extract(epoch from clock.at - gates.recovered_at)))::integer
                            - in_flight.total
                end
            )
        end as allowance
    from due
    inner join gates on due.endpoint_id = gates.endpoint_id
    cross join clock
    cross join lateral (
        select count(*)::integer as total
        from leasehook.deliveries as d
        where d.endpoint_id = gates.endpoint_id
            and d.status = 'in_progress'
            and d.claimable_at > clock.at
    ) as in_flight
),

picked as materialized (
    select chosen.row_at, chosen.endpoint_id
    from (select * from allowances order by allowances.endpoint_id) as allowances
    cross join lateral (
        select first.row_at, allowances.endpoint_id
        from (
            select lane.row_at
            from unnest(allowances.ranks) as due_rank (rank)
            cross join lateral (
                select d.ctid as row_at
                from leasehook.deliveries as d
                where d.endpoint_id = allowances.endpoint_id
                    and d.rank = due_rank.rank
                    and d.claimable_at <= (select clock.at from clock)
                order by d.claimable_at
                limit greatest(allowances.allowance, 0)
                for update skip locked
            ) as lane
            where not allowances.ordered
            limit greatest(allowances.allowance, 0)
        ) as first
        union all
        -- The head of the line or nothing: it is chosen before it is locked, so a locked one is not passed over.
        select head.row_at, allowances.endpoint_id
        from (
            select d.ctid as row_at
            from leasehook.deliveries as d
            where allowances.ordered
                and d.id = (
                    select line.id
                    from leasehook.deliveries as line
                    where line.endpoint_id = allowances.endpoint_id
                        and line.ordered
                        and line.claimable_at is not null
                    order by line.id
                    limit 1
                )
                and d.claimable_at <= (select clock.at from clock)
            for update skip locked
        ) as head
    ) as chosen
    limit %(limit)s
),

gates_passed as (
    update leasehook.circuits as c
    set
        claim_count = c.claim_count + 1,
        state = case when c.state = 'closed' then 'closed' else 'half_open' end,
        -- The probe's lease: should it never report, the next claim sends another.
        claimable_at = case
            when c.state <> 'closed' then clock.at + %(lease_seconds)s * interval '1 second'
        end,
        changed_at = case when c.state = 'closed' then c.changed_at else clock.at end,
        paced_until = case
            when gates.rate_per_second is null then c.paced_until
            else greatest(c.paced_until, clock.at - interval '0.5 seconds')
                + taken.total * interval '1 second' / gates.rate_per_second
        end
    from gates
    inner join (
        select picked.endpoint_id, count(*) as total
        from picked
        group by picked.endpoint_id
    ) as taken on gates.endpoint_id = taken.endpoint_id
    cross join clock
    where c.endpoint_id = gates.endpoint_id
),

claimed as (
    update leasehook.deliveries as d
    set
        status = 'in_progress',
        attempt_count = d.attempt_count + 1,
        -- Remembered until an attempt is reported: its last worker may have died of this very row.
        last_error_kind = case
            when d.status = 'in_progress' then 'lost'
            else d.last_error_kind
        end,
        lease_token = %(lease_token)s,
        claimed_at = clock.at,
        claimable_at = clock.at + %(lease_seconds)s * interval '1 second'
    from picked
    cross join clock
    where d.ctid = picked.row_at
    returning
        d.id,
        d.event_id,
        d.endpoint_id,
        d.tenant_id,
        d.attempt_count,
        d.attempt_base,
        d.last_error_kind is not distinct from 'lost' as suspect
)

select
    case when sweep.visits = %(visit_limit)s then sweep.last_endpoint_id end as swept_to,
    claimed.id as delivery_id,
    claimed.tenant_id,
    claimed.event_id,
    claimed.endpoint_id,
    claimed.attempt_count,
    claimed.attempt_base,
    claimed.suspect,
    ev.content_type,
    ev.payload,
    e.url,
    e.headers_sealed,
    coalesce(e.timeout_seconds, %(timeout_seconds)s) as timeout_seconds,
    e.retry_delays_seconds,
    array(
        select s.sealed
        from leasehook.endpoint_secrets as s
        where s.endpoint_id = claimed.endpoint_id
            and (s.expires_at is null or s.expires_at > statement_timestamp())
        order by s.created_at desc, s.id desc
    ) as secrets_sealed
from sweep
left join (
    claimed
    inner join leasehook.events as ev on claimed.event_id = ev.id
    inner join leasehook.endpoints as e on claimed.endpoint_id = e.id
) on true;

-- name: settle
-- Write the results of attempts, and give back rows that were not started: delivery, attempt and circuit in one
-- statement, all or nothing. A row counts only while it is still in progress under the token it was claimed with.
--
-- The token travels as an array beside the ids: compared with a constant instead, the planner expects one row and may
-- scan the whole table for each. Rows are locked in the order of their ids, circuits after deliveries.
with clock as materialized (
    select statement_timestamp() as at
),

reported as materialized (
    select r.*
    from unnest(
        %(delivery_ids)s::uuid[],
        %(lease_tokens)s::uuid[],
        %(attempts)s::integer[],
        %(verbs)s::text[],
        %(sent)s::boolean[],
        %(delays_seconds)s::float8[],
        %(dead_reasons)s::text[],
        %(evidence)s::text[],
        %(holds_seconds)s::float8[],
        %(gone)s::boolean[],
        %(durations_ms)s::integer[],
        %(status_codes)s::integer[],
        %(error_kinds)s::text[],
        %(error_details)s::text[],
        %(responses)s::text[],
        %(truncated)s::boolean[]
    ) with ordinality as r (
        delivery_id,
        lease_token,
        attempt,
        verb,
        sent,
        delay_seconds,
        dead_reason,
        evidence,
        hold_seconds,
        gone,
        duration_ms,
        status_code,
        error_kind,
        error_detail,
        response,
        truncated,
        position
    )
),

held as materialized (
    select d.endpoint_id, d.claimed_at, reported.*
    from reported
    inner join leasehook.deliveries as d on reported.delivery_id = d.id
    where d.status = 'in_progress'
        and d.lease_token = reported.lease_token
    order by d.id
    for no key update of d
),

settled as (
    update leasehook.deliveries as d
    set
        status = case held.verb
            when 'succeed' then 'succeeded'
            when 'retry' then 'failed'
            when 'bury' then 'dead'
            when 'release' then
                case when d.attempt_count - 1 > d.attempt_base then 'failed' else 'pending' end
        end::leasehook.delivery_status,
        attempt_count = d.attempt_count - (not held.sent)::integer,
        lease_token = null,
        claimed_at = null,
        claimable_at = case held.verb
            when 'retry' then clock.at + held.delay_seconds * interval '1 second'
            when 'release' then clock.at
        end,
        finished_at = case when held.verb in ('succeed', 'bury') then clock.at end,
        dead_reason = held.dead_reason,
        last_status_code = case when held.sent then held.status_code else d.last_status_code end,
        last_error_kind = case when held.sent then held.error_kind else d.last_error_kind end
    from held
    cross join clock
    where d.id = held.delivery_id
    returning
        d.id,
        d.tenant_id,
        d.event_id,
        d.endpoint_id,
        d.attempt_count,
        d.dead_reason,
        d.last_status_code,
        d.last_error_kind
),

recorded as (
    insert into leasehook.attempts (
        delivery_id,
        number,
        tenant_id,
        endpoint_id,
        started_at,
        duration_ms,
        status_code,
        error_kind,
        error_detail,
        response,
        response_truncated,
        late
    )
    select
        d.id,
        reported.attempt,
        d.tenant_id,
        d.endpoint_id,
        clock.at - reported.duration_ms * interval '1 millisecond',
        reported.duration_ms,
        reported.status_code,
        reported.error_kind,
        reported.error_detail,
        reported.response,
        reported.truncated,
        reported.delivery_id not in (select held.delivery_id from held)
    from reported
    cross join clock
    inner join leasehook.deliveries as d on reported.delivery_id = d.id
    where reported.sent
    on conflict (delivery_id, number) do nothing
),

-- Only circuits that this batch can change: a healthy endpoint's success writes nothing here.
touched as materialized (
    select c.*
    from leasehook.circuits as c
    where c.endpoint_id in (select held.endpoint_id from held)
        and (
            c.state <> 'closed'
            or c.consecutive_failures > 0
            or c.failing_since is not null
            or c.endpoint_id in (
                select held.endpoint_id from held
                where held.evidence in ('failure', 'rejection') or held.hold_seconds > 0
            )
        )
    order by c.endpoint_id
    for no key update of c
),

-- What began before the circuit last changed says nothing about it now.
relevant as (
    select held.*, touched.state
    from held
    inner join touched
        on held.endpoint_id = touched.endpoint_id
        and held.claimed_at >= touched.changed_at
),

tallies as (
    select
        relevant.endpoint_id,
        bool_or(relevant.evidence in ('success', 'rejection')) as alive,
        bool_or(relevant.evidence = 'success') as succeeded,
        bool_or(relevant.evidence in ('failure', 'rejection')) as unsuccessful,
        bool_or(relevant.evidence = 'failure') as failed,
        count(*) filter (
            where relevant.evidence = 'failure' and relevant.position > coalesce(life.position, 0)
        )::integer as failures_since_life,
        max(relevant.hold_seconds) as hold_seconds
    from relevant
    left join (
        select r.endpoint_id, max(r.position) as position
        from relevant as r
        where r.evidence in ('success', 'rejection')
        group by r.endpoint_id
    ) as life on relevant.endpoint_id = life.endpoint_id
    group by relevant.endpoint_id
),

counted as (
    select
        c.endpoint_id,
        c.state as state_before,
        case when tallies.alive then 0 else c.consecutive_failures end
        + tallies.failures_since_life as consecutive_failures,
        tallies.alive,
        tallies.succeeded,
        tallies.unsuccessful,
        tallies.failed,
        tallies.hold_seconds
    from touched as c
    inner join tallies on c.endpoint_id = tallies.endpoint_id
),

judged as (
    select
        counted.*,
        case
            when counted.state_before = 'half_open' and counted.alive then 'closed'
            -- A probe that says nothing (it was released, or could not be sent) makes room for the next one.
            when counted.state_before = 'half_open' then 'open'
            when counted.consecutive_failures >= %(failures_to_open)s then 'open'
            else counted.state_before
        end as state
    from counted
),

moved as (
    update leasehook.circuits as c
    set
        state = judged.state,
        consecutive_failures = judged.consecutive_failures,
        claimable_at = case
            when judged.state = 'closed' then null
            when not judged.failed then clock.at
            else clock.at + interval '1 second' * (%(cooldowns_seconds)s::float8[])[
                least(c.open_count + 1, cardinality(%(cooldowns_seconds)s::float8[]))
            ]
        end,
        open_count = case
            when judged.state = 'closed' then 0
            when judged.failed then c.open_count + 1
            else c.open_count
        end,
        changed_at = case when judged.state = judged.state_before then c.changed_at else clock.at end,
        recovered_at = case
            when judged.state = 'closed' and judged.state_before <> 'closed' then clock.at
            else c.recovered_at
        end,
        failing_since = case
            when judged.unsuccessful and judged.succeeded then clock.at
            when judged.unsuccessful then coalesce(c.failing_since, clock.at)
            when judged.succeeded then null
            else c.failing_since
        end,
        held_until = greatest(c.held_until, clock.at + judged.hold_seconds * interval '1 second')
    from judged
    cross join clock
    where c.endpoint_id = judged.endpoint_id
    returning c.endpoint_id, c.tenant_id, judged.state_before, c.state, c.consecutive_failures, c.claimable_at
),

disabled as (
    update leasehook.endpoints as e
    set disabled_at = clock.at, disabled_reason = 'gone', updated_at = clock.at
    from clock
    cross join (
        select held.endpoint_id, max(held.claimed_at) as claimed_at
        from held
        where held.gone
        group by held.endpoint_id
    ) as gone
    where e.id = gone.endpoint_id
        and gone.claimed_at >= e.url_set_at
        and e.disabled_at is null
    returning e.id, e.tenant_id
),

-- What the tenant is told, by ordinary events; about Leasehook's own events it is told nothing.
announced as materialized (
    select
        leasehook.announce(
            notice.tenant_id, notice.type, notice.payload || jsonb_build_object('at', clock.at)
        ) as event_id
    from clock
    cross join (
        select
            settled.tenant_id,
            'delivery.dead' as type,
            jsonb_build_object(
                'delivery_id', settled.id,
                'event_id', settled.event_id,
                'event_type', ev.type,
                'endpoint_id', settled.endpoint_id,
                'attempt_count', settled.attempt_count,
                'reason', settled.dead_reason,
                'status_code', settled.last_status_code,
                'error_kind', settled.last_error_kind
            ) as payload
        from settled
        inner join leasehook.events as ev on settled.event_id = ev.id
        where settled.dead_reason is not null
            and not ev.operational
        union all
        select
            moved.tenant_id,
            'endpoint.circuit_opened',
            jsonb_build_object(
                'endpoint_id', moved.endpoint_id,
                'consecutive_failures', moved.consecutive_failures,
                'until', moved.claimable_at
            )
        from moved
        where moved.state = 'open' and moved.state_before = 'closed'
        union all
        select
            disabled.tenant_id,
            'endpoint.disabled',
            jsonb_build_object('endpoint_id', disabled.id, 'reason', 'gone')
        from disabled
    ) as notice
)

select
    (select count(*) from settled) as settled_count,
    (select count(announced.event_id) from announced) as announced_count,
    array(
        select reported.delivery_id from reported
        where reported.delivery_id not in (select held.delivery_id from held)
    ) as late_delivery_ids,
    array(
        select moved.endpoint_id from moved where moved.state = 'open' and moved.state_before <> 'open'
    ) as opened_endpoint_ids,
    array(
        select moved.endpoint_id from moved where moved.state = 'closed' and moved.state_before <> 'closed'
    ) as closed_endpoint_ids,
    array(select disabled.id from disabled) as disabled_endpoint_ids;
