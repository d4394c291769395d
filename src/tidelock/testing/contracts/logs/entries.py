"""Documents and entries: whole or not there, and the same for all who look."""

from __future__ import annotations

import pickle
from multiprocessing.queues import Queue

import pytest

from tidelock.errors import BackendUnavailable
from tidelock.log import EpochLog, LogWriter, WindowError
from tidelock.log.entry import Manifest
from tidelock.log.store import LogStore
from tidelock.testing.contracts.logs.base import SPAWN, LogFixtures
from tidelock.testing.logs import SCHEMA, covers, publish, rows, write_part


def create_log(url: str, done: Queue[str]) -> None:
    """What a child does: make the log, and tell its identity."""
    done.put(EpochLog.create(url, SCHEMA).header.id)


class EntriesContract(LogFixtures):
    """What is kept of a log."""

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
        done = SPAWN.Queue()
        children = [SPAWN.Process(target=create_log, args=(url, done)) for _ in range(3)]
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
