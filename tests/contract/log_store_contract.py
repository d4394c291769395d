"""What every store of epoch logs has to do. A backend subclasses `LogStoreContract` and changes nothing else.

The backend's test class has a fixture ``url``: the URL of a log that does not exist yet. Everything else is asked
of `open_store`, as readers, writers and executors do it, each with a store object of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pyarrow as pa
import pytest
from tests.pausing import pausing
from tests.waiting import eventually

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import BackendUnavailable, Fenced, LogCorrupt, LogNotFound, PipelineError, UnsupportedFormat
from tidelock.following.follower import Follower, Instruction
from tidelock.following.rounds import Reading, Rounds
from tidelock.log import EpochLog, LogWriter, Retention, WindowError, open_store
from tidelock.log.entry import Manifest, Part
from tidelock.log.parts import write_batches
from tidelock.log.sealed import seal
from tidelock.log.store import LogStore

SCHEMA = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}
ARROW = pa.schema([("n", pa.int64())])


def covers(first: int, last: int | None = None) -> EpochRange:
    return EpochRange(Epoch(first), Epoch(first if last is None else last))


def write_part(writer: LogWriter, epochs: EpochRange, numbers: list[int]) -> Part:
    name = f"{writer.part_prefix(epochs.last)}{numbers[0] if numbers else 'empty'}.arrow"
    batch = pa.RecordBatch.from_pydict({"n": numbers}, schema=ARROW)

    def write(file: BinaryIO) -> Part:
        return write_batches(file, name, ARROW, [batch])

    return open_store(writer.log.url).write_part(name, write)


def publish(writer: LogWriter, epochs: EpochRange, numbers: list[int], query: str = "q") -> bool:
    part = write_part(writer, epochs, numbers)
    manifest = Manifest(writer.log.header.id, epochs, SCHEMA, (part,), query=query, batch=epochs.last)
    return writer.publish(manifest)


def rows(log: EpochLog) -> dict[int, list[int]]:
    found = {}
    for epochs in log.ranges():
        batches = [b for p in log.manifest(epochs).parts for b in log.read_part(epochs, p)]
        found[epochs.last] = [n for batch in batches for n in batch.column("n").to_pylist()]
    return found


def publish_for_ever(url: str) -> None:
    writer = EpochLog.create(url, SCHEMA).take_over("a child")
    while True:
        last = writer.window.tail
        publish(writer, covers(last + 1), [last + 1] * 50)


def take_over_and_publish(url: str, start: multiprocessing.synchronize.Event, done: multiprocessing.Queue) -> None:
    writer = EpochLog.open(url).take_over(f"process {os.getpid()}")
    start.wait()
    try:
        done.put(("published", publish(writer, covers(0), [os.getpid()], query=str(os.getpid()))))
    except Fenced:
        done.put(("fenced", False))


def create_log(url: str, done: multiprocessing.Queue) -> None:
    done.put(EpochLog.create(url, SCHEMA).header.id)


def outcome(work: Callable[[], object]) -> str:
    try:
        work()
    except Fenced:
        return "fenced"
    return "done"


ANY_STEP = range(1, 13)
"""One pauses before the first, the second, ... step that one takes with a store: there are fewer than so many."""

STALE: dict[str, Callable[[LogWriter], object]] = {
    "publish": lambda writer: publish(writer, covers(writer.window.tail + 1), [writer.window.tail + 1]),
    "truncate": lambda writer: writer.truncate(),
    "rewind": lambda writer: writer.rewind(Epoch(writer.window.tail - 1)),
}
"""What a writer may be in the middle of when another one takes over."""


def begun(log: EpochLog) -> Epoch:
    """Where a query over two logs that are the same, and reads all there is, begins."""
    return Rounds([Reading(log), Reading(log)], "new").first("earliest")


NEW_READERS: dict[str, Callable[[EpochLog], Epoch]] = {
    "cursor": lambda log: log.register("new"),
    "rounds": begun,
    "follower": lambda log: Follower([log], "group", Instruction, consumers={log.header.id: "new"}).first(
        "earliest"
    )[log.header.id],
}
"""What takes its place in a log: the position from which it is going to read."""


class LogStoreContract:
    """The contract."""

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError("the backend's test class gives the URL")

    @pytest.fixture
    def store(self, url: str) -> LogStore:
        return open_store(url)

    @pytest.fixture
    def log(self, url: str) -> EpochLog:
        return EpochLog.create(url, SCHEMA)

    @pytest.fixture
    def writer(self, log: EpochLog) -> LogWriter:
        return log.take_over("the test")

    # -- documents

    def test_documents_are_replaced_listed_and_deleted(self, store: LogStore) -> None:
        assert store.get("cursor/a") is None
        store.put("cursor/a", b"one")
        store.put("cursor/a", b"two", durable=False)
        store.put("cursor/b", b"three")
        store.put("round/a", b"four")
        assert (store.get("cursor/a"), store.names("cursor/")) == (b"two", ["cursor/a", "cursor/b"])
        store.delete("cursor/a")
        store.delete("cursor/a")
        assert store.names("cursor/") == ["cursor/b"]

    def test_a_document_is_created_once(self, store: LogStore) -> None:
        assert store.create("log", b"one")
        assert not store.create("log", b"two")
        assert store.get("log") == b"one"

    def test_of_many_processes_one_creates_the_log(self, url: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        done = spawn.Queue()
        children = [spawn.Process(target=create_log, args=(url, done)) for _ in range(3)]
        for child in children:
            child.start()
        assert len({done.get(timeout=60) for _ in children}) == 1
        for child in children:
            child.join()

    def test_a_store_travels_to_executors(self, store: LogStore, writer: LogWriter) -> None:
        publish(writer, covers(0), [1])
        assert pickle.loads(pickle.dumps(store)).ranges() == [covers(0)]

    # -- entries

    def test_what_was_published_is_read(self, log: EpochLog, writer: LogWriter) -> None:
        assert publish(writer, covers(0), [1, 2])
        assert publish(writer, covers(1, 3), [3])
        assert log.ranges() == [covers(0), covers(1, 3)]
        assert rows(EpochLog.open(log.url)) == {0: [1, 2], 3: [3]}

    def test_an_empty_entry_is_an_entry(self, log: EpochLog, writer: LogWriter) -> None:
        writer.publish(Manifest(log.header.id, covers(0), SCHEMA, (), query="q"))
        assert rows(log) == {0: []}

    def test_a_manifest_comes_back_as_it_was(self, log: EpochLog, writer: LogWriter) -> None:
        publish(writer, covers(0), [1, 2, 3])
        manifest = log.manifest(covers(0))
        assert (manifest.rows, manifest.query, manifest.batch, manifest.schema) == (3, "q", 0, SCHEMA)
        assert manifest.size == sum(part.bytes for part in manifest.parts) > 0
        assert manifest.published_at > 0

    def test_a_part_without_a_manifest_does_not_exist(self, log: EpochLog, writer: LogWriter) -> None:
        write_part(writer, covers(0), [1])
        assert log.ranges() == []
        assert rows(log) == {}

    def test_an_entry_whose_rows_were_lost_is_not_published(self, log: EpochLog, writer: LogWriter) -> None:
        publish(writer, covers(0), [0])
        part = write_part(writer, covers(1), [1])
        manifest = Manifest(log.header.id, covers(1), SCHEMA, (part,), query="q", batch=1)
        log.store.remove_parts([part.file])
        with pytest.raises(BackendUnavailable, match=rf"{part.file} of epoch 1 is gone .* nothing was published"):
            writer.publish(manifest)
        assert rows(log) == {0: [0]}
        assert publish(writer, covers(1), [1])

    def test_the_same_work_is_published_once_also_by_a_later_run(self, log: EpochLog, writer: LogWriter) -> None:
        assert publish(writer, covers(0), [1])
        again = log.take_over("the next run")
        assert not publish(again, covers(0), [2])
        assert rows(log) == {0: [1]}

    def test_other_work_and_gaps_are_refused_and_change_nothing(self, log: EpochLog, writer: LogWriter) -> None:
        publish(writer, covers(0), [1])
        with pytest.raises(WindowError, match="other work"):
            publish(writer, covers(0), [2], query="another query")
        with pytest.raises(WindowError, match="cannot follow"):
            publish(writer, covers(2), [2])
        assert rows(log) == {0: [1]}

    def test_many_epochs_are_listed_in_order(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(120):
            publish(writer, covers(n), [n])
        assert [r.last for r in log.ranges()] == list(range(120))

    # -- one writer

    def test_a_second_writer_fences_the_first(self, log: EpochLog, writer: LogWriter) -> None:
        publish(writer, covers(0), [1])
        second = log.take_over("the second")
        with pytest.raises(Fenced, match="the second has taken this log over"):
            publish(writer, covers(1), [99])
        for change in (lambda: writer.rewind(Epoch(-1)), lambda: publish(writer, covers(1), [98])):
            with pytest.raises(Fenced):
                change()
        assert publish(second, covers(1), [2])
        assert rows(log) == {0: [1], 1: [2]}

    def test_a_fenced_writer_truncates_nothing(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(3):
            publish(writer, covers(n), [n])
        log.take_over("the second")
        log.move_cursor("c", Epoch(2))
        with pytest.raises(Fenced):
            writer.truncate()
        assert list(rows(log)) == [0, 1, 2]

    def newer_run(self, log: EpochLog) -> None:
        """Take over, put one epoch in the place of another, and drop one that all have read."""
        newer = log.take_over("a newer run")
        newer.rewind(Epoch(newer.window.tail - 1))
        for _ in range(2):
            number = newer.window.tail + 1
            publish(newer, covers(number), [number], query="newer")
        log.move_cursor("c", Epoch(newer.window.truncated_to + 1))
        assert len(newer.truncate()) == 1

    def test_a_stale_take_over_destroys_nothing(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(5):
            publish(writer, covers(n), [n])
        log.move_cursor("c", Epoch(0))
        for at in ANY_STEP:
            write_part(log.take_over("a run that dies"), covers(99), [99])
            stale, store = pausing(log, at, lambda: self.newer_run(log))
            outcome(lambda: stale.take_over("the stale one"))  # noqa: B023
            found, held = rows(log), log.ranges()
            assert found == {n: [n] for n in range(held[0].last, held[-1].last + 1)}, f"stopped before step {at}"
        assert store.steps < at, "no step was left out"
        log.take_over("the last")
        assert len(log.store.part_names()) == len(rows(log)), "and what was left over is gone"

    @pytest.mark.parametrize("change", STALE)
    def test_a_writer_that_is_fenced_in_the_middle_destroys_nothing(
        self, log: EpochLog, writer: LogWriter, change: str
    ) -> None:
        for n in range(5):
            publish(writer, covers(n), [n])
        for at in ANY_STEP:
            stale, store = pausing(log, 0, lambda: None)
            old = stale.take_over("the stale one")
            STALE["publish"](old)
            log.move_cursor("c", Epoch(old.window.truncated_to + 1))
            store.pause(at, lambda: self.newer_run(log))
            assert outcome(lambda: STALE[change](old)) in ("done", "fenced")  # noqa: B023
            found, held = rows(log), log.ranges()
            assert found == {n: [n] for n in range(held[0].last, held[-1].last + 1)}, f"stopped before step {at}"
        assert store.steps < at, "no step was left out"

    def test_of_many_processes_one_publishes(self, log: EpochLog) -> None:
        spawn = multiprocessing.get_context("spawn")
        done, start = spawn.Queue(), spawn.Event()
        args = (log.url, start, done)
        children = [spawn.Process(target=take_over_and_publish, args=args) for _ in range(3)]
        for child in children:
            child.start()
        eventually(lambda: (log.store.holder() or (0, ""))[0] == 3, "all three have taken the log over")
        start.set()
        told = sorted(done.get(timeout=60) for _ in children)
        for child in children:
            child.join()
        assert told == [("fenced", False), ("fenced", False), ("published", True)]
        assert len(rows(log)[0]) == 1

    def test_a_writer_killed_at_any_moment_leaves_whole_entries(self, url: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        log = EpochLog.create(url, SCHEMA)
        newest = -1
        for _ in range(8):
            child = spawn.Process(target=publish_for_ever, args=(url,))
            child.start()
            eventually(lambda: log.ranges() and log.ranges()[-1].last > newest + 3, "the child publishes")  # noqa: B023
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            # One look, because what the child had sent may arrive at a server a little after its death.
            found = rows(log)
            assert found == {n: [n] * 50 for n in range(len(found))}
            assert len(found) > newest + 4, "and what others had seen before is there"
            newest = len(found) - 1

    # -- cursors, truncation, rewind, leftovers

    def test_the_slowest_cursor_truncates(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(4):
            publish(writer, covers(n), [n])
        log.move_cursor("fast", Epoch(3))
        log.move_cursor("slow", Epoch(1))
        assert [e.covers.last for e in writer.truncate()] == [0, 1]
        assert rows(log) == {2: [2], 3: [3]}
        assert len(log.store.part_names()) == 2
        assert log.cursors() == {"fast": 3, "slow": 1}

    def drop_one(self, log: EpochLog, writer: LogWriter) -> None:
        """One more epoch, and the oldest is one that all who are known have read."""
        log.forget("new")
        publish(writer, covers(writer.window.tail + 1), [writer.window.tail + 1])
        log.move_cursor("c", Epoch(writer.window.truncated_to + 1))

    def check_held(self, log: EpochLog, writer: LogWriter, position: Epoch) -> None:
        """See that a reader at ``position`` gets all that follows, whatever is dropped now."""
        assert log.cursors()["new"] <= position
        log.move_cursor("c", writer.window.tail)
        writer.truncate()
        assert [m.covers.last for m in log.manifests(position, writer.window.tail)]
        assert {n: [n] for n in range(position + 1, writer.window.tail + 1)}.items() <= rows(log).items()

    @pytest.mark.parametrize("reader", NEW_READERS)
    def test_a_new_reader_gets_what_it_begins_with(self, log: EpochLog, writer: LogWriter, reader: str) -> None:
        for n in range(4):
            publish(writer, covers(n), [n])
        for at in ANY_STEP:
            self.drop_one(log, writer)
            seen, store = pausing(log, at, writer.truncate)
            position = NEW_READERS[reader](seen)
            self.check_held(log, writer, position)
        assert store.steps < at, "no step was left out"

    @pytest.mark.parametrize("reader", NEW_READERS)
    def test_a_reader_that_comes_while_a_log_is_truncated(
        self, log: EpochLog, writer: LogWriter, reader: str
    ) -> None:
        for n in range(4):
            publish(writer, covers(n), [n])
        for at in ANY_STEP:
            seen, store = pausing(log, 0, lambda: None)
            writer = seen.take_over("the next")
            self.drop_one(log, writer)
            positions: list[Epoch] = []
            store.pause(at, lambda: positions.append(NEW_READERS[reader](log)))  # noqa: B023
            writer.truncate()
            for position in positions:
                self.check_held(log, writer, position)
        assert store.steps < at, "no step was left out"

    def test_a_cursor_that_goes_back_while_a_log_is_truncated(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(4):
            publish(writer, covers(n), [n])
        log.move_cursor("c", Epoch(3))
        for at in ANY_STEP:
            seen, store = pausing(log, 0, lambda: None)
            writer = seen.take_over("the next")
            publish(writer, covers(writer.window.tail + 1), [writer.window.tail + 1])
            log.move_cursor("c", Epoch(writer.window.truncated_to + 2))
            store.pause(at, lambda: log.move_cursor("c", log.head()))
            writer.truncate()
            assert log.head() <= log.cursors()["c"]
        assert store.steps < at, "no step was left out"

    def test_a_forgotten_consumer_is_not_waited_for(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(3):
            publish(writer, covers(n), [n])
        log.move_cursor("gone", Epoch(-1))
        log.move_cursor("c", Epoch(2))
        assert writer.truncate() == ()
        log.forget("gone")
        assert [e.covers.last for e in writer.truncate()] == [0, 1]

    def test_after_truncation_a_new_run_knows_where_it_is(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(3):
            publish(writer, covers(n), [n])
        log.move_cursor("c", Epoch(2))
        writer.truncate()
        again = log.take_over("the next run")
        assert (again.window.truncated_to, again.window.tail) == (1, 2)
        assert not publish(again, covers(2), [99])
        assert publish(again, covers(3), [3])

    def test_retention_is_kept_with_the_log(self, url: str) -> None:
        kept = Retention(epochs=2, wait_for=frozenset({"late"}))
        EpochLog.create(url, SCHEMA, retention=kept)
        assert EpochLog.open(url).header.retention == kept

    def test_a_rewind_drops_the_tail(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(4):
            publish(writer, covers(n), [n])
        assert [e.covers.last for e in writer.rewind(Epoch(1))] == [2, 3]
        assert publish(writer, covers(2), [22], query="after the rewind")
        assert rows(log) == {0: [0], 1: [1], 2: [22]}

    def test_a_rewind_behind_a_consumer_is_refused(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(3):
            publish(writer, covers(n), [n])
        log.move_cursor("c", Epoch(2))
        with pytest.raises(WindowError, match="c already finished later epochs"):
            writer.rewind(Epoch(1))
        assert list(rows(log)) == [0, 1, 2]

    def test_left_over_parts_are_collected(self, log: EpochLog, writer: LogWriter) -> None:
        publish(writer, covers(0), [0])
        write_part(writer, covers(1), [99])
        write_part(writer, covers(0), [98])
        assert len(log.store.part_names()) == 3
        log.take_over("the next run")
        assert len(log.store.part_names()) == 1
        assert rows(log) == {0: [0]}

    def test_what_other_attempts_of_an_epoch_left_goes_when_it_is_published(
        self, log: EpochLog, writer: LogWriter
    ) -> None:
        write_part(writer, covers(0), [99])  # a task that was run twice
        publish(writer, covers(0), [0])
        assert len(log.store.part_names()) == 1

    # -- bad input

    def test_a_log_that_is_not_there(self, url: str) -> None:
        with pytest.raises(LogNotFound, match=r"there is no epoch log at .* start the query that writes it"):
            EpochLog.open(url)

    def test_epochs_that_are_not_there(self, log: EpochLog, writer: LogWriter) -> None:
        publish(writer, covers(3), [3])
        with pytest.raises(PipelineError, match=r"epochs 0 to 3 were asked for, but the log holds epochs 3 to 3"):
            list(log.manifests(Epoch(-1), Epoch(3)))

    def test_a_name_that_no_backend_could_store(self, url: str) -> None:
        with pytest.raises(PipelineError, match=r"'a/b' cannot be the name of a log: use letters"):
            EpochLog.create(url, SCHEMA, name="a/b")

    def test_a_newer_format_is_refused_politely(self, url: str, store: LogStore) -> None:
        store.put("log", seal({"format": 2, "surprise": True}))
        with pytest.raises(UnsupportedFormat, match=r"format version 2.*reads up to 1: upgrade Tidelock"):
            EpochLog.open(url)

    def test_a_newer_entry_is_refused_politely(self, log: EpochLog, writer: LogWriter) -> None:
        publish(writer, covers(0), [0])
        log.store.publish(writer.token, covers(1), seal({"format": 7}))
        with pytest.raises(UnsupportedFormat, match="manifest of epoch 1 has format version 7"):
            log.manifest(covers(1))
        assert log.manifest(covers(0)).rows == 1

    def test_a_whole_document_with_other_fields_is_damage(self, url: str, store: LogStore) -> None:
        store.put("log", seal({"surprise": True}))
        with pytest.raises(LogCorrupt, match="the log's header lacks what format version 1 has"):
            EpochLog.open(url)

    def test_a_damaged_cursor_counts_as_nothing_read(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(3):
            publish(writer, covers(n), [n])
        log.store.put("cursor/c", b"{torn")
        assert log.cursors() == {"c": -1}
        assert writer.truncate() == ()

    def test_damage_is_named_and_the_rest_stays_readable(self, log: EpochLog, writer: LogWriter) -> None:
        for n in range(3):
            publish(writer, covers(n), [n])
        lost = log.manifest(covers(1)).parts[0]
        log.store.remove_parts([lost.file])
        with pytest.raises(LogCorrupt, match=rf"{log.url}: part {lost.file} of epoch 1 is missing"):
            list(log.read_part(covers(1), lost))
        verdicts = {r.last: isinstance(v, LogCorrupt) for r, v in log.verify()}
        assert verdicts == {0: False, 1: True, 2: False}

    @pytest.fixture(autouse=True)
    def _no_children_stay(self) -> Iterator[None]:
        yield
        assert not multiprocessing.active_children()
