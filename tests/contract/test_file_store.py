"""The file store keeps the contract, and shows every kind of damage to a directory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelock.epochs import Epoch
from tidelock.errors import BackendUnavailable, LogCorrupt, PipelineError
from tidelock.log import EpochLog, LogWriter, open_store
from tidelock.testing.contracts.logs import LogStoreContract
from tidelock.testing.logs import SCHEMA, covers, publish, rows


class TestFileStore(LogStoreContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"file:{tmp_path}/log"


@pytest.fixture
def writer(tmp_path: Path) -> LogWriter:
    log = EpochLog.create(f"file:{tmp_path}/log", SCHEMA)
    writer = log.take_over("the test")
    for n in range(3):
        publish(writer, covers(n), [n, n, n])
    return writer


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 0x10
    file.write_bytes(data)


def files(writer: LogWriter, kind: str) -> list[Path]:
    return sorted((Path(writer.log.store.root) / kind).iterdir())


@pytest.mark.parametrize("place", [0, 10, 200, -12, -1])
def test_every_flipped_bit_of_a_manifest_is_noticed(writer: LogWriter, place: int) -> None:
    flip(files(writer, "entries")[1], place)
    with pytest.raises(LogCorrupt, match="the manifest of epoch 1 is torn or damaged"):
        writer.log.manifest(covers(1))
    assert writer.log.manifest(covers(2)).rows == 3


@pytest.mark.parametrize("size", [0, 1, 100, -1])
def test_a_torn_manifest_is_noticed(writer: LogWriter, size: int) -> None:
    file = files(writer, "entries")[1]
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(LogCorrupt, match="the manifest of epoch 1 is torn or damaged"):
        writer.log.manifest(covers(1))


def test_a_missing_manifest_in_the_middle_is_noticed(writer: LogWriter) -> None:
    files(writer, "entries")[1].unlink()
    with pytest.raises(LogCorrupt, match="has lost the manifest of epoch 1, although later epochs are there"):
        writer.log.ranges()


def test_a_manifest_of_another_log_is_noticed(writer: LogWriter, tmp_path: Path) -> None:
    other = EpochLog.create(f"file:{tmp_path}/other", SCHEMA).take_over("the test")
    publish(other, covers(0), [0])
    files(writer, "entries")[0].write_bytes(files(other, "entries")[0].read_bytes())
    with pytest.raises(LogCorrupt, match="belongs to another log or epoch"):
        writer.log.manifest(covers(0))


@pytest.mark.parametrize("place", [0, 8, 300, -1])
def test_every_flipped_bit_of_a_part_is_noticed(writer: LogWriter, place: int) -> None:
    part = writer.log.manifest(covers(1)).parts[0]
    flip(Path(writer.log.store.root) / "parts" / part.file, place)
    with pytest.raises(LogCorrupt, match=f"part {part.file} of epoch 1 is damaged"):
        list(writer.log.read_part(covers(1), part))
    assert [r.last for r, verdict in writer.log.verify() if isinstance(verdict, LogCorrupt)] == [1]


def test_a_torn_part_is_noticed(writer: LogWriter) -> None:
    part = writer.log.manifest(covers(1)).parts[0]
    file = Path(writer.log.store.root) / "parts" / part.file
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(LogCorrupt, match=rf"has {part.bytes - 7} bytes, not the {part.bytes} that were published"):
        list(writer.log.read_part(covers(1), part))


def test_a_damaged_header_or_lease_is_named(writer: LogWriter) -> None:
    root = Path(writer.log.store.root)
    flip(root / "lease.json", 5)
    with pytest.raises(LogCorrupt, match=r"the lease in .*lease\.json is torn or damaged"):
        writer.log.take_over("again")
    flip(root / "log.json", 5)
    with pytest.raises(LogCorrupt, match="the log's header is torn or damaged"):
        EpochLog.open(writer.log.url)


def test_strangers_in_the_directory_do_not_matter(writer: LogWriter) -> None:
    root = Path(writer.log.store.root)
    (root / "entries" / "notes.txt").write_text("a stranger")
    (root / "entries" / ".000-000.json.dead").write_text("never renamed")
    assert rows(writer.log) == {0: [0] * 3, 1: [1] * 3, 2: [2] * 3}
    writer.log.take_over("again")
    assert not (root / "entries" / ".000-000.json.dead").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(BackendUnavailable, match=r"file/log: the directory cannot be written"):
        EpochLog.create(f"file:{tmp_path}/file/log", SCHEMA)


@pytest.mark.parametrize(
    ("lost", "read"),
    [
        ("log.json", lambda log: EpochLog.open(log.url)),
        ("entries", lambda log: log.ranges()),
        ("entries/000000000001-000000000001.json", lambda log: log.manifest(covers(1))),
        ("parts", lambda log: log.store.part_names()),
        ("parts/*", lambda log: list(log.read_part(covers(1), log.manifest(covers(1)).parts[0]))),
        ("cursor", lambda log: log.cursors()),
        ("cursor/reader.json", lambda log: log.cursors()),
        ("lease.json", lambda log: log.take_over("again")),
    ],
)
def test_what_cannot_be_read_is_named_and_may_be_asked_again(
    writer: LogWriter, lost: str, read: Callable[[EpochLog], object]
) -> None:
    log, root = writer.log, Path(writer.log.store.root)
    log.move_cursor("reader", Epoch(0))
    part = log.manifest(covers(1)).parts[0].file
    file = root / lost.replace("*", part)
    aside = file.rename(root / "aside")
    file.symlink_to(file)  # whoever opens it goes round in circles
    with pytest.raises(BackendUnavailable, match=rf"{re.escape(str(file))} cannot be read \(Too many levels"):
        read(log)
    file.unlink()
    aside.rename(file)
    read(log)


@pytest.mark.parametrize("url", ["file://host/path", "file:", "gopher:/x", "s3://bucket/log"])
def test_urls_that_mean_nothing(url: str) -> None:
    with pytest.raises(PipelineError, match=r"file:"):
        open_store(url)


def test_a_relative_path_means_the_same_from_everywhere(
    writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = writer.log.store.root
    monkeypatch.chdir(root.parent)
    relative = EpochLog.open("log")
    monkeypatch.chdir("/")
    assert rows(EpochLog.open(relative.url))[0] == [0] * 3


def test_a_plain_path_and_all_spellings_mean_the_same(writer: LogWriter) -> None:
    root = writer.log.store.root
    for url in (str(root), f"file:{root}", f"file://{root}", f"file://localhost{root}"):
        assert rows(EpochLog.open(url))[0] == [0] * 3
