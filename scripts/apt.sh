#!/usr/bin/env bash
# apt.sh PACKAGE DIRECTORY: unpacks a Debian package, with what it needs and this machine lacks, into DIRECTORY.
# Needs no root, and installs nothing: whatever it writes is in DIRECTORY. Fails where there is no apt-get.
set -euo pipefail
package=$1
mkdir -p "$2"
directory=$(cd "$2" && pwd)
scratch=$directory/.apt

command -v apt-get >/dev/null
command -v dpkg-deb >/dev/null
rm -rf "$scratch"
mkdir -p "$scratch/lists/partial" "$scratch/archives/partial"
trap 'rm -rf "$scratch"' EXIT

apt=(apt-get -qq -o Debug::NoLocking=true -o APT::Sandbox::User="$(id -un)" -o Dir::State::lists="$scratch/lists"
    -o Dir::Cache="$scratch" -o Dir::Log="$scratch")
"${apt[@]}" update
"${apt[@]}" install --yes --reinstall --download-only --no-install-recommends "$package"
for archive in "$scratch"/archives/*.deb; do
    dpkg-deb --extract "$archive" "$directory"
done
