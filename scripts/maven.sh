#!/usr/bin/env bash
# scripts/maven.sh POM DIRECTORY: copies what POM depends on, with all that this needs in turn, into DIRECTORY.
# Does nothing when DIRECTORY holds what this very POM asks for already.
set -euo pipefail
pom=$(realpath "$1")
directory=$(realpath -m "$2")

say() { printf 'maven: %s\n' "$*" >&2; }

if cmp -s "$pom" "$directory/pom.xml"; then
    exit
fi
if ! command -v mvn >/dev/null && command -v apt-get >/dev/null; then
    say "no mvn found; installing it with apt-get"
    root=env
    [[ $(id -u) -eq 0 ]] || root="sudo -n"
    { $root apt-get update -qq && $root apt-get install -qq -y --no-install-recommends maven; } >&2 || true
fi
if ! command -v mvn >/dev/null; then
    say "mvn is missing, and could not be installed: install Maven and repeat"
    exit 1
fi

# A directory that is complete has its pom: an interrupted copy is made again.
say "fetching what $(basename "$pom") asks for"
rm -rf "$directory"
mkdir -p "$directory"
mvn --quiet --batch-mode -Dstyle.color=never --file "$pom" dependency:copy-dependencies \
    -DincludeScope=runtime "-DoutputDirectory=$directory" >&2
cp "$pom" "$directory/pom.xml"
