#!/usr/bin/env bash
# Prints the class path of a ZooKeeper server; fetches its jars when they are not there. Nothing is started.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/maven.sh scripts/servers/zookeeper.xml .venv/zookeeper
echo "$PWD/.venv/zookeeper/*"
