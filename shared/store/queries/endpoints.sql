-- name: ensure_consumer
insert into leasehook.consumers (tenant_id, id)
values (%(tenant_id)s, %(consumer)s)
on conflict do nothing;

-- name: create_endpoint
-- The endpoint, its circuit and its first secret: an endpoint without either of them cannot exist.
with endpoint as (
    insert into leasehook.endpoints (
        id,
        tenant_id,
        consumer,
        url,
        description,
        event_types,
        headers_sealed,
        timeout_seconds,
        retry_delays_seconds,
        max_in_flight,
        rate_per_second
    )
    values (
        %(id)s,
        %(tenant_id)s,
        %(consumer)s,
        %(url)s,
        %(description)s,
        %(event_types)s::text[],
        %(headers_sealed)s,
        %(timeout_seconds)s,
        %(retry_delays_seconds)s::integer[],
        %(max_in_flight)s,
        %(rate_per_second)s
    )
    returning id, tenant_id, created_at
),

circuit as (
    insert into leasehook.circuits (endpoint_id, tenant_id)
    select endpoint.id, endpoint.tenant_id
    from endpoint
),

secret as (
    insert into leasehook.endpoint_secrets (tenant_id, endpoint_id, sealed)
    select endpoint.tenant_id, endpoint.id, %(secret_sealed)s
    from endpoint
)

select endpoint.created_at
from endpoint;

-- name: list_endpoints
select
    e.id,
    e.consumer,
    e.url,
    e.description,
    e.event_types,
    e.timeout_seconds,
    e.retry_delays_seconds,
    e.max_in_flight,
    e.rate_per_second,
    e.created_at,
    e.disabled_at,
    e.disabled_reason,
    c.state as circuit,
    c.claimable_at as circuit_until,
    c.consecutive_failures
from leasehook.endpoints as e
inner join leasehook.circuits as c on e.id = c.endpoint_id
where e.tenant_id = %(tenant_id)s
    and e.deleted_at is null
    and (%(after)s::uuid is null or e.id > %(after)s)
order by e.id
limit %(limit)s;
