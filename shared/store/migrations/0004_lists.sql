-- What lists and replays need: the rows of one consumer in order, and which requests for a replay were heeded.

create index endpoints_by_consumer on leasehook.endpoints (tenant_id, consumer, id)
where consumer is not null;

create index events_by_consumer on leasehook.events (tenant_id, consumer, id)
where consumer is not null;

-- A request for a replay that carries an idempotency key is heeded once. Kept as long as the delivery is.
create table leasehook.replay_requests (
    delivery_id uuid not null references leasehook.deliveries (id) on delete cascade,
    key text not null,
    tenant_id uuid not null,
    created_at timestamptz not null default now(),
    primary key (delivery_id, key),
    constraint replay_requests_key_form check (key ~ '^[\x21-\x7e]{1,255}$')
);

alter table leasehook.replay_requests enable row level security;

create policy own_tenant on leasehook.replay_requests to leasehook_tenant
using (tenant_id = (select current_setting('leasehook.tenant_id')::uuid))
with check (tenant_id = (select current_setting('leasehook.tenant_id')::uuid));

grant select, insert on leasehook.replay_requests to leasehook_tenant;

grant select on leasehook.idempotency_keys to leasehook_tenant;
