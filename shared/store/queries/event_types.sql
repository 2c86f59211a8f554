-- name: create_event_type
-- No row: the tenant has a type of this name, or as many types as it may have.
insert into leasehook.event_types (tenant_id, name, description, example, schema)
select %(tenant_id)s, %(name)s, %(description)s, %(example)s::json, %(schema)s::json
where (
        select count(*)
        from leasehook.event_types as t
        where t.tenant_id = %(tenant_id)s
    ) < %(most)s
on conflict (tenant_id, name) do nothing
returning name, description, example, schema, version, created_at, updated_at, archived_at;

-- name: get_event_type
select t.name, t.description, t.example, t.schema, t.version, t.created_at, t.updated_at, t.archived_at
from leasehook.event_types as t
where t.tenant_id = %(tenant_id)s
    and t.name = %(name)s;

-- name: lock_event_type
select t.name, t.description, t.example, t.schema, t.version, t.created_at, t.updated_at, t.archived_at
from leasehook.event_types as t
where t.tenant_id = %(tenant_id)s
    and t.name = %(name)s
for update;

-- name: list_event_types
-- In the order of names. A tenant has a bounded number of types, so a filter that matches little reads no more than that.
select
    t.name,
    t.description,
    t.schema is not null as has_schema,
    t.version,
    t.created_at,
    t.updated_at,
    t.archived_at
from leasehook.event_types as t
where t.tenant_id = %(tenant_id)s
    and (%(after)s::text is null or t.name > %(after)s)
    and (%(archived)s::boolean is null or (t.archived_at is not null) = %(archived)s)
order by t.name
limit %(limit)s;

-- name: change_event_type
update leasehook.event_types as t
set
    description = %(description)s,
    example = %(example)s::json,
    schema = %(schema)s::json,
    version = t.version + 1,
    updated_at = now()
where t.tenant_id = %(tenant_id)s
    and t.name = %(name)s
returning t.name, t.description, t.example, t.schema, t.version, t.created_at, t.updated_at, t.archived_at;

-- name: archive_event_type
-- Or restore it. No row: there is no such type, or it is so already.
update leasehook.event_types as t
set
    archived_at = case when %(archived)s then now() end,
    version = t.version + 1,
    updated_at = now()
where t.tenant_id = %(tenant_id)s
    and t.name = %(name)s
    and (t.archived_at is not null) <> %(archived)s
returning t.name, t.description, t.example, t.schema, t.version, t.created_at, t.updated_at, t.archived_at;

-- name: catalogue_event_types
-- What may be published, of the types that a filter lets through; one row without a type if there is none, or if their
-- texts have too many bytes together (`fits` says which).
with found as materialized (
    select t.name, t.description, t.example, t.schema
    from leasehook.event_types as t
    where t.tenant_id = %(tenant_id)s
        and t.archived_at is null
        and %(event_type)s = any(leasehook.filters_matching(t.name))
),

extent as (
    select
        coalesce(
            sum(
                octet_length(found.name)
                + coalesce(octet_length(found.description), 0)
                + coalesce(octet_length(found.example::text), 0)
                + coalesce(octet_length(found.schema::text), 0)
            )
            <= %(most_bytes)s,
            true
        ) as fits
    from found
)

select extent.fits, found.name, found.description, found.example, found.schema
from extent
left join found on extent.fits
order by found.name;
