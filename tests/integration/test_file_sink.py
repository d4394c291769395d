"""The file sink believes what is there, not what is recorded: torn directories, and what is synced. Real Spark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.power_cut import Disk

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import Fenced
from tidelock.spark.checkpoint.filesystem import Folder
from tidelock.spark.query.batches import Work
from tidelock.spark.sinks.files import FileSink

WORK = Work(EpochRange.single(Epoch(3)), (), ({"offset": 7},), "query", 3)
ROWS = 20


def deliver(spark: SparkSession, out: Path) -> None:
    """The same batch, in two files."""
    FileSink(spark, f"file:{out}").deliver(spark.range(ROWS).repartition(2), WORK)


def ids(spark: SparkSession, out: Path) -> list[int]:
    return sorted(row["id"] for row in spark.read.parquet(str(out)).where("epoch = 3").collect())


def tables(out: Path) -> dict[str, int]:
    return {file.name: file.stat().st_ino for file in (out / "epoch=3").glob("*.parquet")}


def left_aside(out: Path) -> list[str]:
    return [path.name for path in (out / ".aside").glob("[!.]*")]


def first(out: Path) -> Path:
    return min((out / "epoch=3").glob("*.parquet"))


def lose_a_file(out: Path) -> None:
    first(out).unlink()


def shorten_a_file(out: Path) -> None:
    os.truncate(first(out), first(out).stat().st_size // 2)


def lose_all_files(out: Path) -> None:
    for file in (out / "epoch=3").glob("*.parquet"):
        file.unlink()


def add_a_file(out: Path) -> None:
    """As a copy into a directory whose former files were not all removed."""
    shutil.copy(first(out), first(out).with_name("part-of-before.parquet"))


def lose_the_manifest(out: Path) -> None:
    (out / "epoch=3" / "_manifest.json").unlink()


def tear_the_manifest(out: Path) -> None:
    os.truncate(out / "epoch=3" / "_manifest.json", 20)


def test_a_torn_directory_is_delivered_again_whole(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    deliver(spark, out)
    before = tables(out)
    assert len(before) == 2
    deliver(spark, out)
    assert tables(out) == before, "what is there whole is not written again"
    tears: list[Callable[[Path], None]] = [
        lose_a_file,
        shorten_a_file,
        lose_all_files,
        add_a_file,
        lose_the_manifest,
        tear_the_manifest,
    ]
    for tear in tears:
        tear(out)
        for crc in (out / "epoch=3").glob(".*.crc"):  # a copy that was killed does not leave a damaged file
            crc.unlink()
        deliver(spark, out)
        assert ids(spark, out) == list(range(ROWS)), tear.__name__
        assert left_aside(out) == []


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """What was synced, in order, by the names that it had then."""
    names: list[Path] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    yield names


def test_what_is_delivered_is_synced(spark: SparkSession, tmp_path: Path, synced: list[Path]) -> None:
    out = tmp_path / "new" / "out"
    deliver(spark, out)
    aside = [path for path in synced if ".aside" in path.parts]
    for name in [*tables(out), "_manifest.json"]:
        assert [path.name for path in aside].count(name) == 1, "every file, before it gets its place"
    folder = next(path for path in aside if path.suffix != ".parquet" and path.name == "new")
    assert synced.index(folder) == max(synced.index(path) for path in aside), "then the directory that has them"
    assert synced[-1] == out, "and at last that it is in its place"
    synced.clear()
    FileSink(spark, f"file:{out}").take_back(Epoch(2))
    assert not (out / "epoch=3").exists()
    assert synced == [out], "it does not come back"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    (tmp_path / "disk").mkdir()
    return Disk(tmp_path / "disk", monkeypatch)


def test_what_is_delivered_survives_a_loss_of_power(spark: SparkSession, tmp_path: Path, disk: Disk) -> None:
    deliver(spark, tmp_path / "disk" / "new" / "deep" / "out")
    assert ids(spark, disk.after_power_cut(tmp_path / "left") / "new" / "deep" / "out") == list(range(ROWS))


def test_so_does_what_somebody_delivered_who_was_killed_before_it_was_synced(
    spark: SparkSession, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "disk" / "out"

    def killed(folder: Folder) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Folder, "sync_names", killed)
        deliver(spark, out)
    before = tables(out)
    deliver(spark, out)
    assert tables(out) == before, "it is not written again"
    assert ids(spark, disk.after_power_cut(tmp_path / "left") / "out") == list(range(ROWS))


def test_a_directory_in_one_of_others_that_may_not_be_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the rights 0711: what is in there can be used, and it cannot be synced."""
    out, opened = tmp_path / "others" / "out", os.open
    out.mkdir(parents=True)

    def refusing(path: os.PathLike[str], *rest: int) -> int:
        if Path(path) == out.parent:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *rest)

    monkeypatch.setattr(os, "open", refusing)
    deliver(spark, out)
    assert ids(spark, out) == list(range(ROWS))


def test_of_two_that_write_to_one_path_the_older_one_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was taken for dead wakes up beside the one that was restored: wherever it had paused."""
    for step in ("write", "sync_tree", "_check_newest"):
        out = tmp_path / step
        newer: list[Path] = []
        owner: type = FileSink if step.startswith("_") else Folder
        original = getattr(owner, step)

        def pausing(self: object, *given: object, out: Path = out, original=original, newer=newer) -> object:  # type: ignore[no-untyped-def]
            if not newer and ".writer" not in given:
                newer.append(out)
                deliver(spark, out)
            return original(self, *given)

        with monkeypatch.context() as patch, pytest.raises(Fenced, match="somebody else has begun to write there"):
            patch.setattr(owner, step, pausing)
            deliver(spark, out)
        assert newer
        assert ids(spark, out) == list(range(ROWS)), step
        before = tables(out)
        deliver(spark, out)
        assert tables(out) == before, "it was whole"
        assert left_aside(out) == []


def test_a_call_that_was_given_up_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, sink, again = tmp_path / "out", FileSink(spark, f"file:{tmp_path}/out"), []
    sync_tree = Folder.sync_tree

    def hanging(folder: Folder, name: str) -> None:
        if not again:
            again.append(name)
            sink.deliver(spark.range(ROWS).repartition(2), WORK)
        sync_tree(folder, name)

    monkeypatch.setattr(Folder, "sync_tree", hanging)
    with pytest.raises(Fenced):
        sink.deliver(spark.range(ROWS).repartition(2), WORK)
    assert ids(spark, out) == list(range(ROWS))
    assert left_aside(out) == []


def test_what_is_there_stays_if_it_cannot_be_replaced(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rename = tmp_path / "out", Folder.rename
    deliver(spark, out)
    lose_the_manifest(out)
    before = tables(out)

    def refusing(folder: Folder, name: str, to: str) -> None:
        if name.endswith("/new"):
            raise OSError("no")
        rename(folder, name, to)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no"):
        patch.setattr(Folder, "rename", refusing)
        deliver(spark, out)
    assert tables(out) == before
    deliver(spark, out)
    assert ids(spark, out) == list(range(ROWS))
