#!/usr/bin/env bash
# Prints the class path of a Kafka broker, which is fetched when there is none. Nothing is started:
#   java -cp "$(scripts/kafka.sh)" kafka.tools.StorageTool format ...    (once)
#   java -cp "$(scripts/kafka.sh)" kafka.Kafka server.properties
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/maven.sh scripts/kafka.pom.xml .venv/kafka
printf '%s\n' "$PWD/.venv/kafka/*"
