-- How much of its request limit each API key has used: one narrow row per key, written by every request of the
-- management API. Losing them in a crash forgives a minute, so they are not worth WAL.
create unlogged table leasehook.request_limits (
    key_id uuid primary key references leasehook.api_keys (id) on delete cascade,
    -- The theoretical arrival time (GCRA): the instant at which the whole limit is free again.
    used_until timestamptz not null,
    -- Whether the last request was within the limit.
    admitted boolean not null
)
with (
    -- Leaves room for the next version in the same page: no index is touched.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 200
);
