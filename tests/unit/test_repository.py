"""What must hold for the repository: locked, hashed, tied to no index, one script for all."""

import os
import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-java.lock", "requirements-redis.lock")
SCRIPTS = (
    ".ci/run",
    "scripts/apt.sh",
    "scripts/bootstrap.sh",
    "scripts/install.sh",
    "scripts/java.sh",
    "scripts/kafka.sh",
    "scripts/maven.sh",
    "scripts/redis.sh",
    "scripts/zookeeper.sh",
)
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


def _read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def _entries(lock: str) -> dict[str, str]:
    """Map each locked requirement, as written before its options, to the options that follow."""
    text = re.sub(r"^\s*#.*\n", "", _read(lock), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip()]
    return {line.partition(" --")[0].strip(): line for line in lines}


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


def _asked_for() -> dict[str, list[str]]:
    """Map each lock to the requirements of pyproject.toml that it must answer."""
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    extras = [line for extra in project["optional-dependencies"].values() for line in extra]
    everything = [*project["dependencies"], *extras, *groups["build"]]
    return dict(zip(LOCKS, (everything, groups["java"], groups["redis-server"]), strict=True))


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_index(lock: str) -> None:
    option = r"^\s*(-i|-f|--(extra-)?index-url|--find-links|--trusted-host)\b"
    assert "://" not in _read(lock)
    assert not re.search(option, _read(lock), flags=re.MULTILINE)
    assert not re.search(r"\s@\s", _read(lock)), "a requirement that is a path or an address"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_and_hashes_every_entry(lock: str) -> None:
    entries = _entries(lock)
    assert entries
    assert not [entry for entry in entries if not re.match(r"[\w.-]+==\S+( ; .+)?$", entry)]
    assert not [entry for entry, line in entries.items() if "--hash=sha256:" not in line]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_answers_every_requirement(lock: str) -> None:
    """Whoever adds a dependency must also run `make lock`."""
    locked = {_name(entry) for entry in _entries(lock)}
    assert {_name(requirement) for requirement in _asked_for()[lock]} <= locked


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_carries_nothing_that_nobody_asked_for(lock: str) -> None:
    locked = {_name(entry) for entry in _entries(lock)}
    wanted = {_name(requirement) for requirement in _asked_for()[lock]}
    found = dict(re.findall(r"^([\w.-]+)==.*\n((?: .*\n?)+)", _read(lock), flags=re.MULTILINE))
    for package, options in found.items():
        reasons = set(re.findall(r"^ +#(?: +via)? +([\w.-]+)", options, flags=re.MULTILINE)) - {"via"}
        assert reasons & (locked - {package}) or package in wanted, package
        assert reasons <= locked | {"tidelock"}, package


@pytest.mark.parametrize(
    "pom", sorted((REPOSITORY / "scripts" / "servers").glob("*.xml")), ids=lambda pom: pom.stem
)
def test_a_server_is_pinned_and_hashed(pom: Path) -> None:
    text = pom.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.findall(r"<version>[^<]*[^\w.\-<][^<]*</version>", text), "a range of versions"
    sums = pom.with_suffix(".sha256").read_text(encoding="utf-8").splitlines()
    assert sums
    assert not [line for line in sums if not re.fullmatch(r"[0-9a-f]{64}  \S+\.jar", line)]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_executable_and_strict(script: str) -> None:
    assert os.access(REPOSITORY / script, os.X_OK)
    assert _read(script).startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in _read(script)


def test_ci_calls_the_words_that_people_use() -> None:
    words = re.findall(r"^(?:make|tests) (\w+)$", _read(".ci/run"), flags=re.MULTILINE)
    assert words == ["check", "test", "chaos"]
    assert set(words) <= set(re.findall(r"^(\w+):.*## ", _read("Makefile"), flags=re.MULTILINE))


def test_the_changelog_opens_with_this_version() -> None:
    newest = re.search(r"^## (\S+)", _read("CHANGELOG.md"), flags=re.MULTILINE)
    assert newest is not None
    assert newest[1] == PROJECT["project"]["version"]
