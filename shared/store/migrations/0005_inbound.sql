-- The inbound gateway: other people's webhooks, verified, stored once and fanned out in one transaction.

create table leasehook.sources (
    id uuid primary key default leasehook.uuid_v7(),
    tenant_id uuid not null references leasehook.tenants (id),
    slug text not null,
    provider text not null,
    -- How the provider `hmac` signs; the others are known by name.
    configuration json,
    description text,
    consumer text,
    event_type_prefix text,
    -- Null: the provider's default.
    tolerance_seconds integer,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    disabled_at timestamptz,
    deleted_at timestamptz,
    constraint sources_tenant_unique unique (tenant_id, id),
    constraint sources_slug_form check (slug ~ '^[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?$'),
    constraint sources_configured_iff_hmac check ((provider = 'hmac') = (configuration is not null)),
    constraint sources_consumer_form check (consumer ~ '^[A-Za-z0-9_.:-]{1,128}$'),
    constraint sources_prefix_form check (
        length(event_type_prefix) <= 64 and event_type_prefix ~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$'
    ),
    constraint sources_tolerance_positive check (tolerance_seconds > 0)
);

-- The slug of a deleted source is free again.
create unique index sources_slug_unique on leasehook.sources (slug)
where deleted_at is null;

create index sources_by_tenant on leasehook.sources (tenant_id, id);

create table leasehook.source_secrets (
    id uuid primary key default leasehook.uuid_v7(),
    tenant_id uuid not null,
    source_id uuid not null,
    sealed bytea not null,
    created_at timestamptz not null default now(),
    -- Set by a rotation: until then the old secret is accepted beside the new one.
    expires_at timestamptz,
    constraint source_secrets_source foreign key (tenant_id, source_id)
        references leasehook.sources (tenant_id, id) on delete cascade
);

create index source_secrets_by_source on leasehook.source_secrets (source_id);

-- What came in and was accepted, and how often it came again. At most two rows per event, so that a sender who repeats
-- himself for ever costs no space.
create table leasehook.received (
    id uuid not null default leasehook.uuid_v7(),
    tenant_id uuid not null,
    source_id uuid not null,
    event_id uuid not null,
    verdict text not null,
    -- The provider's own id of it; null: it has none, and is no duplicate of another.
    dedupe_id text,
    headers jsonb not null default '{}',
    received_at timestamptz not null default clock_timestamp(),
    last_received_at timestamptz not null default clock_timestamp(),
    times integer not null default 1,
    -- Lists walk over one source's rows. An index of the ids alone would tempt the planner to walk over everybody's.
    primary key (source_id, id),
    constraint received_source foreign key (tenant_id, source_id)
        references leasehook.sources (tenant_id, id),
    -- Pruned with its event, and then the provider's id is new again.
    constraint received_event foreign key (tenant_id, event_id)
        references leasehook.events (tenant_id, id) on delete cascade,
    constraint received_verdict_known check (verdict in ('accepted', 'duplicate')),
    constraint received_dedupe_id_form check (dedupe_id ~ '^[\x20-\x7e]{1,255}$')
);

create unique index received_once on leasehook.received (source_id, dedupe_id, verdict)
where dedupe_id is not null;

create index received_by_event on leasehook.received (event_id);

-- How often requests were refused, by source, day and reason: bounded, whatever is sent. No source: the address is
-- nobody's; counting those too makes them take as long.
create table leasehook.source_refusals (
    tenant_id uuid,
    source_id uuid references leasehook.sources (id),
    day date not null,
    reason text not null,
    count bigint not null,
    last_at timestamptz not null,
    constraint source_refusals_once unique nulls not distinct (source_id, day, reason),
    constraint source_refusals_reason_form check (reason ~ '^[a-z_]{1,64}$')
)
with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 200
);

create index source_refusals_by_age on leasehook.source_refusals (day);

-- Accept a request whose signature was checked: the event, its deliveries and the record that it came, in one
-- transaction. One that came before is not stored again. No event: the source was disabled or deleted meanwhile.
create function leasehook.receive(
    source_id uuid,
    type text,
    payload bytea,
    content_type text,
    dedupe_id text,
    headers jsonb,
    out event_id uuid,
    out delivery_count integer,
    out duplicate boolean
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    source record;
begin
    duplicate := false;
    select s.tenant_id, s.consumer into source
    from leasehook.sources as s
    where s.id = receive.source_id
        and s.disabled_at is null
        and s.deleted_at is null;
    if not found then
        return;
    end if;

    if receive.dedupe_id is not null then
        -- Waits for another request with the same id to commit or roll back; the next statement sees what it did.
        perform pg_advisory_xact_lock(
            hashtextextended('leasehook.receive' || receive.source_id::text || receive.dedupe_id, 0)
        );
        select r.event_id into receive.event_id
        from leasehook.received as r
        where r.source_id = receive.source_id
            and r.dedupe_id = receive.dedupe_id
            and r.verdict = 'accepted';
        if found then
            duplicate := true;
            delivery_count := 0;
            insert into leasehook.received as r (tenant_id, source_id, event_id, verdict, dedupe_id, headers)
            values (
                source.tenant_id,
                receive.source_id,
                receive.event_id,
                'duplicate',
                receive.dedupe_id,
                receive.headers
            )
            on conflict (source_id, dedupe_id, verdict) where dedupe_id is not null do update
            set times = r.times + 1, last_received_at = clock_timestamp();
            return;
        end if;
    end if;

    select p.event_id, p.delivery_count into receive.event_id, receive.delivery_count
    from leasehook.publish_bytes(
        tenant_id => source.tenant_id,
        type => receive.type,
        payload => receive.payload,
        content_type => receive.content_type,
        consumer => source.consumer
    ) as p;

    insert into leasehook.received (tenant_id, source_id, event_id, verdict, dedupe_id, headers)
    values (
        source.tenant_id,
        receive.source_id,
        receive.event_id,
        'accepted',
        receive.dedupe_id,
        receive.headers
    );
end
$$;

revoke all on function leasehook.receive from public;

grant select, insert, update on leasehook.sources to leasehook_tenant;
grant select, insert, update, delete on leasehook.source_secrets to leasehook_tenant;
grant select on leasehook.received, leasehook.source_refusals to leasehook_tenant;

do $$
declare
    name text;
begin
    foreach name in array array['sources', 'source_secrets', 'received', 'source_refusals'] loop
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
