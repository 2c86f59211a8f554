-- What tenants and operators manage: event types, replay jobs, and row-level security as a second wall.

-- The registry of event types. A type that is not registered may be published; one that is archived may not, and one
-- with a schema takes only payloads that fit it.
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

-- A bulk replay: a filter, and a walk over the deliveries that it matches, in the order of their ids. Each step moves
-- the walk and replays its rows in one transaction, so a step that is killed never happened.
create table leasehook.replay_jobs (
    id uuid primary key default leasehook.uuid_v7(),
    tenant_id uuid not null references leasehook.tenants (id),
    statuses leasehook.delivery_status[] not null,
    endpoint_id uuid,
    consumer text,
    event_type text,
    created_from timestamptz,
    created_before timestamptz not null,
    error_kind text,
    state text not null default 'running',
    -- How many deliveries matched when it was made.
    matched_count bigint not null,
    looked_at_count bigint not null default 0,
    replayed_count bigint not null default 0,
    -- The last delivery that was looked at.
    cursor uuid not null default '00000000-0000-0000-0000-000000000000',
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
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

create index replay_jobs_running on leasehook.replay_jobs (id)
where state = 'running';

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
