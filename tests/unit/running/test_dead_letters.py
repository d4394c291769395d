"""Setting an epoch aside: copied first, hidden then, and the same when it is done again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tidelock.log import EpochLog
from tidelock.log.entry import Manifest
from tidelock.log.sealed import seal
from tidelock.running.dead_letters import set_aside
from tidelock.testing.logs import SCHEMA, back, covers, publish


def test_an_epoch_is_copied_once_and_hidden_from_one_consumer(tmp_path: Path) -> None:
    log = EpochLog.create(f"file:{tmp_path}/words", SCHEMA)
    writer = log.take_over("test")
    for epoch in range(4):
        publish(writer, covers(epoch), [epoch * 10, epoch * 10 + 1])
    dead = f"file:{tmp_path}/dead"
    for _ in range(2):  # a crash after it, before the segment went on
        assert set_aside(log, "counts", covers(2), dead) == 2
    set_aside(log, "counts", covers(3), dead)
    found = list(EpochLog.open(dead).verify())
    assert [entry[0] for entry in found] == [covers(0), covers(1)], "dead letters have a count of their own"
    assert [entry[1].inputs[0].covers for entry in found] == [covers(2), covers(3)]
    assert [entry[1].rows for entry in found] == [2, 2]
    assert log.is_set_aside("counts", log.manifest(covers(2)))
    assert not log.is_set_aside("counts", log.manifest(covers(1)))
    assert not log.is_set_aside("others", log.manifest(covers(2))), "the others still see it"


def letters(dead: str) -> list[list[int]]:
    log = EpochLog.open(dead)
    return [
        sorted(
            n
            for part in log.manifest(one).parts
            for batch in log.read_part(one, part)
            for n in batch.column("n").to_pylist()
        )
        for one in log.ranges()
    ]


def test_an_epoch_that_is_made_again_and_is_poison_again(tmp_path: Path) -> None:
    log = EpochLog.create(f"file:{tmp_path}/words", SCHEMA)
    dead = f"file:{tmp_path}/dead"
    publish(log.take_over("first"), covers(0), [1, 2])
    old = log.manifest(covers(0))
    for _ in range(2):
        assert set_aside(log, "counts", covers(0), dead) == 2

    back(log, -1)
    publish(log.take_over("second"), covers(0), [3])
    assert not log.is_set_aside("counts", log.manifest(covers(0))), "these rows may be good"
    for _ in range(2):
        assert set_aside(log, "counts", covers(0), dead) == 1
    assert log.is_set_aside("counts", log.manifest(covers(0)))
    assert letters(dead) == [[1, 2], [3]], "both are kept, each once"
    copies = [EpochLog.open(dead).manifest(covers(n)) for n in range(2)]
    assert [copy.inputs[0].covers for copy in copies] == [covers(0)] * 2
    told = [copy.copy_of for copy in copies]
    assert [one and one["entry"] for one in told] == [old.digest, log.manifest(covers(0)).digest]
    assert [one and one["published_at"] for one in told] == [
        old.published_at,
        log.manifest(covers(0)).published_at,
    ]

    back(log, -1)
    publish(log.take_over("third"), covers(0), [3])
    set_aside(log, "counts", covers(0), dead)
    assert letters(dead) == [[1, 2], [3]], "the same work with the same rows is the same letter"


def test_letters_and_notes_of_release_0_1_0(tmp_path: Path) -> None:
    """Letters that do not say of which entry they are copies, and notes that name the epochs alone."""
    log = EpochLog.create(f"file:{tmp_path}/words", SCHEMA)
    dead = f"file:{tmp_path}/dead"
    publish(log.take_over("first"), covers(0), [1, 2])
    set_aside(log, "counts", covers(0), dead)
    letter = Path(f"{tmp_path}/dead/entries")
    (file,) = [path for path in letter.iterdir() if not path.name.startswith(".")]
    file.write_bytes(replace(Manifest.decode(file.read_bytes(), "it"), copy_of=None).encode())
    log.store.put("aside/counts-0", seal({"covers": "0"}))
    assert log.is_set_aside("counts", log.manifest(covers(0)))
    set_aside(log, "counts", covers(0), dead)
    assert letters(dead) == [[1, 2]]
    back(log, -1)
    publish(log.take_over("second"), covers(0), [3])
    set_aside(log, "counts", covers(0), dead)
    assert letters(dead) == [[1, 2], [3]]
