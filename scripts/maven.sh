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
own=$PWD/.venv/maven

say() { printf 'maven: %s\n' "$*" >&2; }

# A directory takes its place in one step, with copies of both files: with them it is complete.
complete() { cmp -s "$pom" "$directory/pom.xml" && cmp -s "$sums" "$directory/sha256"; }

# Debian's Maven finds its parts by links, of which one leads out of the folder that it is unpacked into, and others to
# parts that this machine has already.
from_apt() {
    local jar
    command -v apt-get >/dev/null || return 1
    say "no mvn found; unpacking Debian's maven into .venv"
    scripts/apt.sh maven "$own" || return 1
    ln -sfn ../../../etc/maven "$own/usr/share/maven/conf"
    mkdir -p "$own/usr/share/java"
    for jar in /usr/share/java/*.jar; do
        [[ ! -e $jar || -e $own/usr/share/java/${jar##*/} ]] || ln -sfn "$jar" "$own/usr/share/java/${jar##*/}"
    done
}

find_maven() {
    local maven
    for maven in "$(command -v mvn)" "$own/usr/share/maven/bin/mvn"; do
        if [[ -n $maven && -x $maven ]]; then
            echo "$maven"
            return
        fi
    done
    return 1
}

sha256() { if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi; }

fetch() {
    local maven
    maven=$(find_maven) || { from_apt && maven=$(find_maven); } || true
    if [[ -z $maven ]]; then
        say "there is no Maven, and none could be had; install it (on Debian, as root: apt-get install maven) and repeat"
        return 1
    fi
    say "fetching the jars of $pom into $directory"
    rm -rf "$fresh"
    JAVA_HOME=$(scripts/java.sh) "$maven" --quiet --batch-mode -Dstyle.color=never --strict-checksums --file "$pom" \
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
