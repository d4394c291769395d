#!/usr/bin/env bash
# Installs into .venv with whichever package client there is; takes the arguments of `pip install`.
set -euo pipefail
cd "$(dirname "$0")/.."

export PIP_DISABLE_PIP_VERSION_CHECK=1

if command -v uv >/dev/null; then
    exec uv pip install --quiet --python .venv "$@"
elif .venv/bin/python -m pip --version >/dev/null 2>&1; then
    exec .venv/bin/python -m pip install --quiet "$@"
else # a Python without ensurepip: its own pip can still serve .venv
    exec "${PYTHON:-python3}" -m pip --python .venv/bin/python install --quiet "$@"
fi
