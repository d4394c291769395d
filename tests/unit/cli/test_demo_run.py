"""The demo's process, its view of a home, and what it refuses."""

import os
import signal
from pathlib import Path

import pytest

from tidelock.cli import main
from tidelock.cli.demo.children import Child, ChildFailed
from tidelock.cli.demo.progress import DemoSegment, DemoWatch
from tidelock.cli.demo.settings import Settings
from tidelock.cli.demo.story import PIPELINE
from tidelock.home.home import Home


def sleeper(folder: Path, first: str = "") -> Child:
    """A process that is busy loading a pipeline for a minute."""
    (folder / "slow.py").write_text(f"import time\n{first}\ntime.sleep(60)\n")
    return Child(["run", str(folder / "slow.py")], folder / "log.txt", os.environ)


def test_a_child_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    child = Child(["run", str(tmp_path / "no such file.py")], tmp_path / "log.txt", os.environ)
    child._process.wait(60)
    with pytest.raises(ChildFailed, match=r"the pipeline \(pid \d+\) died: exit code 2") as failure:
        child.finished()
    assert "there is no file" in str(failure.value)
    assert str(tmp_path / "log.txt") in str(failure.value)
    child.see_off()


def test_a_killed_child_is_gone_and_says_by_what(tmp_path: Path) -> None:
    child = sleeper(tmp_path)
    assert child.exit_code is None
    assert not child.finished()
    child.kill()
    assert child.exit_code == -signal.SIGKILL
    with pytest.raises(ChildFailed, match="died: signal SIGKILL"):
        child.finished()
    child.kill()


def test_a_child_on_the_leash_ends_when_the_leash_does(tmp_path: Path) -> None:
    child = sleeper(tmp_path, "from tidelock.cli.demo import leash\nleash.put_on()")
    child._stdin.close()
    child._process.wait(60)
    assert child.exit_code == -signal.SIGKILL
    child.kill()


def test_a_status_of_an_earlier_run_is_no_status(tmp_path: Path) -> None:
    home = Home(tmp_path)
    watch = DemoWatch(home)
    assert watch.status(since=0.0) is None
    home.put_document("status", {"at": 10.0, "segments": []})
    assert watch.status(since=9.0) is not None
    assert watch.status(since=11.0) is None


def test_every_event_is_news_once(tmp_path: Path) -> None:
    home = Home(tmp_path)
    watch = DemoWatch(home)
    assert watch.news() == []
    home.add_event({"kind": "run started"})
    home.add_event({"kind": "task retry"})
    assert [event["kind"] for event in watch.news()] == ["run started", "task retry"]
    home.add_event({"kind": "run ended"})
    assert [event["kind"] for event in watch.news()] == ["run ended"]


def test_what_a_segment_has_done_is_not_forgotten_while_it_starts_again() -> None:
    segment = DemoSegment("counts", ("counts",), epochs=7)
    segment.take({"state": "starting", "lag": 0, "epoch": -1, "restarts": 0})
    assert (segment.state, segment.epochs) == ("starting", 7)


def test_the_settings_reach_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(tmp_path, epochs=8, rows=200, seed=-5)
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    assert Settings.from_environment() == settings


def test_the_pipeline_alone_says_where_it_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(PIPELINE)]) == 2
    assert "run it with `tidelock demo`" in capsys.readouterr().err


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
