# Sourced by ci/test. Starts a private PostgreSQL from Debian's package, if it is installed: on a
# socket in a new directory, without a port. It stops when the script ends. Sets
# DDP_TEST_POSTGRESQL, which the tests of the history read.

ddp_start_postgresql() {
    local initdb bin=
    for initdb in /usr/lib/postgresql/*/bin/initdb; do # the last one is the newest
        [ ! -x "$initdb" ] || bin=$(dirname "$initdb")
    done
    if [ -z "$bin" ]; then
        echo "test: no PostgreSQL here (apt-get install postgresql); its tests are skipped" >&2
        return 0
    fi
    postgresql=$(mktemp -d)
    as_owner=()
    [ "$(id -u)" != 0 ] || as_owner=(runuser -u postgres --) # it refuses to run as root
    (
        { [ "$(id -u)" != 0 ] || chown postgres "$postgresql"; } && cd "$postgresql" &&
            "${as_owner[@]}" "$bin/initdb" --encoding=UTF8 --locale=C --auth=trust \
                --username=postgres -D data && # the same in every locale of the caller
            "${as_owner[@]}" "$bin/pg_ctl" -D data -w -l log -o "-k $postgresql -h ''" start
    ) >"$postgresql/start.log" 2>&1 9>&- || { # the server does not use .venv
        echo "test: PostgreSQL may not start here ($(tail -n 1 "$postgresql/start.log"));" \
            "its tests are skipped" >&2
        rm -rf "$postgresql"
        return 0
    }
    trap 'cd /; "${as_owner[@]}" "'"$bin"'/pg_ctl" -D "$postgresql/data" -m immediate stop >/dev/null; rm -rf "$postgresql"' EXIT
    export DDP_TEST_POSTGRESQL="postgresql://postgres@/postgres?host=$postgresql"
}

ddp_start_postgresql
