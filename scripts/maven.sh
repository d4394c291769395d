#!/usr/bin/env bash
# maven.sh POM DIRECTORY: sees that DIRECTORY holds the jars that POM asks for, and nothing else. Prints nothing.
# The jars must be those of the file of checksums beside POM (server.xml: server.sha256). To renew it after a
# change of POM, delete it and run this once.
set -euo pipefail
cd "$(dirname "$0")/.."
pom=$1
directory=$2
sums=${pom%.xml}.sha256
plugin=org.apache.maven.plugins:maven-dependency-plugin:3.8.1
fresh=$directory.new

say() { printf 'maven: %s\n' "$*" >&2; }

# A directory takes its place in one step, with copies of both files: with them it is complete.
complete() { cmp -s "$pom" "$directory/pom.xml" && cmp -s "$sums" "$directory/sha256"; }

from_apt() {
    local root=env
    command -v apt-get >/dev/null || return 1
    if [[ $(id -u) -ne 0 ]]; then
        sudo -n true 2>/dev/null || return 1
        root="sudo -n"
    fi
    say "no mvn found; installing maven with apt-get"
    $root apt-get update -qq || return 1
    $root apt-get install -qq -y --no-install-recommends maven
}

sha256() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }

fetch() {
    command -v mvn >/dev/null || from_apt || true
    if ! command -v mvn >/dev/null; then
        say "Maven could not be installed here; install it (the command mvn) and repeat"
        return 1
    fi
    say "fetching the jars of $pom into $directory"
    rm -rf "$fresh"
    JAVA_HOME=$(scripts/java.sh) mvn --quiet --batch-mode -Dstyle.color=never --strict-checksums --file "$pom" \
        "$plugin:copy-dependencies" -DincludeScope=runtime -DoutputDirectory="$PWD/$fresh" || return 1
    (cd "$fresh" && sha256 -- *.jar >sha256) || return 1
    if [[ ! -e $sums ]]; then
        say "writing $sums"
        cp "$fresh/sha256" "$sums"
    elif ! diff "$sums" "$fresh/sha256"; then
        say "these jars are not the ones that $sums names: nothing is installed"
        return 1
    fi
    cp "$pom" "$fresh/pom.xml"
    rm -rf "$directory"
    mv "$fresh" "$directory"
}

if ! complete; then
    mkdir -p "$(dirname "$directory")"
    if command -v flock >/dev/null; then # one at a time; who comes later finds it done
        exec 9>"$directory.lock"
        flock 9
    fi
    complete || fetch >&2
fi
