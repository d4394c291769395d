"""What speaks for a running job, when its home has no room and when the store of a shared subject is away."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.hammering import hasty
from tests.redis_servers import RedisServers
from tests.waiting import eventually

from tidelock.alignment.directory import Directory, Job, Subject
from tidelock.alignment.machine import AlignmentState, CatchUp, Source
from tidelock.coordination import EmbeddedTree, Lease, open_tree
from tidelock.epochs import Epoch
from tidelock.errors import BackendUnavailable, PipelineError
from tidelock.following.follower import InstructionFile
from tidelock.home.events import Events, RunEvent
from tidelock.home.home import Home
from tidelock.log import EpochLog
from tidelock.running.neighbours.aligning import Aligner, Neighbours
from tidelock.running.neighbours.sharing import SharedSubject
from tidelock.testing.logs import SCHEMA, covers, publish, rows


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(str(tmp_path / "home"))


@pytest.fixture
def log(tmp_path: Path) -> EpochLog:
    return EpochLog.create(f"file:{tmp_path}/s", SCHEMA, identity="s")


def aligner(home: Home, log: EpochLog, aligned: tuple[str, ...] = ()) -> Aligner:
    job = Job("job", "/home", "1", {"s": "job.s"}, ())
    its = Neighbours(job, {}, {"s": log}, aligned)
    return Aligner(its, home, Events(home), interval=1.0, patience=2.0, last_epoch=None)


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def closing_badly(close: Callable[[EmbeddedTree], None]) -> Callable[[EmbeddedTree], None]:
    """What closes a tree, and fails nevertheless."""

    def closes(tree: EmbeddedTree) -> None:
        close(tree)
        raise ZeroDivisionError("nobody has thought of this")

    return closes


def kept(home: Home) -> Source | None:
    return home.sealed_document("alignment", lambda fields: Source.from_document(fields, ["s"]))


@pytest.mark.parametrize("failing", ["seal_document", "instruction"])
def test_a_mode_that_could_not_be_written_is_neither_told_nor_forgotten(
    home: Home, log: EpochLog, coordinator: str, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    speaker = aligner(home, log)
    with open_tree(coordinator) as tree:
        known = Directory(tree)
        known.give("job", CatchUp(1, ("s",)), -1)
        with monkeypatch.context() as patch:
            if failing == "instruction":
                patch.setattr("tidelock.following.follower.Instruction.write", full)
            else:
                patch.setattr(home, failing, full)
            speaker._look()
        assert speaker.source.state is AlignmentState.UNALIGNED
        assert known.reported("job", ["s"]).number == 0
        speaker._look()
        assert speaker.source.state is AlignmentState.CATCHING_UP
        assert known.reported("job", ["s"]) == kept(home) == speaker.source
    speaker.close()


def test_a_job_that_is_killed_goes_on_in_the_mode_that_it_was_in(
    home: Home, log: EpochLog, coordinator: str
) -> None:
    with open_tree(coordinator) as tree:
        Directory(tree).give("job", CatchUp(1, ("s",)), -1)
    killed = aligner(home, log)
    killed._look()
    killed._look()
    assert killed.source.state is AlignmentState.READY
    killed.close()
    assert aligner(home, log).source == killed.source


def test_closing_is_not_taken_back(home: Home, log: EpochLog) -> None:
    speaker = aligner(home, log, aligned=("s",))
    instruction = InstructionFile(str(home.instruction))
    assert (instruction.now().aligned, instruction.now().closing) == ({"s": -1}, False)
    speaker.closing()
    speaker._instruct(Source.of(["s"]))
    assert (instruction.now().aligned, instruction.now().closing) == ({}, True)


def sharing(log: EpochLog, own: EpochLog, coordinator: str, events: Events) -> SharedSubject:
    """What combines a subject that one job produces, into ``own``."""
    subject = Subject("s", log.url, SCHEMA, shared=True)
    with open_tree(coordinator) as tree:
        Directory(tree).publish(subject, "job", own.url)
    return SharedSubject(subject, "job", coordinator, 1.0, events, producers=1)


def test_after_an_outage_a_subject_is_combined_from_what_its_log_says(
    tmp_path: Path, home: Home, log: EpochLog, coordinator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = EpochLog.create(f"file:{tmp_path}/own", SCHEMA, identity="own")
    publish(own.take_over("job"), covers(0), [1])
    shared = sharing(log, own, coordinator, Events(home))

    def away(*_: Any) -> None:
        raise BackendUnavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr("tidelock.log.stores.files.FileStore.publish", away)
        shared._look()
    before = log.store.holder()
    shared._asked = 0.0
    shared._look()
    assert log.ranges() == [covers(0)]
    assert log.store.holder() != before, "it has begun again"
    shared._let_go()


def test_a_subject_that_has_lost_epochs_while_it_is_combined_goes_on_with_a_recall(
    tmp_path: Path, home: Home, log: EpochLog, coordinator: str
) -> None:
    own = EpochLog.create(f"file:{tmp_path}/own", SCHEMA, identity="own")
    writer, place = own.take_over("job"), Path(log.url.removeprefix("file:"))
    told: list[RunEvent] = []
    shared = sharing(log, own, coordinator, Events(home, told.append))
    publish(writer, covers(0), [1])
    shared._look()
    shutil.copytree(place, tmp_path / "copy")
    publish(writer, covers(1), [2])
    shared._look()
    shutil.rmtree(place)

    for _ in range(3):
        publish(writer, covers(writer.window.tail + 1), [3])
        shared._asked = 0.0
        shared._look()
    outages = [event.text for event in told if event.kind == "outage"]
    assert len(outages) == len(set(outages)) == 2, "what failed, and that the log is not there; each once"
    assert "subject s waits: there is no epoch log" in outages[1]

    shutil.copytree(tmp_path / "copy", place, dirs_exist_ok=True)
    shared._asked = 0.0
    shared._look()
    assert (rows(log), log.recalls()) == ({0: [1], 1: [2], 2: [3], 3: [3], 4: [3]}, (0,))
    assert [event.kind for event in told][-1] == "subject recalled"
    shared._let_go()


def test_a_server_that_comes_back_with_an_older_subject_recalls_it(
    tmp_path: Path, home: Home, coordinator: str, redis_servers: RedisServers
) -> None:
    server = redis_servers.start()
    log = EpochLog.create(f"{server.url}/s", SCHEMA, name="s", identity="s")
    own = EpochLog.create(f"file:{tmp_path}/own", SCHEMA, identity="own")
    shared = sharing(log, own, coordinator, Events(home))
    writer = own.take_over("job")
    publish(writer, covers(0), [1])
    shared._look()
    with server.client() as client:
        client.save()
    publish(writer, covers(1), [2])
    shared._look()
    assert log.check_stands(log.tail(), 0) == 0
    server.restart()
    publish(writer, covers(2), [3])

    def combined_again() -> bool:
        shared._asked = 0.0
        shared._look()
        return rows(log) == {0: [1], 1: [2], 2: [3]}

    eventually(combined_again, "the subject goes on")
    assert log.check_stands(Epoch(0), 0) == 1
    with pytest.raises(PipelineError, match="the epochs behind 0 were lost"):
        log.check_stands(Epoch(1), 0)
    shared._let_go()


def spoken(home: Home, kind: str) -> list[str]:
    return [event["text"] for event in home.events() if event["kind"] == kind]


@pytest.fixture
def speaking(home: Home, log: EpochLog) -> Iterator[Aligner]:
    """What speaks for a job, in its thread."""
    speaker = aligner(home, log)
    speaker.register()
    thread = threading.Thread(target=speaker.run)
    thread.start()
    yield speaker
    speaker.end()
    thread.join(60)
    assert not thread.is_alive()


def test_a_command_that_nobody_knows_is_told_once_and_the_next_one_is_obeyed(
    home: Home, speaking: Aligner, coordinator: str
) -> None:
    with open_tree(coordinator) as tree:
        known = Directory(tree)
        tree.create("/jobs/job/command", b'{"command": "dance", "number": 1}')
        eventually(lambda: spoken(home, "alignment failed"), "it is told")
        eventually(lambda: known.reported("job", ["s"]).consumers["s"].position == -1, "it goes on reporting")
        _, version = known.command("job")
        assert known.give("job", CatchUp(2, ("s",)), version)
        eventually(lambda: known.reported("job", ["s"]).number == 2, "the next one is heard")
    (told,) = spoken(home, "alignment failed")
    assert "'dance', which this release does not know; the job goes on" in told


def test_a_damaged_tree_is_told_once_and_a_new_one_is_used(
    home: Home, speaking: Aligner, coordinator: str
) -> None:
    file = Path(coordinator.removeprefix("embedded:"))
    for beside in file.parent.glob(f"{file.name}*"):
        beside.unlink()
    file.write_bytes(b"this is not a database, and it is longer than the header of one would be" * 100)
    eventually(lambda: spoken(home, "alignment failed"), "it is told")
    file.unlink()
    eventually(lambda: spoken(home, "alignment recovered"), "it goes on in a new tree")
    with open_tree(coordinator) as tree:
        known = Directory(tree)
        assert known.job("job").identity == "1", "where the job is known again"
        assert known.is_alive("job")
        assert known.give("job", CatchUp(1, ("s",)), -1)
        eventually(lambda: known.reported("job", ["s"]).number == 1, "and hears")
    assert len(spoken(home, "alignment failed")) == 1


def test_whatever_fails_while_a_job_looks_at_its_logs_does_not_end_its_thread(
    home: Home, speaking: Aligner, log: EpochLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("nobody has thought of this")

    with monkeypatch.context() as patch:
        patch.setattr(log, "ranges", broken)
        eventually(lambda: spoken(home, "alignment failed"), "it is told")
    eventually(lambda: spoken(home, "alignment recovered"), "it goes on")


def test_a_followed_log_that_cannot_be_read_is_told_once_and_is_not_the_homes_trouble(
    home: Home, speaking: Aligner, log: EpochLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def stale() -> None:
        asked.append(1)
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(log, "ranges", stale)
        for count in range(1, 4):
            eventually(lambda: len(asked) >= count, "it is read")  # noqa: B023
            speaking._events.home_works()  # as the run does whenever it has written its status
    eventually(lambda: spoken(home, "alignment recovered"), "it goes on")
    (told,) = spoken(home, "alignment failed")
    assert "Stale file handle" in told
    assert spoken(home, "home not writable") == spoken(home, "home writable") == []


def test_the_session_is_renewed_whatever_fails_while_a_job_talks(
    home: Home, log: EpochLog, coordinator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = aligner(home, log)
    speaker.register()
    before = speaker._tree
    with monkeypatch.context() as patch:
        patch.setattr(Directory, "command", full)
        speaker._look()
    speaker._tried = 0.0
    speaker._look()
    assert speaker._tree not in (None, before)
    speaker.close()


def test_a_session_that_cannot_be_closed_is_left(
    home: Home, speaking: Aligner, coordinator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("nobody has thought of this")

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedTree, "close", closing_badly(EmbeddedTree.close))
        patch.setattr(Directory, "command", broken)
        eventually(lambda: spoken(home, "alignment failed"), "it is told")
        eventually(lambda: speaking._tree is None, "it is left")
    eventually(lambda: spoken(home, "alignment recovered"), "the thread goes on")


def test_who_was_left_behind_writes_nothing_into_the_home(home: Home, log: EpochLog) -> None:
    speaker = aligner(home, log)
    speaker.leave()
    speaker._become(replace(Source.of(["s"], ["s"]), number=1))
    assert kept(home) is None
    assert InstructionFile(str(home.instruction)).now().aligned == {}


def test_closing_and_a_new_mode_at_once_leave_the_instruction_of_both(
    home: Home, log: EpochLog, coordinator: str
) -> None:
    """Whichever writes last, the instruction has the newest mode and says that the job closes."""
    for number in range(30):
        speaker = aligner(home, log)
        target = Source.of(["s"], ["s"]) if number % 2 else Source.of(["s"])
        threads = [
            threading.Thread(target=speaker.closing),
            threading.Thread(target=speaker._become, args=(replace(target, number=number + 1),)),
        ]
        with hasty():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        now = InstructionFile(str(home.instruction)).now()
        assert now.closing
        assert now.aligned == ({"s": -1} if number % 2 else {})


def test_a_shared_subject_outlives_whatever_fails(
    tmp_path: Path, home: Home, log: EpochLog, coordinator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = EpochLog.create(f"file:{tmp_path}/own", SCHEMA, identity="own")
    publish(own.take_over("job"), covers(0), [1])
    shared = sharing(log, own, coordinator, Events(home))

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("nobody has thought of this")

    with monkeypatch.context() as patch:
        patch.setattr(Directory, "producers", broken)
        shared._look()
        shared._asked = 0.0
        shared._look()
    assert len(spoken(home, "outage")) == 1
    shared._asked = 0.0
    shared._look()
    assert log.ranges() == [covers(0)]
    shared._let_go()


def test_a_shared_subject_that_another_job_has_taken_over_is_let_go_whatever_fails(
    tmp_path: Path, home: Home, log: EpochLog, coordinator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = EpochLog.create(f"file:{tmp_path}/own", SCHEMA, identity="own")
    writer = own.take_over("job")
    publish(writer, covers(0), [1])
    shared = sharing(log, own, coordinator, Events(home))
    shared._look()

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("nobody has thought of this")

    log.take_over("another job")
    publish(writer, covers(1), [2])
    with monkeypatch.context() as patch:
        patch.setattr(Lease, "release", broken)
        patch.setattr(EmbeddedTree, "close", closing_badly(EmbeddedTree.close))
        shared._look()
    assert shared._combiner is shared._tree is None
