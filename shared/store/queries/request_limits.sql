-- name: admit_request
-- The API key, and one request of its limit taken, in one statement that serializes on the key's row: exact however many
-- functions ask at once. A request costs `gap_seconds`, and a whole minute's worth may be used at once. No row: the key
-- is not known.
with caller as materialized (
    select k.id, k.tenant_id, k.name, k.scopes
    from leasehook.api_keys as k
    where k.key_hash = %(key_hash)s
        and k.revoked_at is null
),

used as (
    insert into leasehook.request_limits as l (key_id, used_until, admitted)
    select caller.id, clock_timestamp() + %(gap_seconds)s * interval '1 second', true
    from caller
    on conflict (key_id) do update
    set (used_until, admitted) = (
        select
            case when next.is_free then next.used_until else l.used_until end,
            next.is_free
        from (
            select
                greatest(l.used_until, instant.now) + %(gap_seconds)s * interval '1 second' as used_until,
                greatest(l.used_until, instant.now) + %(gap_seconds)s * interval '1 second'
                <= instant.now + interval '1 minute' as is_free
            from (select clock_timestamp() as now) as instant
        ) as next
    )
    returning l.used_until, l.admitted
)

select
    caller.id,
    caller.tenant_id,
    caller.name,
    caller.scopes,
    used.admitted,
    extract(epoch from used.used_until - clock_timestamp())::double precision as used_seconds
from caller
cross join used;
