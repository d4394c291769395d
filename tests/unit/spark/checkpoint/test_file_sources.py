"""What is forgotten of what a file source has listed, so that it lists it again for the same epochs."""

import json
from pathlib import Path

import pytest
from tests.unit.spark.checkpoint.test_checkpoint import commit

from tidelock.spark.checkpoint.checkpoint import Checkpoint


def step(checkpoint: Path, number: int, *files: Path, source: int = 0, suffix: str = "") -> Path:
    """A step of a file source as Spark 4.3 writes it."""
    folder = checkpoint / "sources" / str(source)
    folder.mkdir(parents=True, exist_ok=True)
    entries = [json.dumps({"path": file.as_uri(), "timestamp": 1, "batchId": number}) for file in files]
    written = folder / f"{number}{suffix}"
    written.write_text("\n".join(["v1", *entries]))
    (folder / f".{number}{suffix}.crc").write_bytes(b"crc")
    return written


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"in put {number}#.csv" for number in range(4)]
    for file in found:
        file.touch()
    return found


def begin(checkpoint: Path) -> None:
    Checkpoint(None, str(checkpoint)).clear_beginning()


def left(checkpoint: Path, source: int = 0) -> list[str]:
    return sorted(file.name for file in (checkpoint / "sources" / str(source)).iterdir() if file.suffix != ".crc")


def test_what_no_batch_takes_is_forgotten_with_its_checksum(tmp_path: Path, files: list[Path]) -> None:
    home = tmp_path / "home"
    home.mkdir()
    commit(home, 0, 0, 0)
    commit(home, 1, 0, 0)
    for number, file in enumerate(files):
        step(home, number, file)
    begin(home)
    assert sorted(file.name for file in (home / "sources" / "0").iterdir()) == [".0.crc", ".1.crc", "0", "1"]


def test_a_batch_that_was_begun_keeps_what_it_takes(tmp_path: Path, files: list[Path]) -> None:
    home = tmp_path / "home"
    home.mkdir()
    commit(home, 0, 0, 0)
    (home / "commits" / "0").unlink()
    step(home, 0, files[0])
    begin(home)
    assert left(home) == ["0"]


def test_without_a_batch_all_is_listed_again(tmp_path: Path, files: list[Path]) -> None:
    step(tmp_path / "home", 0, files[0])
    begin(tmp_path / "home")
    assert left(tmp_path / "home") == []


def test_a_file_that_is_gone_is_not_forgotten(tmp_path: Path, files: list[Path]) -> None:
    """Spark has to say that it is missing; listed again, its rows would be left out without a word."""
    step(tmp_path / "home", 0, files[0], files[1])
    step(tmp_path / "home", 1, files[2])
    files[1].unlink()
    begin(tmp_path / "home")
    assert left(tmp_path / "home") == ["0", "1"]


def test_steps_that_were_compacted_stay(tmp_path: Path, files: list[Path]) -> None:
    step(tmp_path / "home", 0, files[0])
    step(tmp_path / "home", 1, files[0], files[1], suffix=".compact")
    begin(tmp_path / "home")
    assert left(tmp_path / "home") == ["0", "1.compact"]


@pytest.mark.parametrize("text", ["v1\n1700000000", '{"topic":{"0":5}}', "0", "v1", 'v1\n{"path":"s3://b/k"}'])
def test_what_other_sources_keep_stays(tmp_path: Path, text: str) -> None:
    step(tmp_path / "home", 0).write_text(text)
    begin(tmp_path / "home")
    assert left(tmp_path / "home") == ["0"]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (['{"logOffset":0}', '{"logOffset":1}'], (["0"], ["0", "1"])),
        (['{"logOffset":1}', "-"], (["0", "1"], [])),
        (['{"logOffset":1}', '{"logOffset":1}'], (["0", "1"], ["0", "1"])),
        (['{"logOffset":0}', '{"logOffset":1}', '{"logOffset":1}'], (["0", "1"], ["0", "1"])),
    ],
)
def test_every_source_has_a_place_of_its_own(
    tmp_path: Path, files: list[Path], ends: list[str], expected: tuple[list[str], list[str]]
) -> None:
    """The last ones: a stream that stands twice in a plan has two lines and one place."""
    home = tmp_path / "home"
    home.mkdir()
    commit(home, 0, 0, 0)
    version, metadata, *_ = (home / "offsets" / "0").read_text().splitlines()
    (home / "offsets" / "0").write_text("\n".join([version, metadata, *ends]))
    for source in range(2):
        for number in range(3):
            step(home, number, files[number], source=source)
    begin(home)
    assert (left(home, 0), left(home, 1)) == expected
