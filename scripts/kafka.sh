#!/usr/bin/env bash
# Prints the class path of a Kafka broker; fetches its jars when they are not there. Nothing is started.
#   java -cp "$(scripts/kafka.sh)" kafka.tools.StorageTool format ...    (once)
#   java -cp "$(scripts/kafka.sh)" kafka.Kafka server.properties
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/maven.sh scripts/servers/kafka.xml .venv/kafka
echo "$PWD/.venv/kafka/*"
