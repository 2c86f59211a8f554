-- The path of an event: who publishes, who receives, what happened, and the queue.
--
-- One word per thing, the same as in the code. Instants end in _at, _until or _since and come from this
-- database's clock only.

-- Time-ordered ids (RFC 9562 version 7) keep inserts at the right edge of every index: a quarter less WAL
-- per delivery than with random ones. The 12 bits after the milliseconds hold their fraction (method 3), so ids made
-- one after the other are in order; ordered endpoints rely on it. PostgreSQL 18 has uuidv7() of its own; 15 to 17 do
-- not.
create function leasehook.uuid_v7() returns uuid
language sql volatile parallel safe
as $$
    select encode(
        substring(int8send(micros / 1000) from 3)
        || int2send((28672 + (micros % 1000) * 4096 / 1000)::smallint)
        || set_byte(substring(random from 9), 0, 128 | (get_byte(random, 8) & 63)),
        'hex'
    )::uuid
    from (
        select
            floor(extract(epoch from clock_timestamp()) * 1000000)::bigint as micros,
            uuid_send(gen_random_uuid()) as random
    ) as parts
$$;

-- Every endpoint filter that lets an event type through: '*', each proper prefix with '.*', the type itself.
-- Fan-out is then an array overlap instead of a pattern match per endpoint.
create function leasehook.filters_matching(event_type text) returns text[]
language sql immutable parallel safe strict
as $$
    select array['*', event_type] || coalesce(
        (
            select array_agg(array_to_string(segments[1:n], '.') || '.*')
            from string_to_array(event_type, '.') as segments,
                generate_series(1, cardinality(segments) - 1) as n
        ),
        '{}'
    )
$$;

create table leasehook.tenants (
    id uuid primary key default leasehook.uuid_v7(),
    name text not null,
    created_at timestamptz not null default now(),
    constraint tenants_name_unique unique (name),
    constraint tenants_name_length check (length(name) between 1 and 200)
);

create table leasehook.api_keys (
    id uuid primary key default leasehook.uuid_v7(),
    -- None: an operator's key, for all tenants.
    tenant_id uuid references leasehook.tenants (id),
    name text not null,
    key_hash bytea not null,
    key_prefix text not null,
    scopes text[] not null,
    created_at timestamptz not null default now(),
    revoked_at timestamptz,
    constraint api_keys_hash_unique unique (key_hash),
    constraint api_keys_hash_is_sha256 check (octet_length(key_hash) = 32),
    constraint api_keys_scopes_known check (
        cardinality(scopes) > 0 and scopes <@ array['publish', 'read', 'manage', 'operate']
    ),
    constraint api_keys_operator_iff_no_tenant check ((tenant_id is null) = ('operate' = any(scopes)))
);

create index api_keys_by_tenant on leasehook.api_keys (tenant_id, id);

create table leasehook.consumers (
    tenant_id uuid not null references leasehook.tenants (id),
    id text not null,
    name text,
    created_at timestamptz not null default now(),
    primary key (tenant_id, id),
    constraint consumers_id_form check (id ~ '^[A-Za-z0-9_.:-]{1,128}$')
);

create table leasehook.endpoints (
    id uuid primary key default leasehook.uuid_v7(),
    tenant_id uuid not null references leasehook.tenants (id),
    consumer text,
    url text not null,
    description text,
    event_types text[] not null default '{*}',
    -- With channels, only events in one of them get through.
    channels text[],
    -- One at a time, in the order of publishing; a waiting retry holds back what comes after it.
    ordered boolean not null default false,
    -- Custom headers often carry the receiver's credentials, so they are sealed like secrets are.
    headers_sealed bytea,
    timeout_seconds integer,
    retry_delays_seconds integer[],
    max_in_flight integer,
    rate_per_second integer,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    -- Results of requests that began before the URL was set do not count against it.
    url_set_at timestamptz not null default now(),
    disabled_at timestamptz,
    disabled_reason text,
    deleted_at timestamptz,
    constraint endpoints_tenant_unique unique (tenant_id, id),
    constraint endpoints_consumer_exists foreign key (tenant_id, consumer)
        references leasehook.consumers (tenant_id, id),
    constraint endpoints_filters_present check (cardinality(event_types) between 1 and 100),
    constraint endpoints_channels_present check (cardinality(channels) between 1 and 20),
    constraint endpoints_timeout_range check (timeout_seconds between 1 and 30),
    constraint endpoints_retry_delays_range check (
        cardinality(retry_delays_seconds) <= 30
        and 1 <= all (retry_delays_seconds)
        and 86400 >= all (retry_delays_seconds)
    ),
    constraint endpoints_max_in_flight_positive check (max_in_flight > 0),
    constraint endpoints_rate_positive check (rate_per_second > 0),
    constraint endpoints_disabled_has_reason check ((disabled_at is null) = (disabled_reason is null)),
    constraint endpoints_disabled_reason_known check (
        disabled_reason in ('gone', 'failing', 'operator')
    )
);

-- Fan-out looks endpoints up by tenant and consumer; no consumer is a value of its own here.
create index endpoints_for_fan_out on leasehook.endpoints (tenant_id, (coalesce(consumer, '')))
where deleted_at is null;

create table leasehook.endpoint_secrets (
    id uuid primary key default leasehook.uuid_v7(),
    tenant_id uuid not null,
    endpoint_id uuid not null,
    sealed bytea not null,
    created_at timestamptz not null default now(),
    -- Set by a rotation: until then the old secret signs beside the new one.
    expires_at timestamptz,
    constraint endpoint_secrets_endpoint foreign key (tenant_id, endpoint_id)
        references leasehook.endpoints (tenant_id, id) on delete cascade
);

create index endpoint_secrets_by_endpoint on leasehook.endpoint_secrets (endpoint_id);

-- May this endpoint be sent to right now? One narrow row each, apart from `endpoints`, because settling writes it.
-- fillfactor 50 leaves room for the next version in the same page (heap-only updates, no index is touched).
create table leasehook.circuits (
    endpoint_id uuid primary key,
    tenant_id uuid not null,
    state text not null default 'closed',
    -- While open: when a probe may go out. While half open: when the outstanding probe is given up.
    claimable_at timestamptz,
    -- Results of attempts that were claimed before this do not move the circuit.
    changed_at timestamptz not null default '-infinity',
    consecutive_failures integer not null default 0,
    -- How often it has opened since it was last closed: chooses the cool-down.
    open_count integer not null default 0,
    -- Of attempts that did not succeed without one that did in between; long enough, and the endpoint is disabled.
    failing_since timestamptz,
    -- After a recovery the number in flight may double every second, from one.
    recovered_at timestamptz not null default '-infinity',
    -- 429 and 503 hold the whole endpoint back.
    held_until timestamptz not null default '-infinity',
    -- The rate limit's theoretical arrival time (GCRA): the instant up to which the rate is used up.
    paced_until timestamptz not null default '-infinity',
    -- Raised by each claim that had to look at the limits; how a claim notices that its snapshot is too old to count.
    claim_count bigint not null default 0,
    constraint circuits_endpoint foreign key (tenant_id, endpoint_id)
        references leasehook.endpoints (tenant_id, id) on delete cascade,
    constraint circuits_state_known check (state in ('closed', 'open', 'half_open')),
    constraint circuits_waits_unless_closed check ((state = 'closed') = (claimable_at is null)),
    constraint circuits_wait_is_finite check (isfinite(claimable_at)),
    constraint circuits_counts_positive check (consecutive_failures >= 0 and open_count >= 0)
)
with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 200,
    autovacuum_vacuum_cost_delay = 0
);

create table leasehook.events (
    id uuid primary key default leasehook.uuid_v7(),
    tenant_id uuid not null references leasehook.tenants (id),
    consumer text,
    type text not null,
    content_type text not null,
    -- The bytes that are stored, signed and sent, once for all deliveries of the event.
    payload bytea not null,
    channels text[],
    priority smallint not null default 0,
    deliver_at timestamptz,
    -- Leasehook's own, about an endpoint or a delivery: filters must name its type, '*' does not let it through.
    operational boolean not null default false,
    created_at timestamptz not null default now(),
    constraint events_tenant_unique unique (tenant_id, id),
    constraint events_type_form check (
        length(type) <= 128 and type ~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$'
    ),
    constraint events_consumer_form check (consumer ~ '^[A-Za-z0-9_.:-]{1,128}$'),
    constraint events_content_type_form check (content_type ~ '^[\x20-\x7e]{1,255}$'),
    constraint events_priority_range check (priority between -100 and 100)
);

create index events_by_tenant on leasehook.events (tenant_id, id);

-- The first answer to an idempotency key, kept for as long as the key is promised to work.
create table leasehook.idempotency_keys (
    tenant_id uuid not null references leasehook.tenants (id),
    key text not null,
    request_hash bytea not null,
    event_id uuid not null,
    created_at timestamptz not null default now(),
    primary key (tenant_id, key),
    constraint idempotency_keys_form check (key ~ '^[\x21-\x7e]{1,255}$')
);

create index idempotency_keys_by_age on leasehook.idempotency_keys (created_at);

create type leasehook.delivery_status as enum (
    'pending',      -- waits for its first attempt
    'in_progress',  -- claimed: has a lease
    'succeeded',
    'failed',       -- waits for its retry
    'dead',         -- out of attempts, or can never be sent
    'cancelled'
);

-- The queue. `claimable_at` is the one instant that says when a row may be claimed next: its due time while it
-- waits, its lease's end while it is claimed, null once it is finished. A lapsed lease is therefore simply due
-- again, found by the same index in the same way.
create table leasehook.deliveries (
    id uuid primary key default leasehook.uuid_v7(),
    tenant_id uuid not null,
    event_id uuid not null,
    endpoint_id uuid not null,
    created_at timestamptz not null default now(),
    claimable_at timestamptz,
    claimed_at timestamptz,
    finished_at timestamptz,
    lease_token uuid,
    status leasehook.delivery_status not null default 'pending',
    -- Raised when it is claimed, so that a row that kills its worker runs out of attempts too.
    attempt_count integer not null default 0,
    -- `attempt_count` when it was last replayed: the retry schedule starts over from there.
    attempt_base integer not null default 0,
    last_status_code integer,
    -- Lower goes first: minus the event's priority, so that one ascending index serves.
    rank smallint not null default 0,
    -- Its endpoint is ordered.
    ordered boolean not null default false,
    last_error_kind text,
    dead_reason text,
    constraint deliveries_event foreign key (tenant_id, event_id)
        references leasehook.events (tenant_id, id),
    constraint deliveries_endpoint foreign key (tenant_id, endpoint_id)
        references leasehook.endpoints (tenant_id, id),
    constraint deliveries_once_per_endpoint unique (event_id, endpoint_id),
    constraint deliveries_lease_iff_in_progress check (
        (status = 'in_progress') = (lease_token is not null)
        and (status = 'in_progress') = (claimed_at is not null)
    ),
    constraint deliveries_claimable_iff_unfinished check (
        (status in ('pending', 'in_progress', 'failed')) = (claimable_at is not null)
    ),
    constraint deliveries_finished_iff_terminal check (
        (status in ('succeeded', 'dead', 'cancelled')) = (finished_at is not null)
    ),
    constraint deliveries_dead_has_reason check ((status = 'dead') = (dead_reason is not null)),
    constraint deliveries_instants_finite check (isfinite(claimable_at) and isfinite(claimed_at)),
    constraint deliveries_lease_is_short check (claimable_at - claimed_at <= interval '1 hour'),
    constraint deliveries_attempts_ordered check (0 <= attempt_base and attempt_base <= attempt_count)
)
with (
    -- Two updates per delivery leave two dead versions each; at thousands a second the defaults (20 % of the
    -- table, throttled) let them pile up at the head of the queue's index, and every claim walks over them.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

-- The only index that claiming reads. Finished rows are not in it, so history does not slow it down.
create index deliveries_queue on leasehook.deliveries (endpoint_id, rank, claimable_at)
where claimable_at is not null;

-- The head of the line of an ordered endpoint.
create index deliveries_in_line on leasehook.deliveries (endpoint_id, id)
where ordered and claimable_at is not null;

-- Counts what is in flight per endpoint, for endpoints that limit it, and shows operators who holds what.
create index deliveries_in_flight on leasehook.deliveries (endpoint_id)
where status = 'in_progress';

-- What is listed: a tenant's or an endpoint's deliveries, newest first, and a tenant's dead letters.
create index deliveries_by_tenant on leasehook.deliveries (tenant_id, id);

create index deliveries_by_endpoint on leasehook.deliveries (endpoint_id, id);

-- By the reason and not by the status: behind row-level security the planner may use what it knows of nulls, and nothing
-- of an enum's values: `where status = 'dead'` is taken for half of the table there, and its index is avoided.
create index deliveries_dead on leasehook.deliveries (tenant_id, id)
where dead_reason is not null;

-- One row per HTTP request whose result was reported; append-only. An attempt number without a row is one whose
-- worker never reported.
create table leasehook.attempts (
    delivery_id uuid not null references leasehook.deliveries (id) on delete cascade,
    number integer not null,
    tenant_id uuid not null,
    endpoint_id uuid not null,
    started_at timestamptz not null,
    duration_ms integer not null,
    status_code integer,
    error_kind text,
    error_detail text,
    response text,
    response_truncated boolean not null default false,
    -- Reported after the lease had lapsed and the row had moved on: it happened, but decided nothing.
    late boolean not null default false,
    primary key (delivery_id, number)
);

create index attempts_by_endpoint on leasehook.attempts (endpoint_id, started_at);

-- Where a bounded, resumable pass over a table stands.
create table leasehook.maintenance (
    task text primary key,
    cursor uuid not null,
    updated_at timestamptz not null default now()
);

-- The one implementation of publishing: an event and its deliveries, in the caller's transaction.
-- HTTP ingest calls it, and so may any transaction that writes a business row.
create function leasehook.publish_bytes(
    tenant_id uuid,
    type text,
    payload bytea,
    content_type text default 'application/json',
    consumer text default null,
    idempotency_key text default null,
    deliver_at timestamptz default null,
    priority integer default 0,
    channels text[] default null,
    out event_id uuid,
    out delivery_count integer,
    out repeated boolean
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    request_hash bytea;
    known record;
begin
    event_id := leasehook.uuid_v7();
    repeated := false;

    if publish_bytes.idempotency_key is not null then
        request_hash := sha256(
            convert_to(
                jsonb_build_array(
                    publish_bytes.type,
                    publish_bytes.content_type,
                    publish_bytes.consumer,
                    extract(epoch from publish_bytes.deliver_at),
                    publish_bytes.priority,
                    publish_bytes.channels
                )::text,
                'UTF8'
            ) || publish_bytes.payload
        );
        loop
            -- Waits here for a concurrent publish of the same key to commit or roll back.
            insert into leasehook.idempotency_keys (tenant_id, key, request_hash, event_id)
            values (
                publish_bytes.tenant_id, publish_bytes.idempotency_key, request_hash, publish_bytes.event_id
            )
            on conflict do nothing;
            exit when found;

            select k.request_hash, k.event_id into known
            from leasehook.idempotency_keys as k
            where k.tenant_id = publish_bytes.tenant_id
                and k.key = publish_bytes.idempotency_key;
            continue when not found;  -- it was pruned in between

            if known.request_hash <> request_hash then
                raise exception using
                    errcode = 'LH409',
                    message = 'idempotency key was used for another event',
                    detail = publish_bytes.idempotency_key,
                    hint = 'Use a new key for a new event; repeat the same request to repeat the same event.';
            end if;
            event_id := known.event_id;
            repeated := true;
            select count(*) into delivery_count
            from leasehook.deliveries as d
            where d.event_id = known.event_id;
            return;
        end loop;
    end if;

    insert into leasehook.events (
        id, tenant_id, consumer, type, content_type, payload, priority, deliver_at, channels
    )
    values (
        publish_bytes.event_id,
        publish_bytes.tenant_id,
        publish_bytes.consumer,
        publish_bytes.type,
        publish_bytes.content_type,
        publish_bytes.payload,
        publish_bytes.priority,
        publish_bytes.deliver_at,
        publish_bytes.channels
    );

    -- Deliveries for a disabled endpoint are made too: they are parked until it is enabled.
    insert into leasehook.deliveries (tenant_id, event_id, endpoint_id, rank, ordered, claimable_at)
    select
        e.tenant_id,
        publish_bytes.event_id,
        e.id,
        case when e.ordered then 0 else -publish_bytes.priority end,
        e.ordered,
        greatest(publish_bytes.deliver_at, clock_timestamp())
    from leasehook.endpoints as e
    where e.tenant_id = publish_bytes.tenant_id
        and coalesce(e.consumer, '') = coalesce(publish_bytes.consumer, '')
        and e.deleted_at is null
        and e.event_types && leasehook.filters_matching(publish_bytes.type)
        and (e.channels is null or e.channels && publish_bytes.channels);
    get diagnostics delivery_count = row_count;
end
$$;

-- For SQL callers: a JSON payload, kept to the letter (`json` stores the text as it was given).
create function leasehook.publish(
    tenant_id uuid,
    type text,
    payload json,
    consumer text default null,
    idempotency_key text default null,
    deliver_at timestamptz default null,
    priority integer default 0,
    channels text[] default null,
    out event_id uuid,
    out delivery_count integer,
    out repeated boolean
)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
    select *
    from leasehook.publish_bytes(
        tenant_id => publish.tenant_id,
        type => publish.type,
        payload => convert_to(publish.payload::text, 'UTF8'),
        consumer => publish.consumer,
        idempotency_key => publish.idempotency_key,
        deliver_at => publish.deliver_at,
        priority => publish.priority,
        channels => publish.channels
    )
$$;

-- Leasehook's own events, about what happened to a tenant's endpoint or delivery. Only stored when an endpoint of the
-- tenant (not of a consumer) asks for the type by name or prefix; '*' does not.
create function leasehook.announce(tenant_id uuid, type text, payload jsonb) returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    new_id uuid := leasehook.uuid_v7();
    filters text[] := array_remove(leasehook.filters_matching(announce.type), '*');
begin
    if not exists (
        select 1
        from leasehook.endpoints as e
        where e.tenant_id = announce.tenant_id
            and coalesce(e.consumer, '') = ''
            and e.deleted_at is null
            and e.event_types && filters
    ) then
        return null;
    end if;

    insert into leasehook.events (id, tenant_id, type, content_type, payload, operational)
    values (
        new_id,
        announce.tenant_id,
        announce.type,
        'application/json',
        convert_to(announce.payload::text, 'UTF8'),
        true
    );

    insert into leasehook.deliveries (tenant_id, event_id, endpoint_id, ordered, claimable_at)
    select e.tenant_id, new_id, e.id, e.ordered, clock_timestamp()
    from leasehook.endpoints as e
    where e.tenant_id = announce.tenant_id
        and coalesce(e.consumer, '') = ''
        and e.deleted_at is null
        and e.event_types && filters;
    return new_id;
end
$$;

revoke all on schema leasehook from public;
revoke all on all functions in schema leasehook from public;

-- A role that may publish and nothing else, for `grant leasehook_publisher to my_app`. Roles belong to the
-- whole server, so another database, or a migration running at this moment in one, may have made it already; and a
-- migrating role without CREATEROLE leaves it to the administrator.
do $$
begin
    create role leasehook_publisher nologin;
exception
    when duplicate_object or unique_violation or insufficient_privilege then null;
end
$$;

do $$
begin
    grant usage on schema leasehook to leasehook_publisher;
    grant execute on function leasehook.publish to leasehook_publisher;
    grant execute on function leasehook.publish_bytes to leasehook_publisher;
exception
    when undefined_object then
        raise notice 'role leasehook_publisher does not exist: create it, then grant it execute on leasehook.publish';
end
$$;
