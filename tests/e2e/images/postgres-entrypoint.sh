#!/bin/sh
# What the official image's entrypoint does with these variables. Until the cluster is complete there is no TCP port,
# so whoever can connect over TCP finds the server that stays.
set -eu

user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}
sockets=-cunix_socket_directories=/tmp
export PGHOST=/tmp

case ${1:-} in -*) set -- postgres "$@" ;; esac
[ "${1:-}" = postgres ] || exec "$@"
shift

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    if [ -z "${POSTGRES_PASSWORD:-}" ]; then
        echo "Error: POSTGRES_PASSWORD must be set to make a new cluster." >&2
        exit 1
    fi
    chmod 700 "$PGDATA"
    printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
    initdb --username="$user" --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 \
        --encoding=UTF8 --locale=C.UTF-8 --no-sync
    rm /tmp/password
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    pg_ctl -D "$PGDATA" -o "-clisten_addresses= $sockets" -w start
    if [ "$database" != postgres ]; then
        echo 'create database :"name"' | psql -v ON_ERROR_STOP=1 -v name="$database" -U "$user" -d postgres
    fi
    pg_ctl -D "$PGDATA" -m fast -w stop
fi
exec postgres -clisten_addresses='*' "$sockets" "$@"
