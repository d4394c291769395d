"""Checkpoints with torn files or of another format: mended where that is safe, refused by name otherwise.

A power cut tears the files of the last seconds, so there are one, two and three layers of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tidelock.epochs import Epoch
from tidelock.errors import LogCorrupt, UnsupportedFormat
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.log import EpochLog
from tidelock.mending.checkpoints import mend_checkpoints
from tidelock.mending.rolling_back import safe_versions
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.checkpoint.replay import Replay, read_replay
from tidelock.testing.logs import SCHEMA, covers, publish

OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"offset": 7}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


class Place:
    """A home with a segment whose checkpoint is written by hand, file by file."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.folder = Path(self.home.checkpoint("sums"))
        self.put("metadata", '{"id": "q"}')
        for batch in range(3):
            self.put(f"offsets/{batch}", OFFSETS)
            self.put(f"commits/{batch}", COMMIT)
            self.put(f"state/0/0/{batch + 1}.delta", "x")
        self.put("offsets/3", OFFSETS)
        self.log = EpochLog.create(f"file:{root}/logs/sums", SCHEMA)
        self.writer = self.log.take_over("test")

    def put(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.with_name(f".{file.name}.crc").write_text("crc")

    def publish(self, batches: int) -> None:
        for batch in range(batches):
            publish(self.writer, covers(batch), [batch])

    def mend(self, inputs: Sequence[tuple[str, int]] = (), *, log: bool = True, epochs: int = 1) -> list[str]:
        segment = SegmentRecord("sums", ("sums",), tuple(inputs), self.log.url if log else None)
        plan: dict[str, Any] = {"segments": [{"operators": ["sums"], "epochs_per_batch": epochs}]}
        return [one.file.path for one in mend_checkpoints(self.home, Record("p", {}, plan, (segment,), {}))]

    def files(self, folder: str) -> list[str]:
        return sorted(file.name for file in (self.folder / folder).iterdir() if not file.name.startswith("."))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "home")


TORN = ["", "v", "v1", "v1\n", 'v1\n{"batchWat', 'v1\n{"batchWatermarkMs":0}', 'v1\n{"batchWatermarkMs":0}\n{"off']


def test_a_whole_checkpoint_is_left_alone(place: Place) -> None:
    assert place.mend() == []
    Checkpoint(None, str(place.folder)).check_newest()


@pytest.mark.parametrize("content", TORN)
def test_torn_offsets_of_a_batch_that_nobody_has_seen_are_removed(place: Place, content: str) -> None:
    place.put("offsets/3", content)
    place.publish(3)
    with pytest.raises(LogCorrupt, match=r"checkpoints/sums/offsets/3 is torn.*[Rr]estore the home from a backup"):
        Checkpoint(None, str(place.folder)).begun()
    assert place.mend() == ["offsets/3"]
    assert place.files("offsets") == ["0", "1", "2"]
    assert not (place.folder / "offsets/.3.crc").exists()
    assert place.mend() == []


def test_torn_offsets_of_a_batch_that_was_published_are_no_guess(place: Place) -> None:
    place.put("offsets/3", "")
    place.publish(4)
    with pytest.raises(LogCorrupt, match=r"segment sums: .*offsets/3 is torn.*batch 3 may have been published"):
        place.mend()
    assert place.files("offsets") == ["0", "1", "2", "3"]


def test_who_reads_one_epoch_of_a_log_at_a_time_takes_the_same_again(place: Place) -> None:
    place.publish(4)
    place.put("offsets/3", "")
    with pytest.raises(LogCorrupt):
        place.mend([("words", 0)], epochs=2)
    with pytest.raises(LogCorrupt):
        place.mend(log=False)  # a sink on a source may have delivered rows whose end is not known
    assert place.mend([("words", 0)], log=False) == ["offsets/3"]


@pytest.mark.parametrize("content", ["", "v1", 'v1\n{"nextBatch'])
def test_a_torn_commit_is_removed_and_its_batch_done_again(place: Place, content: str) -> None:
    (place.folder / "offsets/3").unlink()
    place.put("commits/2", content)
    assert place.mend() == ["commits/2"]
    assert place.files("commits") == ["0", "1"]


def test_a_torn_commit_before_a_batch_that_was_begun_is_told(place: Place) -> None:
    place.put("commits/2", "")
    with pytest.raises(LogCorrupt, match=r"segment sums: .*commits/2 is torn"):
        place.mend()


def test_torn_offsets_of_a_finished_batch_are_told(place: Place) -> None:
    place.put("commits/3", COMMIT)
    place.put("offsets/3", "")
    with pytest.raises(LogCorrupt, match="offsets/3 is torn"):
        place.mend()


READER = [("words", 0)]
LAYERS = ["offsets/3", "commits/2", "offsets/2"]
"""The last one first."""


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("log", [True, False])
def test_a_reader_takes_the_same_epochs_again_however_many_layers_are_torn(
    place: Place, layers: int, log: bool
) -> None:
    place.publish(4)
    torn = LAYERS[:layers]
    for name in torn:
        place.put(name, "")
    assert place.mend(READER, log=log) == torn
    assert place.files("offsets") == ["0", "1", "2"][: 3 - torn.count("offsets/2")]
    assert place.files("commits") == ["0", "1", "2"][: 3 - torn.count("commits/2")]
    assert place.mend(READER, log=log) == []


def test_a_source_decides_anew_only_what_it_had_begun_last(place: Place) -> None:
    place.publish(3)
    place.put("offsets/3", "")
    place.put("commits/2", "v1")
    assert place.mend() == ["offsets/3", "commits/2"]
    assert (place.files("offsets"), place.files("commits")) == (["0", "1", "2"], ["0", "1"])


@pytest.mark.parametrize(
    ("torn", "told", "published", "log"),
    [
        (LAYERS, "offsets/2", 3, True),
        (LAYERS[:2], "offsets/3", 4, True),
        (["commits/3", "offsets/3"], "offsets/3", 0, True),  # its log is lost, and the batch was finished
        (LAYERS[:2], "offsets/3", 0, False),
    ],
)
def test_nothing_is_removed_if_one_of_several_has_to_be_known(
    place: Place, torn: list[str], told: str, published: int, log: bool
) -> None:
    for name in torn:
        place.put(name, "")
    place.publish(published)
    before = (place.files("offsets"), place.files("commits"))
    for _ in range(2):
        with pytest.raises(LogCorrupt, match=f"segment sums: .*{told} is torn"):
            place.mend(log=log)
        assert (place.files("offsets"), place.files("commits")) == before


@pytest.mark.parametrize("torn", ["offsets/2", "offsets/1", "commits/2", "commits/1"])
def test_a_torn_file_below_a_whole_one_is_told_whatever_else_is_torn(place: Place, torn: str) -> None:
    place.put(torn, "")
    place.put("offsets/4", "")
    with pytest.raises(LogCorrupt, match=f"{torn} is torn"):
        place.mend(READER)
    assert "4" in place.files("offsets")


def test_one_segment_that_cannot_be_mended_leaves_the_others_as_they_are(place: Place) -> None:
    other = SegmentRecord("out", ("out",), (), None)
    place.put("offsets/3", "")
    place.put("../out/offsets/0", "")
    sums = SegmentRecord("sums", ("sums",), (), place.log.url)
    with pytest.raises(LogCorrupt, match=r"segment out: .*offsets/0 is torn"):
        mend_checkpoints(place.home, Record("p", {}, {}, (sums, other), {}))
    assert "3" in place.files("offsets")


def test_bytes_that_are_no_text_are_torn_like_any_others(place: Place) -> None:
    (place.folder / "offsets/3").write_bytes(b"v1\n\xff\xfe")
    assert place.mend() == ["offsets/3"]


@pytest.mark.parametrize("torn", [[], ["offsets/3"], LAYERS])
def test_a_roll_back_that_was_cut_off_is_finished_before_anything_is_judged(place: Place, torn: list[str]) -> None:
    """Only batch 0 is to stay; offsets that were published would end the start."""
    place.publish(4)
    for name in torn:
        place.put(name, "")
    replay = place.home.replay("sums")
    Replay(Epoch(0), 0, (Epoch(1), Epoch(2), Epoch(3))).write(replay)
    assert place.mend() == []
    assert (place.files("offsets"), place.files("commits")) == (["0"], ["0"])
    finished = read_replay(replay)
    assert finished is not None
    assert finished.rolled_back


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("offsets/3", 'v2\n{"batchWatermarkMs":0}\n0:{"offset": 7}', r"offsets/3 is of version v2"),
        ("commits/2", 'v3\n{"nextBatchWatermarkMs":0}', r"commits/2 is of version v3"),
        ("commits/2", 'v2\n{"nextBatchWatermarkMs":0}', r"commits/2 is of version v2"),
        ("state/0/0/4_0b3f-77.zip", "x", r"state file state/0/0/4_0b3f-77.zip .*checkpoint format 2"),
        ("state/0/1/left/4_0b3f.changelog", "x", r"state file state/0/1/left/4_0b3f.changelog"),
        ("state/0/1/4.next", "x", r"state file state/0/1/4.next is of a format that Tidelock does not know"),
    ],
)
def test_formats_that_are_not_known_are_refused_by_name(place: Place, file: str, content: str, told: str) -> None:
    place.put(file, content)
    with pytest.raises(UnsupportedFormat, match=told):
        place.mend()


def test_state_of_an_unknown_format_does_not_count_as_no_state(place: Place) -> None:
    assert list(safe_versions(place.home, "sums").values())[-3:] == [0, 1, 2]
    (place.folder / "state/0/0/3.delta").rename(place.folder / "state/0/0/3_77aa.delta")
    with pytest.raises(UnsupportedFormat, match=r"state/0/0/3_77aa\.delta"):
        safe_versions(place.home, "sums")


def test_the_offsets_of_a_batch_are_what_they_were(place: Place) -> None:
    place.put("offsets/3", f"v1\n{json.dumps({'batchWatermarkMs': 5})}\n7\n-\n" + '{"a": 1}')
    found = Checkpoint(None, str(place.folder)).offsets(3)
    assert (found.watermark_ms, found.sources) == (5, ({"offset": 7}, {"a": 1}))
