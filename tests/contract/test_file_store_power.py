"""What a log in a directory has promised is there after a loss of power, at any moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.power_cut import Disk

from tidelock.epochs import Epoch
from tidelock.log import EpochLog, LogWriter, Retention
from tidelock.log.entry import Manifest
from tidelock.testing.logs import SCHEMA, covers, publish, rows


class Promises:
    """A log in folders that are not there yet, its writer, and what everybody has been told."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._root = root
        self._disk = disk
        self._cuts = 0
        url = f"file:{root}/not/there/yet/log"
        self.log = EpochLog.create(url, SCHEMA, retention=Retention(wait_for=frozenset({"a"})))
        self.writer: LogWriter = self.log.take_over("a run")
        self.entries: dict[int, list[int]] = {}
        self.cursors: dict[str, int] = {}
        self.aside: Manifest | None = None

    def publish(self) -> None:
        number = self.writer.window.tail + 1
        publish(self.writer, covers(number), [number])
        self.entries[number] = [number]

    def register(self, name: str) -> None:
        self.cursors[name] = self.log.register(name)

    def move(self, name: str, epoch: int) -> None:
        self.log.move_cursor(name, Epoch(epoch))
        self.cursors[name] = epoch

    def truncate(self) -> None:
        for entry in self.writer.truncate():
            del self.entries[entry.covers.last]

    def set_aside(self) -> None:
        self.aside = self.log.manifest(covers(2))
        self.log.set_aside("a", self.aside)

    def check(self) -> None:
        """Look at what a power cut would leave now."""
        self._cuts += 1
        left = self._disk.after_power_cut(self._root.parent / f"left {self._cuts}")
        log = EpochLog.open(f"file:{left}/not/there/yet/log")
        found = rows(log)
        assert found == self.entries
        cursors = log.cursors()
        assert cursors.keys() == self.cursors.keys(), "whom the log has to wait for"
        assert all(cursors[name] <= at for name, at in self.cursors.items()), (
            "nobody has finished more than it said"
        )
        assert self.aside is None or log.is_set_aside("a", self.aside)
        writer = log.take_over("the run after the power cut")
        writer.truncate()
        needed = min(self.cursors.values(), default=-1)
        assert {n: found[n] for n in found if n > needed} == {n: r for n, r in rows(log).items() if n > needed}


STEPS: list[Callable[[Promises], None]] = [
    lambda it: None,
    lambda it: it.publish(),
    lambda it: it.publish(),
    lambda it: it.publish(),
    lambda it: it.move("a", 1),
    lambda it: it.truncate(),
    lambda it: it.register("b"),
    lambda it: it.set_aside(),
    lambda it: it.move("a", 2),
    lambda it: it.publish(),
    lambda it: it.move("b", 3),
    lambda it: it.truncate(),
    lambda it: it.move("b", 2),
    lambda it: it.publish(),
]


def test_what_was_promised_survives_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    promises = Promises(root, Disk(root, monkeypatch))
    for step in STEPS:
        step(promises)
        promises.check()


def test_folders_that_somebody_else_has_just_made_are_synced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "disk"
    (root / "log" / "cursor").mkdir(parents=True)
    (root / "log" / "parts").mkdir()
    disk = Disk(root, monkeypatch)
    log = EpochLog.create(f"file:{root}/log", SCHEMA)
    publish(log.take_over("a run"), covers(0), [0])
    log.register("a")
    left = EpochLog.open(f"file:{disk.after_power_cut(tmp_path / 'left')}/log")
    assert (rows(left), left.cursors()) == ({0: [0]}, {"a": -1})
