"""Another plan for a home, without Spark: the rules, the checkpoints that are made, the logs, the crash points."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.topology.shapes import CLOCK, STATE, chain, operator, pipeline, sink, source

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import Fenced, LogCorrupt, LogNotFound, PlanError
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.log import EpochLog, Retention
from tidelock.log.repair import begin_log, remove_log, set_readers
from tidelock.replanning.finish import aside, begin, finish
from tidelock.replanning.rules import Transition
from tidelock.spark.checkpoint import successors
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.topology import Plan, Topology, Traits, cut

MERGE = pipeline(source("a"), source("b"), operator("c", "a"), operator("d", "c", "b"), sink("z", "d"))


def record(topology: Topology, anchors: str, home: Home | None = None) -> Record:
    """What a home remembers of a topology that is cut before these operators."""
    cutting = cut(topology, Plan(anchors=frozenset(anchors)), {})
    place = home or Home("/home")
    segments = tuple(
        SegmentRecord(
            s.name, s.operators, tuple((i.log, i.lag) for i in s.inputs), place.log(s.name) if s.writes else None
        )
        for s in cutting.segments
    )
    return Record(topology.name, topology.signature(), Plan.to_document(cutting), segments, {})


def change(before: str, after: str, topology: Topology | None = None, **traits: Traits) -> Transition:
    shape = topology or chain()
    return Transition(record(shape, before), record(shape, after), shape, traits)


# -- rules


def test_what_stays_and_what_does_not() -> None:
    split = change("d", "bd")  # abc dz -> a bc dz
    assert (split.kept, split.changed, split.added, split.removed) == (("z",), ("c",), ("a",), ())
    back = change("bd", "c")  # a bc dz -> ab cdz
    assert (back.kept, back.changed, back.added, back.removed) == ((), ("z",), ("b",), ("a", "c"))
    assert not change("bd", "bd").made


def test_state_stays_with_its_segment() -> None:
    change("d", "bd", d=STATE).check()
    with pytest.raises(
        PlanError,
        match=r"operator d keeps state, and the plan moves it from segment z \(d, z\) to segment z \(c, d, z\).*"
        r"keep d and z together.*use a new home",
    ):
        change("d", "c", d=STATE).check()


def test_sources_stay_together_and_apart() -> None:
    split = change("", "c", topology=pipeline(source("a"), operator("c", "a"), sink("z", "c")))
    split.check()
    assert split.head_before(split.after.segment("a")) == "z"
    assert split.head_before(split.after.segment("z")) is None
    with pytest.raises(PlanError, match="segment a would read a in one query, and no segment of this home does"):
        change("", "cd", topology=MERGE).check()
    with pytest.raises(PlanError, match="segment z would read a and b in one query"):
        change("cd", "", topology=MERGE).check()


def test_a_watermark_goes_over_if_it_is_the_only_one() -> None:
    split = change("d", "bd", b=CLOCK)
    split.check()
    assert split.clock_before(split.after.segment("c")) == "c"
    assert split.clock_before(split.after.segment("a")) is None


def test_watermarks_of_several_clocks_stay_where_they_are() -> None:
    shape = pipeline(
        source("a"),
        source("b"),
        operator("c", "a"),
        operator("d", "b"),
        operator("e", "c", "d"),
        sink("z", "e"),
    )
    change("cdez", "ez", topology=shape, c=CLOCK, d=CLOCK).check()  # a b c d e z -> ac bd e z
    with pytest.raises(PlanError, match=r"operator c declares a watermark.*with c and d as clocks of one query"):
        change("cdez", "cdz", topology=shape, c=CLOCK, d=CLOCK).check()  # -> a b cde z


# -- checkpoints


def spark_file(file: Path, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines))
    file.with_name(f".{file.name}.crc").write_bytes(b"checksum")


def old_checkpoint(root: Path) -> Path:
    """Batches 0 to 2 of a source, with a third that is begun."""
    for batch in range(4):
        fields = json.dumps({"batchWatermarkMs": 10 * batch, "conf": {"some": "setting"}})
        spark_file(root / f"offsets/{batch}", "v1", fields, json.dumps({"logOffset": batch}))
    for batch in range(3):
        spark_file(root / f"commits/{batch}", "v1", json.dumps({"nextBatchWatermarkMs": 10 * batch + 10}))
    spark_file(root / "metadata", json.dumps({"id": "old"}))
    return root


def test_what_a_checkpoint_says(tmp_path: Path) -> None:
    old = old_checkpoint(tmp_path / "old")
    assert (Checkpoint(None, str(old)).newest_committed(), successors.has_half_done(old)) == (2, True)
    assert (successors.watermark_of(old), successors.source_count(old)) == (30, 1)
    nothing = tmp_path / "nothing"
    assert (Checkpoint(None, str(nothing)).newest_committed(), successors.has_half_done(nothing)) == (None, False)
    assert (successors.watermark_of(nothing), successors.source_count(nothing)) == (0, None)


def test_a_reader_of_logs_begins_behind_an_epoch(tmp_path: Path) -> None:
    old, new = old_checkpoint(tmp_path / "old"), tmp_path / "new"
    offset = {"tidelock": "id", "name": "a", "together": 2, "start": 7, "epoch": 7}
    successors.begin_after(new, [offset, {**offset, "tidelock": "other"}], old, watermark=99)
    successors.identify(new, None)
    found = Checkpoint(None, str(new))
    assert found.position() == 7
    assert found.offsets(0).sources[1]["tidelock"] == "other"
    assert found.query_id() != "old"
    assert (successors.watermark_of(new), successors.has_half_done(new)) == (99, False)
    assert json.loads((new / "offsets/0").read_text().splitlines()[1])["conf"] == {"some": "setting"}


def test_a_reader_of_sources_goes_on_with_its_half_done_batch(tmp_path: Path) -> None:
    old, new = old_checkpoint(tmp_path / "old"), tmp_path / "new"
    successors.take_over(new, old, watermark=99)
    successors.identify(new, old)
    found = Checkpoint(None, str(new))
    assert (found.position(), found.query_id()) == (2, "old")
    assert (successors.watermark_of(new), found.offsets(3).watermark_ms) == (99, 99)
    assert found.offsets(3).sources == ({"logOffset": 3},)
    assert not (new / "commits/.2.crc").exists(), "its checksum would be wrong"
    assert (new / "commits/.1.crc").exists()


@pytest.mark.parametrize("name", ["offsets/2", "commits/2"])
@pytest.mark.parametrize("text", ["", "v1", 'v1\n{"'])
def test_torn_files_of_a_model_are_told_by_name(tmp_path: Path, name: str, text: str) -> None:
    old = old_checkpoint(tmp_path / "old")
    spark_file(old / name, text)
    with pytest.raises(LogCorrupt, match=rf"old/{name} is torn"):
        successors.begin_after(tmp_path / "new", [], old, watermark=99)


@pytest.mark.parametrize("name", ["offsets/3", "commits/2"])
def test_torn_files_that_are_taken_over_are_told_by_name(tmp_path: Path, name: str) -> None:
    old = old_checkpoint(tmp_path / "old")
    spark_file(old / name, "v1")
    with pytest.raises(LogCorrupt, match=rf"{name} is torn"):
        successors.take_over(tmp_path / "new", old, watermark=99)


# -- logs


def test_readers_come_and_go(tmp_path: Path) -> None:
    keep = Retention(epochs=2, wait_for=frozenset({"x", "y", "x.snapshot"}))
    log = EpochLog.create(f"file:{tmp_path}/log", {}, retention=keep)
    for reader in ("x", "y", "backup"):
        log.move_cursor(reader, Epoch(3))
    for _ in range(2):
        set_readers(log, gone=["y"], readers=["x", "n"], new={"n": Epoch(4)})
    found = EpochLog.open(log.url)
    assert found.cursors() == {"x": 3, "n": 4, "backup": 3}
    assert found.header.retention == Retention(epochs=2, wait_for=frozenset({"x", "n", "x.snapshot"}))
    assert found.header.id == log.header.id


def test_a_log_goes_and_another_comes_in_its_place(tmp_path: Path) -> None:
    url = f"file:{tmp_path}/log"
    first = EpochLog.create(url, {})
    begin_log(first, Epoch(4))
    assert [str(covers) for covers in first.ranges()] == ["4"]
    old = first.take_over("an old writer")
    first.move_cursor("x", Epoch(4))
    for _ in range(2):
        remove_log(first.store)
    with pytest.raises(LogNotFound):
        EpochLog.open(url)
    second = EpochLog.create(url, {})
    assert (second.ranges(), second.cursors()) == ([], {})
    second.take_over("a new writer")
    with pytest.raises(Fenced):
        old.log.store.publish(old.token, EpochRange.single(Epoch(5)), b"")


# -- crash points


def home_before(tmp_path: Path) -> tuple[Home, Record, Record]:
    """A home of the segments abc and dz, and the records with which it becomes a, bc and dz."""
    home = Home(tmp_path / "home")
    before, after = record(chain(), "d", home), record(chain(), "bd", home)
    home.remember(before)
    log = EpochLog.create(home.log("c"), {}, retention=Retention(wait_for=frozenset({"z"})))
    begin_log(log, Epoch(2))
    log.move_cursor("z", Epoch(2))
    for segment in before.segments:
        old_checkpoint(Path(home.checkpoint(segment.name)))
    return home, before, after


def prepare(home: Home, before: Record, after: Record) -> None:
    """Do what comes before the new record is written."""
    begin(home, before, after)
    begin_log(EpochLog.create(home.log("a"), {}, retention=Retention(wait_for=frozenset({"c"}))), Epoch(2))
    successors.take_over(Path(home.checkpoint("a")), Path(home.checkpoint("c")), 0)
    offset = {"tidelock": "id", "name": "a", "together": 1, "start": 2, "epoch": 2}
    successors.begin_after(aside(home, "c"), [offset], Path(home.checkpoint("c")), 0)


def existing(home: Home) -> list[str]:
    return sorted(folder.name for folder in (home.root / "checkpoints").iterdir())


def test_a_change_that_has_not_happened_is_taken_back(tmp_path: Path) -> None:
    home, before, after = home_before(tmp_path)
    prepare(home, before, after)
    for _ in range(2):
        finish(home)
    assert existing(home) == ["c", "z"]
    assert Checkpoint(None, home.checkpoint("c")).offsets(2).sources == ({"logOffset": 2},)
    with pytest.raises(LogNotFound):
        EpochLog.open(home.log("a"))
    assert not (home.root / "replanning").exists()


def test_a_change_of_which_only_the_half_was_written_down_is_none(tmp_path: Path) -> None:
    home, before, after = home_before(tmp_path)
    begin(home, before, after)
    file = home.root / "replanning/after.json"
    file.write_bytes(file.read_bytes()[:30])
    finish(home)
    assert existing(home) == ["c", "z"]
    assert home.known() == before


def test_a_change_that_has_happened_is_finished(tmp_path: Path) -> None:
    home, before, after = home_before(tmp_path)
    prepare(home, before, after)
    home.remember(after)
    for _ in range(2):
        finish(home)
    assert existing(home) == ["a", "c", "z"]
    assert Checkpoint(None, home.checkpoint("c")).offsets(0).follows_logs
    assert EpochLog.open(home.log("a")).cursors() == {"c": 2}
    assert EpochLog.open(home.log("c")).cursors() == {"z": 2}

    begin(home, after, before)  # and back: a goes, and c reads the source again
    successors.take_over(aside(home, "c"), Path(home.checkpoint("a")), 0)
    home.remember(before)
    finish(home)
    assert existing(home) == ["c", "z"]
    assert Checkpoint(None, home.checkpoint("c")).offsets(2).sources == ({"logOffset": 2},)
    with pytest.raises(LogNotFound):
        EpochLog.open(home.log("a"))
