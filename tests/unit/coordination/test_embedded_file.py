"""The SQLite file: busy, full, damaged, foreign, newer, replaced."""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelock.coordination import EmbeddedTree, EventKind, SessionExpired
from tidelock.coordination.embedded import schema
from tidelock.coordination.embedded.database import Database
from tidelock.errors import (
    BackendUnavailable,
    InternalError,
    LogCorrupt,
    PipelineError,
    UnsupportedFormat,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tree.db"


def in_sqlite(file: Path, *statements: str) -> list[object]:
    """Run statements on the file as a stranger would."""
    connection = sqlite3.connect(file, isolation_level=None)
    results = [connection.execute(statement).fetchone() for statement in statements]
    connection.close()
    return results


def test_a_locked_file_is_worth_a_retry(file: Path) -> None:
    with EmbeddedTree(file, busy_timeout=0.05) as tree:
        blocker = sqlite3.connect(file, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendUnavailable, match="locked by another process"):
            tree.create("/n")
        assert tree.find("/n") is None  # reading is not blocked
        with pytest.raises(BackendUnavailable, match=r"tree\.db"):
            EmbeddedTree(file, busy_timeout=0.05)
        blocker.execute("ROLLBACK")
        blocker.close()
        tree.create("/n")


def test_a_new_file_that_others_are_preparing_is_waited_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
    attempts, prepare = iter([busy, busy]), schema._use_write_ahead_log

    def contended(connection: sqlite3.Connection, path: Path) -> None:
        for attempt in attempts:
            raise attempt
        prepare(connection, path)

    monkeypatch.setattr(schema, "_use_write_ahead_log", contended)
    with EmbeddedTree(file) as tree:
        assert tree.children("/") == []


def test_a_full_disk_changes_nothing(file: Path) -> None:
    with EmbeddedTree(file) as tree:
        tree.create("/n", b"old")
        with tree._database.read() as rows:
            rows.execute("PRAGMA max_page_count = 1")
        with pytest.raises(BackendUnavailable, match="check free space"):
            tree.set("/n", bytes(500_000))
        with tree._database.read() as rows:
            rows.execute("PRAGMA max_page_count = 100000")
        assert tree.get("/n").data == b"old"
        assert tree.set("/n", bytes(500_000)) == 1


def test_a_place_that_cannot_hold_a_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("not a folder")
    with pytest.raises(BackendUnavailable, match="check the folder"):
        EmbeddedTree(tmp_path / "plain" / "tree.db")
    with pytest.raises(PipelineError, match="is a folder"):
        EmbeddedTree(tmp_path)


def test_a_file_that_is_no_database(file: Path) -> None:
    file.write_bytes(b"this is not a database" * 1000)
    with pytest.raises(LogCorrupt, match=r"tree\.db is damaged"):
        EmbeddedTree(file)


def test_a_damaged_file(file: Path) -> None:
    with EmbeddedTree(file) as tree:
        for number in range(200):
            tree.create(f"/n{number}", bytes(200))
    content = bytearray(file.read_bytes())  # safe: nothing of this process has it open
    content[4096:] = b"\xa5" * (len(content) - 4096)
    file.write_bytes(content)
    with pytest.raises(LogCorrupt, match=r"tree\.db is damaged"):
        EmbeddedTree(file)


def test_a_file_without_its_tables(file: Path) -> None:
    EmbeddedTree(file).close()
    in_sqlite(file, "DROP TABLE nodes")
    with EmbeddedTree(file) as tree, pytest.raises(LogCorrupt, match="no such table"):
        tree.find("/n")


def test_a_newer_format(file: Path) -> None:
    EmbeddedTree(file).close()
    in_sqlite(file, "PRAGMA user_version = 99")
    with pytest.raises(UnsupportedFormat, match="format 99"):
        EmbeddedTree(file)


def test_the_database_of_another_application_is_left_alone(file: Path) -> None:
    in_sqlite(file, "CREATE TABLE theirs (x)")
    with pytest.raises(PipelineError, match="another application"):
        EmbeddedTree(file)
    assert in_sqlite(file, "PRAGMA journal_mode") == [("delete",)]


@pytest.mark.parametrize("replace", [False, True])
def test_a_removed_or_replaced_file_is_not_used_on(file: Path, replace: bool) -> None:
    with EmbeddedTree(file) as tree:
        file.unlink()
        if replace:
            file.touch()
        with pytest.raises(LogCorrupt, match="removed or replaced"):
            tree.create("/n")
        with pytest.raises(LogCorrupt, match="removed or replaced"):
            tree.find("/n")


def test_a_tree_outlives_its_clients(file: Path) -> None:
    with EmbeddedTree(file) as tree:
        tree.create("/n", b"data")
        created = tree.get("/n").created
        tree.delete("/n")
    with EmbeddedTree(file) as tree:
        tree.create("/n")
        assert tree.get("/n").created > created


def test_a_failed_transaction_is_undone(file: Path) -> None:
    database = Database(file, busy_timeout=1.0)
    with pytest.raises(ZeroDivisionError), database.write() as rows:
        rows.execute("UPDATE nodes SET version = 7")
        _ = 1 / 0
    with database.read() as rows:
        assert rows.execute("SELECT version FROM nodes").fetchall() == [(0,)]
    database.close()


def test_our_own_mistakes_are_called_so(file: Path) -> None:
    database = Database(file, busy_timeout=1.0)
    with pytest.raises(InternalError, match="report it"), database.write() as rows:
        rows.execute("INSERT INTO nodes (path, data) VALUES ('/', x'')")
    database.close()
    with pytest.raises(SessionExpired), database.read():
        pass


def test_watches_survive_a_failure_of_the_file(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelock.coordination.embedded.watches._PAUSE_AFTER_FAILURE", 0.001)
    created, failures = threading.Event(), iter([BackendUnavailable("busy")] * 2)

    def failing(look: Callable[[], int]) -> int:
        for failure in failures:
            raise failure
        return look()

    with EmbeddedTree(file) as tree:
        sights = tree._watcher._database
        look = sights.data_version
        monkeypatch.setattr(sights, "data_version", lambda: failing(look))
        with caplog.at_level(logging.WARNING):
            tree.watch("/n", lambda e: created.set() if e.kind is EventKind.CREATED else None)
            tree.create("/n")
            assert created.wait(20)
    assert "watches on" in caplog.text


def test_own_changes_do_not_wait_for_the_next_poll(file: Path) -> None:
    seen: queue.Queue[EventKind] = queue.Queue()
    with EmbeddedTree(file, poll_interval=3600) as tree:
        with tree.watch("/n", lambda event: seen.put(event.kind)):
            tree.create("/n")
            assert seen.get(timeout=20) is EventKind.CREATED
        assert tree._watcher._on() == []


def test_a_node_that_came_and_went_between_two_looks(file: Path) -> None:
    seen: queue.Queue[EventKind] = queue.Queue()
    with EmbeddedTree(file, poll_interval=3600) as tree, EmbeddedTree(file) as other:
        other.create("/a")
        for path in ("/n", "/a/b/n"):
            with tree.watch(path, lambda event: seen.put(event.kind)):
                other.create(path, make_parents=True)
                other.delete(path)
                tree._watcher.wake()
                assert seen.get(timeout=20) is EventKind.DELETED
