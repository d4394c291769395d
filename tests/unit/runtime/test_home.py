"""A home: one process at a time, and what it remembers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelock.errors import LogCorrupt, PipelineError
from tidelock.recovery import Link
from tidelock.runtime.home import Home, Record, SegmentRecord


def record(home: Home) -> Record:
    segments = (
        SegmentRecord("words", ("lines", "words"), (), home.log("words")),
        SegmentRecord("store", ("counts", "store"), (("words", 0), ("counts", 1)), None),
    )
    return Record("job", {"name": "job"}, {"segments": []}, segments, {"a.b": home.log("words")})


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.remember(record(home))
    found = home.known()
    assert found == record(home)
    assert found.shape() == {"words": (), "store": (Link("words"), Link("counts", 1))}
    assert found.readers("words") == ("store",)


def test_a_torn_record_is_told(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.remember(record(home))
    file = tmp_path / "pipeline.json"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(LogCorrupt, match=r"pipeline\.json is torn"):
        home.known()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert not home.is_held()
    with home.held():
        assert home.is_held()
        with pytest.raises(PipelineError, match=r"in use by process \d+.*tidelock stop"), Home(tmp_path).held():
            pass
    assert not home.is_held()


def test_logs_stay_where_the_first_run_put_them(tmp_path: Path) -> None:
    elsewhere = Home(tmp_path / "home", f"file:{tmp_path}/elsewhere")
    elsewhere.remember(record(elsewhere))
    assert Home(tmp_path / "home").as_recorded().log("words") == f"file:{tmp_path}/elsewhere/words"
    plain = Home(tmp_path / "plain")
    plain.remember(record(plain))
    assert plain.as_recorded().log("words") == plain.log("words")


def test_a_record_is_for_its_owner_only(tmp_path: Path) -> None:
    home = Home(tmp_path, "redis://:secret@h/0/job")
    home.remember(record(home))
    assert (tmp_path / "pipeline.json").stat().st_mode & 0o077 == 0


def test_events_survive_a_torn_last_line(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.add_event({"kind": "one"})
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"kind": "tw')
    assert home.events() == [{"kind": "one"}]
