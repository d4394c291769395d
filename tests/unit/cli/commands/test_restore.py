"""`tidelock restore`: a home from a copy, and what is told about it."""

import json
from pathlib import Path

import pytest
from tests.unit.backup.backup_job import COLUMNS, Job

from tidelock.backup.backup import Backup
from tidelock.cli import main
from tidelock.home.home import Home
from tidelock.log import EpochLog, open_store


@pytest.fixture
def copy(tmp_path: Path) -> str:
    """The copy of a job in which `words` is two epochs ahead of the others."""
    job = Job(Home(tmp_path / "home"))
    job.run_to(3)
    job.run("words", "words")
    Backup(job.home, f"{tmp_path}/copy").copy()
    return f"{tmp_path}/copy"


def test_people_are_told_where_everything_goes_on(
    copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["restore", "--backup", copy, "--home", f"{tmp_path}/new"]) == 0
    text = capsys.readouterr().out
    assert f"restored  in {tmp_path}/new; `tidelock run` goes on from there" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["words", "5", "5", "-", "-"] in rows
    assert ["report", "3", "3", "-", "-"] in rows
    assert "sink report goes on with epoch 4" in text
    Job(Home(tmp_path / "new")).run_to(6)


def test_machines_are_told_the_same(copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", "--backup", copy, "--home", f"{tmp_path}/new", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["home"] == f"{tmp_path}/new"
    assert answer["segments"]["words"]["restored"] == 5
    assert answer["segments"]["words"]["rolled_back"] == 0
    assert answer["sinks"] == {"report": 3}
    assert answer["damaged"] == []


def test_logs_are_restored_to_where_they_are_asked_to(copy: str, tmp_path: Path, redis_url: str) -> None:
    new = tmp_path / "new"
    assert main(["restore", "--backup", copy, "--home", str(new), "--log", f"words={redis_url}?timeout=2"]) == 0
    home = Home(new).as_recorded()
    assert home.log("words") == f"{redis_url}/words?timeout=2"
    assert home.log("counts") == f"file:{new}/logs/counts"
    again = Job(home)
    again.run_to(8)
    again.check(8)


def test_a_log_that_the_copy_does_not_have(copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", "--backup", copy, "--home", f"{tmp_path}/new", "--log", "word=file:/tmp"]) != 0
    assert "did you mean 'words'?" in capsys.readouterr().err
    assert not list((tmp_path / "new").glob("*"))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("--log foo://x", "no log store for 'foo://x/log'"),
        ("--home {}/file", "/file cannot be a home, file exists"),
        ("--home {}/file/new", "/file/new cannot be a home, not a directory"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: str, told: str
) -> None:
    (tmp_path / "file").touch()
    given = ["--backup", f"{tmp_path}/nothing", "--home", f"{tmp_path}/new", *asked.format(tmp_path).split()]
    assert main(["restore", *given]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_failed_restore_leaves_nothing_in_redis(copy: str, tmp_path: Path, redis_url: str) -> None:
    taken = EpochLog.create(f"{redis_url}/counts", COLUMNS)
    asked = ["restore", "--backup", copy, "--home", f"{tmp_path}/new", "--log", redis_url]
    assert main(asked) != 0
    assert open_store(f"{redis_url}/words").part_names() == []
    assert taken.ranges() == []


def test_damage_is_told(copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newest = max(Path(copy).rglob("*.arrow"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(b"torn")
    assert main(["restore", "--backup", copy, "--home", f"{tmp_path}/new"]) == 0
    assert "damaged  " in capsys.readouterr().out


def test_a_restore_counts_as_one_in_the_status(
    copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["restore", "--backup", copy, "--home", f"{tmp_path}/new"]) == 0
    assert [event["kind"] for event in Home(tmp_path / "new").events()] == ["restored"]


def test_what_is_there_is_not_overwritten(copy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", "--backup", copy, "--home", f"{tmp_path}/home"]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_no_copy_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", "--backup", f"{tmp_path}/nothing", "--home", f"{tmp_path}/new"]) == 2
    assert "holds no complete copy of a home" in capsys.readouterr().err
