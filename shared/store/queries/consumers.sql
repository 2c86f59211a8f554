-- name: create_consumer
-- No row: the tenant has one of that id.
insert into leasehook.consumers (tenant_id, id, name)
values (%(tenant_id)s, %(consumer)s, %(name)s)
on conflict do nothing
returning id, name, created_at;

-- name: list_consumers
select c.id, c.name, c.created_at
from leasehook.consumers as c
where c.tenant_id = %(tenant_id)s
    and (%(after)s::text is null or c.id > %(after)s)
order by c.id
limit %(limit)s;

-- name: get_consumer
select c.id, c.name, c.created_at
from leasehook.consumers as c
where c.tenant_id = %(tenant_id)s
    and c.id = %(consumer)s;

-- name: rename_consumer
update leasehook.consumers as c
set name = %(name)s
where c.tenant_id = %(tenant_id)s
    and c.id = %(consumer)s
returning c.id, c.name, c.created_at;

-- name: lock_consumer
-- Waits for endpoints that are being made for it.
select c.id
from leasehook.consumers as c
where c.tenant_id = %(tenant_id)s
    and c.id = %(consumer)s
for update;

-- name: consumer_has_endpoints
select exists (
    select 1
    from leasehook.endpoints as e
    where e.tenant_id = %(tenant_id)s
        and coalesce(e.consumer, '') = %(consumer)s
        and e.deleted_at is null
) as found;

-- name: forget_consumer
-- Deleted endpoints are kept for the history of their deliveries, and would hold on to it.
update leasehook.endpoints as e
set consumer = null
where e.tenant_id = %(tenant_id)s
    and e.consumer = %(consumer)s
    and e.deleted_at is not null;

-- name: delete_consumer
delete from leasehook.consumers as c
where c.tenant_id = %(tenant_id)s
    and c.id = %(consumer)s;
