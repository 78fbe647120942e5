#!/bin/sh
# PostgreSQL over the folder in which this runs: `postgres.sh prepare|run|check`, with the number of wrong rows as the exit code.
# It refuses to be root, and nobody but root may enter the folders of a run: so it sees the file system at /mnt, in a mount namespace of its own.
set -eu
if [ "${2-}" != inside ]; then
    exec unshare --mount sh -c 'mount --bind . /mnt && cd /mnt && exec "$0" "$1" inside' "$(realpath "$0")" "$1"
fi
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
as() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }
start() { as pg_ctl --silent -D data -o "-h '' -k /mnt/socket" -l data/log -w start >&2; }
stop() { as pg_ctl --silent -D data -w stop >&2; }
sql() { psql -qAt -h /mnt/socket -U postgres "$@"; }
wrong="SELECT count(*) FROM t WHERE v <> lpad(k::text, 1000, '0')"
case $1 in
    prepare)
        install -d -o postgres -m 700 data socket
        as initdb -D data ${PAGE_CHECKSUMS:+--data-checksums} -A trust -U postgres --no-sync >/dev/null
        start
        # Frozen, so that reading leaves no marks in the pages.
        sql -c "CREATE TABLE t(k int, n int, v text)" \
            -c "INSERT INTO t SELECT k, 0, lpad(k::text, 1000, '0') FROM generate_series(1, 800) k" \
            -c "VACUUM FREEZE t" -c CHECKPOINT -c "SELECT pg_relation_filepath('t')"
        stop ;;
    run)
        start
        found=$(sql -c "$wrong" -c "SELECT pg_sleep(2)" -c "$wrong" -c "UPDATE t SET n = 1" -c "$wrong" | tail -n 1)
        stop
        exit "$found" ;;
    check)
        as pg_checksums --check -D data >&2 || true
        start
        pg_amcheck -h /mnt/socket -U postgres --install-missing postgres >&2 && echo "pg_amcheck finds nothing" >&2
        found=$(sql -c "$wrong")
        stop
        exit "$found" ;;
esac
