"""The demo's processes, its view of a log, and its home."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelock.cli import main
from tidelock.cli.demo.children import Child, ChildFailed
from tidelock.cli.demo.progress import LogWatch
from tidelock.epochs import Epoch
from tidelock.log import LogWriter


def test_a_child_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    child = Child("word count", ["no such role"], tmp_path / "log.txt")
    child._process.wait(60)
    with pytest.raises(ChildFailed, match=r"word count \(pid \d+\) died: exit code 2") as failure:
        child.finished()
    assert "invalid choice: 'no such role'" in str(failure.value)
    assert str(tmp_path / "log.txt") in str(failure.value)
    child.kill()


def test_a_killed_child_is_gone_and_says_by_what(tmp_path: Path) -> None:
    child = Child("word count", ["words"], tmp_path / "log.txt")
    assert child.exit_code is None
    assert not child.finished()
    child.kill()
    assert child.exit_code == -signal.SIGKILL
    with pytest.raises(ChildFailed, match="died: signal SIGKILL"):
        child.finished()
    child.kill()


def test_a_watch_counts_rows_that_the_log_has_dropped(
    writer: LogWriter, publish_epoch: Callable[[int], None]
) -> None:
    watch = LogWatch(writer.log.url)
    watch.look()
    assert (watch.newest, watch.rows, watch.cursor) == (-1, 0, -1)
    for epoch in range(4):
        publish_epoch(epoch)
    watch.look()
    writer.log.move_cursor("counts", Epoch(2))
    writer.truncate()
    publish_epoch(4)
    watch.look()
    assert (watch.newest, watch.rows, watch.cursor) == (4, 5, 2)
    assert [covers.last for covers in watch.kept] == [3, 4]


def test_a_watch_waits_for_a_log_that_is_not_there(tmp_path: Path) -> None:
    watch = LogWatch(f"file:{tmp_path}/later")
    watch.look()
    assert (watch.newest, watch.kept) == (-1, ())


def test_a_home_that_is_in_use_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    assert main(["demo", "--home", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_no_java_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main(["demo", "--home", str(tmp_path / "home")]) == 2
    assert "Spark needs Java 17 or newer" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()
