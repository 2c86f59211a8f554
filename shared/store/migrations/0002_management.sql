-- What tenants and operators manage: event types, replay jobs, and row-level security as a second wall.

-- The registry of event types. A type that is not registered may be published; one that is archived may not, and one
-- with a schema takes only payloads that fit it. HTTP and the command line are held to that; `leasehook.publish` is not,
-- since SQL cannot judge a JSON Schema.
create table leasehook.event_types (
    tenant_id uuid not null references leasehook.tenants (id),
    name text not null,
    description text,
    example json,
    schema json,
    -- Raised by every change: how a publisher knows that it validated against the schema in force.
    version integer not null default 1,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    archived_at timestamptz,
    primary key (tenant_id, name),
    constraint event_types_name_form check (
        length(name) <= 128 and name ~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$'
    )
);

-- Publishing that is held to the registry: stores the event, unless its type is archived, or has a schema of which the
-- payload was not judged by the version in force (`schema_version`; 0: by none). Then nothing is stored, and the answer is
-- that version. A function, so that its plans are kept: planning would cost half as much as publishing does.
create function leasehook.publish_judged(
    tenant_id uuid,
    schema_version integer,
    type text,
    payload bytea,
    content_type text,
    consumer text,
    idempotency_key text,
    deliver_at timestamptz,
    priority integer,
    channels text[],
    out event_id uuid,
    out delivery_count integer,
    out repeated boolean,
    out refused_type text,
    out version integer,
    out schema text,
    out archived boolean
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    -- A key that was used before gets its first answer again, whatever has become of the type since.
    select t.name, t.version, t.schema::text, t.archived_at is not null
    into publish_judged.refused_type, publish_judged.version, publish_judged.schema, publish_judged.archived
    from leasehook.event_types as t
    where t.tenant_id = publish_judged.tenant_id
        and t.name = publish_judged.type
        and (
            t.archived_at is not null
            or (t.schema is not null and t.version <> publish_judged.schema_version)
        )
        and not exists (
            select from leasehook.idempotency_keys as k
            where k.tenant_id = publish_judged.tenant_id
                and k.key = publish_judged.idempotency_key
        );
    if found then
        return;
    end if;

    select p.event_id, p.delivery_count, p.repeated
    into publish_judged.event_id, publish_judged.delivery_count, publish_judged.repeated
    from leasehook.publish_bytes(
        tenant_id => publish_judged.tenant_id,
        type => publish_judged.type,
        payload => publish_judged.payload,
        content_type => publish_judged.content_type,
        consumer => publish_judged.consumer,
        idempotency_key => publish_judged.idempotency_key,
        deliver_at => publish_judged.deliver_at,
        priority => publish_judged.priority,
        channels => publish_judged.channels
    ) as p;
end
$$;

revoke all on function leasehook.publish_judged from public;

-- A bulk replay: a filter, and a walk over the deliveries that it matches, in the order of their ids. Each step moves
-- the walk and replays its rows in one transaction, so a step that is killed never happened.
create table leasehook.replay_jobs (
    id uuid primary key,
    tenant_id uuid not null references leasehook.tenants (id),
    statuses leasehook.delivery_status[] not null,
    endpoint_id uuid,
    consumer text,
    -- As in an endpoint's filter: a type, a prefix with '.*', or '*'.
    event_type text,
    created_after timestamptz,
    created_before timestamptz,
    error_kind text,
    state text not null default 'running',
    -- How many deliveries matched when it was made; at least so many, unless all of them were looked at.
    matched_count bigint not null,
    matched_exactly boolean not null,
    looked_at_count bigint not null default 0,
    replayed_count bigint not null default 0,
    -- The last delivery that was looked at, and the first one that is beyond the walk.
    cursor uuid not null,
    end_id uuid not null,
    -- Deliveries that finish from here on are not replayed: what dies again meanwhile has had its replay.
    created_at timestamptz not null,
    updated_at timestamptz not null,
    finished_at timestamptz,
    constraint replay_jobs_endpoint foreign key (tenant_id, endpoint_id)
        references leasehook.endpoints (tenant_id, id),
    constraint replay_jobs_state_known check (state in ('running', 'paused', 'cancelled', 'finished')),
    constraint replay_jobs_finished_iff_over check (
        (state in ('cancelled', 'finished')) = (finished_at is not null)
    ),
    constraint replay_jobs_statuses_replayable check (
        cardinality(statuses) > 0
        and statuses <@ array['dead', 'cancelled', 'succeeded', 'failed']::leasehook.delivery_status[]
    )
);

create index replay_jobs_by_tenant on leasehook.replay_jobs (tenant_id, id);

-- Steps take turns: the job whose last one is longest ago is next.
create index replay_jobs_running on leasehook.replay_jobs (updated_at, id)
where state = 'running';

create index replay_jobs_unfinished on leasehook.replay_jobs (tenant_id)
where finished_at is null;

-- The second wall: whoever works for a tenant does so as leasehook_tenant, which sees the rows of the tenant that the
-- transaction names and no others. Queries name the tenant too; this is for the day one forgets. The owner (drain,
-- maintenance, migrations, `leasehook.publish`) is not restricted.
--
-- A migrating role without CREATEROLE needs an administrator to make the role first.
do $$
begin
    create role leasehook_tenant nologin;
exception
    when duplicate_object or unique_violation then null;
    when insufficient_privilege then
        if to_regrole('leasehook_tenant') is null then
            raise exception 'role leasehook_tenant does not exist, and % may not create it', current_user
                using hint = format(
                    'Have an administrator run: create role leasehook_tenant nologin; grant leasehook_tenant to %I;',
                    current_user
                );
        end if;
end
$$;

do $$
begin
    if not pg_has_role(current_user, 'leasehook_tenant', 'member') then
        execute format('grant leasehook_tenant to %I', current_user);
    end if;
end
$$;

grant usage on schema leasehook to leasehook_tenant;
grant execute on function leasehook.uuid_v7, leasehook.filters_matching, leasehook.publish_bytes to leasehook_tenant;

grant select on leasehook.tenants to leasehook_tenant;
grant select, insert, update on leasehook.api_keys, leasehook.endpoints, leasehook.circuits, leasehook.endpoint_secrets
to leasehook_tenant;
grant select, insert, update, delete on leasehook.consumers, leasehook.event_types to leasehook_tenant;
grant select, insert, update on leasehook.replay_jobs to leasehook_tenant;
grant select on leasehook.events, leasehook.attempts to leasehook_tenant;
grant select, update on leasehook.deliveries to leasehook_tenant;

alter table leasehook.tenants enable row level security;
create policy own_tenant on leasehook.tenants to leasehook_tenant
using (id = (select current_setting('leasehook.tenant_id')::uuid));

do $$
declare
    name text;
begin
    foreach name in array array[
        'api_keys', 'attempts', 'circuits', 'consumers', 'deliveries', 'endpoint_secrets', 'endpoints', 'event_types',
        'events', 'idempotency_keys', 'replay_jobs'
    ] loop
        execute format('alter table leasehook.%I enable row level security', name);
        execute format(
            $policy$
            create policy own_tenant on leasehook.%I to leasehook_tenant
            using (tenant_id = (select current_setting('leasehook.tenant_id')::uuid))
            with check (tenant_id = (select current_setting('leasehook.tenant_id')::uuid))
            $policy$,
            name
        );
    end loop;
end
$$;
