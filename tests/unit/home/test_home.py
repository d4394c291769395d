"""A home: one process at a time, and what it remembers."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from tidelock.credentials import Credentials, credentials_for
from tidelock.errors import LogCorrupt, PipelineError
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.recovery import Link


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


WHO = "me:s3cret@"


def test_no_credentials_are_written_down(tmp_path: Path) -> None:
    home = Home(tmp_path, f"redis://{WHO}h/0/job", f"redis://{WHO}h/0/cache", f"zookeeper://{WHO}h/tree")
    assert (home.log("words"), home.cache, home.coordinator) == (
        "redis://h/0/job/words",
        "redis://h/0/cache",
        "zookeeper://h/tree",
    )
    home.remember(replace(record(home), cache=home.cache, coordinator=home.coordinator))
    assert "s3cret" not in (tmp_path / "pipeline.json").read_text()
    assert credentials_for(home.state("sums")) == Credentials("me", "s3cret")


def test_a_record_of_0_1_0_holds_passwords_and_opens_and_is_written_without(tmp_path: Path) -> None:
    home = Home(tmp_path)
    old = Record(
        "job",
        {"name": "job"},
        {"segments": []},
        (SegmentRecord("words", ("words",), (), f"redis://{WHO}h:6379/0/job/words"),),
        {"a.b": f"redis://{WHO}h:6379/0/job/words"},
        f"redis://{WHO}h/0/cache",
        f"zookeeper://{WHO}h/tree",
    )
    home.remember(old)
    assert "s3cret" in (tmp_path / "pipeline.json").read_text()
    found = home.as_recorded()
    assert (found.log("words"), found.cache, found.coordinator) == (
        "redis://h:6379/0/job/words",
        "redis://h/0/cache",
        "zookeeper://h/tree",
    )
    for place in (found.log("words"), found.cache, found.coordinator):
        assert credentials_for(place or "") == Credentials("me", "s3cret")
    home.remember(home.known())
    assert "s3cret" not in (tmp_path / "pipeline.json").read_text()


def test_a_record_is_for_its_owner_only(tmp_path: Path) -> None:
    home = Home(tmp_path, "redis://:secret@h/0/job")
    home.remember(record(home))
    assert (tmp_path / "pipeline.json").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel cannot be asked without taking the lock")
def test_who_asks_takes_nothing_from_who_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start fails if the lock is taken, so whoever only asks must not take it, not for an instant."""
    home = Home(tmp_path)
    with home.held():
        pass
    taken: list[str] = []
    monkeypatch.setattr("fcntl.flock", lambda *_: taken.append("flock"))
    monkeypatch.setattr("fcntl.lockf", lambda *_: taken.append("lockf"))
    ask = fcntl.fcntl

    def watched(file: Any, command: int, argument: Any = 0) -> Any:
        if command != fcntl.F_OFD_GETLK:
            taken.append(str(command))
        return ask(file, command, argument)

    monkeypatch.setattr("fcntl.fcntl", watched)
    assert not home.is_held()
    assert taken == []


def test_a_home_that_release_0_1_0_runs_is_held(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with (tmp_path / "lock").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("12345")  # without the end of a line
        file.flush()
        assert home.is_held()
        with pytest.raises(PipelineError, match="in use by process 12345"), home.held():
            pass
    assert not home.is_held()
    with home.held():
        assert home.is_held()


def test_a_home_is_free_when_its_process_was_killed(tmp_path: Path) -> None:
    code = "import sys, time; from tidelock.home.home import Home\nwith Home(sys.argv[1]).held(): time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as process:
        eventually(Home(tmp_path).is_held, "it is held")
        process.kill()
    assert not Home(tmp_path).is_held()


def test_no_room_for_the_name_of_the_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tidelock.home.holding._sign", full)
    home = Home(tmp_path)
    with home.held():
        assert home.is_held()


def test_events_survive_lines_that_were_not_written_whole(tmp_path: Path) -> None:
    home = Home(tmp_path)
    file = tmp_path / "events.jsonl"
    home.add_event({"kind": "one"})
    with file.open("a") as torn:
        torn.write('{"kind": "tw')
    assert home.events() == [{"kind": "one"}]
    home.add_event({"kind": "three"})
    assert home.events() == [{"kind": "one"}, {"kind": "three"}], "a torn line does not take the next one with it"
    with file.open("ab") as damaged:
        # As release 0.1.0 has left it when there was room again, and what a loss of power leaves.
        damaged.write(b'{"kind": "fo{"kind": "five"}\n\0\0\0\n\xff\n7\n')
    home.add_event({"kind": "six"})
    assert [event["kind"] for event in home.events()] == ["one", "three", "six"]


def test_a_disk_that_fills_up_tears_one_line_and_no_other(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk; it is one of a process, so that is another one."""
    code = """
import resource, sys
from tidelock.home.home import Home
home, written = Home(sys.argv[1]), 0
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
for number in range(100):
    try:
        home.add_event({"number": number})
        written += 1
    except OSError:
        continue
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
home.add_event({"number": 100})
print(written)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    written = int(done.stdout)
    assert 0 < written < 100
    assert b"\n\n" not in (tmp_path / "events.jsonl").read_bytes()
    assert [event["number"] for event in Home(tmp_path).events()] == [*range(written), 100]


@pytest.mark.parametrize("left", [b"", b'{"state": "runn', b"\0\0", b"[]"])
def test_a_document_that_is_not_whole_counts_as_none(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "status.json").write_bytes(left)
    assert Home(tmp_path).document("status") is None


def test_all_who_ask_for_an_identity_at_once_get_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, others = uuid.uuid4, []

    def late() -> uuid.UUID:
        monkeypatch.setattr("uuid.uuid4", make)
        others.append(Home(tmp_path).identity())  # asked while this one is on its way
        return make()

    monkeypatch.setattr("uuid.uuid4", late)
    assert [Home(tmp_path).identity()] == others
    assert [file.name for file in tmp_path.iterdir()] == ["identity"]
