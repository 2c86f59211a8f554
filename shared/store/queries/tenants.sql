-- name: ping
select 1 as one;

-- name: new_id
select leasehook.uuid_v7() as id;

-- name: ensure_tenant
with made as (
    insert into leasehook.tenants (name)
    values (%(name)s)
    on conflict (name) do nothing
    returning id
)

select made.id from made
union all
select t.id
from leasehook.tenants as t
where t.name = %(name)s
limit 1;

-- name: find_tenant
select t.id, t.name, t.created_at
from leasehook.tenants as t
where t.name = %(name)s;

-- name: create_api_key
insert into leasehook.api_keys (tenant_id, name, key_hash, key_prefix, scopes)
values (%(tenant_id)s, %(name)s, %(key_hash)s, %(key_prefix)s, %(scopes)s::text[])
returning id, tenant_id, name, key_prefix, scopes, created_at;

-- name: find_api_key
select k.id, k.tenant_id, k.name, k.scopes
from leasehook.api_keys as k
where k.key_hash = %(key_hash)s
    and k.revoked_at is null;

-- name: get_tenant
select t.id, t.name, t.created_at
from leasehook.tenants as t
where t.id = %(tenant_id)s;

-- name: create_tenant
-- No row: there is one of that name.
insert into leasehook.tenants (name)
values (%(name)s)
on conflict (name) do nothing
returning id, name, created_at;

-- name: list_tenants
select t.id, t.name, t.created_at
from leasehook.tenants as t
where %(before)s::uuid is null or t.id < %(before)s
order by t.id desc
limit %(limit)s;

-- name: list_api_keys
select k.id, k.name, k.key_prefix, k.scopes, k.created_at, k.revoked_at
from leasehook.api_keys as k
where k.tenant_id = %(tenant_id)s
    and (%(before)s::uuid is null or k.id < %(before)s)
order by k.id desc
limit %(limit)s;

-- name: revoke_api_key
-- No row: the tenant has no such key. Revoked once, it keeps the instant.
update leasehook.api_keys as k
set revoked_at = coalesce(k.revoked_at, statement_timestamp())
where k.tenant_id = %(tenant_id)s
    and k.id = %(key_id)s
returning k.id;

-- name: list_operator_keys
select k.id, k.name, k.key_prefix, k.scopes, k.created_at, k.revoked_at
from leasehook.api_keys as k
where k.tenant_id is null
    and (%(before)s::uuid is null or k.id < %(before)s)
order by k.id desc
limit %(limit)s;

-- name: revoke_operator_key
update leasehook.api_keys as k
set revoked_at = coalesce(k.revoked_at, statement_timestamp())
where k.tenant_id is null
    and k.id = %(key_id)s
returning k.id;
