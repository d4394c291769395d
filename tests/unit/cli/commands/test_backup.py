"""`tidelock backup`: one pass, and how far behind the copy is."""

import json
from pathlib import Path

import pytest
from tests.unit.backup.backup_job import Job
from tests.unit.cli.homes import make_home

from tidelock.cli import main
from tidelock.home.home import Home


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job that has come to epoch 3."""
    job = Job(Home(tmp_path / "home"))
    job.run_to(3)
    return job


def ask(job: Job, *options: str) -> int:
    return main(["backup", "--home", str(job.home.root), *options])


def test_one_pass_is_told_to_people(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(job, "--to", f"{tmp_path}/copy") == 0
    text = capsys.readouterr().out
    assert f"copied  to {tmp_path}/copy: " in text
    assert ["counts", "3"] in [line.split() for line in text.splitlines()]


def test_one_pass_is_told_to_machines(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(job, "--to", f"{tmp_path}/copy", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["url"] == f"{tmp_path}/copy"
    assert answer["copied"] == {"words": 3, "counts": 3, "report": 3}
    assert answer["bytes"] > 0


def test_the_gap_is_told(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(job, "--to", f"{tmp_path}/copy") == 0
    job.run("words")
    capsys.readouterr()
    assert ask(job, "--status") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["backup", f"{tmp_path}/copy"] in rows
    assert next(row for row in rows if row[:1] == ["words"])[1:4] == ["4", "3", "1"]
    assert ["counts", "3", "3", "-", "-"] in rows
    assert ask(job, "--status", "--json") == 0
    assert json.loads(capsys.readouterr().out)["segments"]["words"]["behind"] == 1


def test_a_target_that_does_not_work_is_one_line_and_remembered(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no directory")
    assert ask(job, "--to", f"{tmp_path}/file/copy") == 2
    told = capsys.readouterr().err
    assert told.startswith(f"tidelock: the backup at {tmp_path}/file/copy does not work")
    assert told.count("\n") == 1
    assert ask(job, "--status") == 1
    assert "the last pass failed: BackendUnavailable" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["--to copy", "--status"])
@pytest.mark.parametrize("home", ["file", "nowhere"])
def test_what_is_no_home_is_told_and_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], home: str, what: str
) -> None:
    (tmp_path / "file").touch()
    assert main(["backup", "--home", f"{tmp_path}/{home}", *what.split()]) == 2
    assert "is not the home of a pipeline" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_home_without_a_backup_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = make_home(tmp_path / "home")
    assert main(["backup", "--home", str(home.root), "--status"]) == 2
    assert "has no backup" in capsys.readouterr().err


@pytest.mark.parametrize("options", ["", "--status --to x"])
def test_it_copies_or_tells(options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["backup", "--home", str(tmp_path), *options.split()])
    assert "--to" in capsys.readouterr().err
