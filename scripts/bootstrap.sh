#!/usr/bin/env bash
# Makes .venv: the locked dependencies, then this project in place. Safe to repeat.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'bootstrap: %s\n' "$*" >&2; }

export PYTHON="${PYTHON:-python3}"
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "Tidelock needs Python 3.11 or newer; '$PYTHON' is $("$PYTHON" --version 2>/dev/null || echo missing)"
    say "name one that is: make PYTHON=python3.12 ..."
    exit 1
fi

say "creating .venv with $("$PYTHON" --version)"
if command -v uv >/dev/null; then
    uv venv --quiet --allow-existing --python "$(command -v "$PYTHON")" .venv
elif ! "$PYTHON" -m venv .venv >/dev/null 2>&1; then
    if ! { "$PYTHON" -m pip --version && "$PYTHON" -m venv --without-pip .venv; } >/dev/null 2>&1; then
        say "'$PYTHON' can neither create a virtual environment nor run pip;" \
            "install its venv module (on Debian: apt-get install python3-venv) or uv"
        exit 1
    fi
fi

say "installing the locked dependencies (Spark is 450 MB of them: a minute or two)"
# Spark is built from source: with the locked build tools, where the client knows how.
UV_BUILD_CONSTRAINT=requirements.lock PIP_BUILD_CONSTRAINT=requirements.lock \
    scripts/install.sh --require-hashes -r requirements.lock
say "installing tidelock from this folder"
scripts/install.sh --no-deps --no-build-isolation -e .
