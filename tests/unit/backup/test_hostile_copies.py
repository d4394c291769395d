"""Whoever can change a backup can change what is restored, and nothing outside of the home."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from tests.unit.backup.backup_job import Job, stored

from tidelock.backup.backup import Backup
from tidelock.backup.restore import restore
from tidelock.epochs import EpochRange
from tidelock.errors import LogCorrupt
from tidelock.home.home import Home, Record
from tidelock.log import EpochLog, open_store
from tidelock.log.sealed import seal

Fields = dict[str, Any]
ENCODED = ["..%2f..%2f..%2fevil", "..%2F..%2F..%2Fevil?x", "%2e%2e", "%2e%2e%2fevil", "evil#x", "a%41b"]
OUTSIDE = ["../../../../evil", "{outside}/evil", "a/../../../../../evil", "x\\..\\evil"]


@pytest.fixture(autouse=True)
def _no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests kill nothing: without waiting for the disk they take a tenth of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of a job that has done some epochs and has set one aside."""
    folder = tmp_path_factory.mktemp("copied")
    job = Job(Home(folder / "home"))
    job.run_to(3)
    Backup(job.home, str(folder / "backup")).copy()
    return folder / "backup"


@pytest.fixture
def place(tmp_path: Path, copied: Path) -> Iterator[Path]:
    """A backup that may be changed; whatever is restored from it, nothing is left beside the home."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "deep/er").mkdir(parents=True)
    fsspec.filesystem("file").copy(f"{copied}/", f"{tmp_path}/backup/", recursive=True)
    yield tmp_path / "backup"
    found = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert not [name for name in found if not name.startswith(("backup/", "deep/er/home/"))]


def unsealed(file: Path) -> Fields:
    return dict(json.loads(file.read_bytes().splitlines()[0]))


def change(file: Path, how: Callable[[Fields], None]) -> None:
    fields = unsealed(file)
    how(fields)
    file.write_bytes(seal(fields))


def restored(place: Path) -> list[str]:
    """What a restore calls damaged; the job is gone on with."""
    home = Home(place.parent / "deep/er/home")
    report = restore(str(place), home)
    Job(home).run_to(6)
    return list(report.damaged)


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("what", ["path", "stored name"])
def test_the_files_of_a_snapshot(place: Path, name: str, what: str) -> None:
    hostile = name.format(outside=place.parent / "outside")

    def spoil(fields: Fields) -> None:
        kept = fields["files"].pop("commits/3")
        fields["files"][hostile if what == "path" else "commits/3"] = (
            kept if what == "path" else [hostile, *kept[1:]]
        )

    source = next(iter(stored(place, "files/commits/3@*")))
    (place / "evil").write_bytes(source.read_bytes())  # one of the names is there
    (snapshot,) = stored(place, "segments/report/snapshots/*")
    change(snapshot, spoil)
    with pytest.raises(LogCorrupt):  # it was the only one
        restored(place)


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_files_of_an_epoch(place: Path, name: str) -> None:
    hostile = name.format(outside=place.parent / "outside")
    (document,) = stored(place, "out/report/epoch=3.json")
    change(document, lambda fields: fields["files"].update({hostile: fields["files"].pop("part.parquet")}))
    assert restored(place) == ["out/report/epoch=3"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_parts_of_an_entry(place: Path, name: str) -> None:
    hostile = name.format(outside=place.parent / "outside")
    document = stored(place, "logs/counts/entries/*")[-1]
    change(document, lambda fields: fields["parts"][0].update(file=hostile))
    assert any("counts" in damage for damage in restored(place))


@pytest.mark.parametrize("field", ["name", "operators", "inputs", "cached"])
def test_the_names_in_the_record(place: Path, field: str) -> None:
    hostile = {"name": "../evil", "operators": ["../evil"], "inputs": [["../evil", 0]], "cached": "../evil"}
    (document,) = stored(place, "home.json")
    change(document, lambda fields: fields["segments"][1].update({field: hostile[field]}))
    with pytest.raises(LogCorrupt, match="not a plain name"):
        restored(place)


@pytest.mark.parametrize("name", ENCODED)
def test_the_folder_of_a_log_of_dead_letters(place: Path, name: str) -> None:
    (log,) = (folder for folder in place.glob("*/logs/words") if folder.is_dir())
    shutil.copytree(log, log.parents[1] / "dead" / name)
    assert restored(place) == []
    (made,) = (place.parent / "deep/er/home/dead").iterdir()
    assert made.name == name
    assert (made / "log.json").exists()


@pytest.mark.parametrize("name", ENCODED)
def test_a_segment_whose_name_would_be_a_path_in_a_url(place: Path, name: str) -> None:
    (document,) = stored(place, "home.json")
    document.write_bytes(seal(json.loads(json.dumps(unsealed(document)).replace('"counts"', f'"{name}"'))))
    for folder in ("logs", "segments"):
        (document.parent / folder / "counts").rename(document.parent / folder / name)
    home = Home(place.parent / "deep/er/home")
    assert restore(str(place), home).damaged == ()
    assert {folder.name for folder in (home.root / "logs").iterdir()} == {"words", name}
    assert {folder.name for folder in (home.root / "checkpoints").iterdir()} == {"words", "report", name}


@pytest.mark.parametrize("name", ENCODED)
def test_an_operator_whose_name_would_be_a_path_in_a_url(place: Path, name: str) -> None:
    (document,) = stored(place, "home.json")
    change(document, lambda fields: fields["segments"][1].update(cached=name))
    (log,) = (folder for folder in place.glob("*/logs/counts") if folder.is_dir())
    shutil.copytree(log, log.parents[1] / "state" / name)
    home = Home(place.parent / "deep/er/home")
    assert restore(str(place), home).damaged == ()
    assert [folder.name for folder in (home.root / "snapshots").iterdir()] == [name]


def test_a_log_of_a_home_is_in_the_home(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second guard: whatever a name becomes, nothing is restored beside the home without being asked to."""
    monkeypatch.setattr(Home, "letters", lambda home, name: f"file:{home.root}/../{name}")
    (log,) = (folder for folder in place.glob("*/logs/words") if folder.is_dir())
    shutil.copytree(log, log.parents[1] / "dead/counts.words")
    with pytest.raises(LogCorrupt, match="outside of"):
        restored(place)


def test_keys_that_no_file_system_would_have(tmp_path: Path, place: Path) -> None:
    """Object stores take any key: these would be dead letters, and what was set aside, outside of the home."""
    url = f"memory://{tmp_path.name}"
    memory = fsspec.filesystem("memory")
    for file in stored(place, "*"):
        memory.pipe_file(f"/{tmp_path.name}/{file.relative_to(place)}", file.read_bytes())
    (generation,) = (folder.name for folder in place.iterdir() if folder.is_dir())
    header = next(iter(stored(place, "logs/words/log.json"))).read_bytes()
    letter = seal({"covers": "0"})
    for key, data in {
        "dead/../../../../outside/log.json": header,
        "dead/..\\evil/log.json": header,
        "logs/words/aside/../../../../outside/evil.json": letter,
    }.items():
        memory.store[f"/{tmp_path.name}/{generation}/{key}"] = memory.store[
            f"/{tmp_path.name}/{generation}/home.json"
        ].__class__(memory, f"/{tmp_path.name}/{generation}/{key}", data)
    report = restore(url, Home(tmp_path / "deep/er/home"))
    assert report.damaged == ()


def test_a_home_and_a_log_refuse_such_names_too(tmp_path: Path) -> None:
    job = Job(Home(tmp_path / "home"))
    job.run_to(1)
    record = job.home.known()
    segments = (dataclasses.replace(record.segments[0], name="../evil"), *record.segments[1:])
    with pytest.raises(LogCorrupt, match="not a plain name"):
        Record.decode(dataclasses.replace(record, segments=segments).encode(), "here")
    log = open_store(job.home.log("words"))
    for act in (log.read_part, lambda name: log.remove_parts([name]), log.get, log.delete):
        with pytest.raises(LogCorrupt):
            act("../../pipeline")
    covers = EpochRange.single(EpochLog.open(log.url).ranges()[0].last)
    change(
        next(iter(stored(tmp_path / "home/logs/words", "entries/*"))),
        lambda fields: fields["parts"][0].update(file="../../../pipeline.json"),
    )
    with pytest.raises(LogCorrupt):
        EpochLog.open(log.url).manifest(covers)
