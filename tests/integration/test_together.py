"""Several logs in one query: every batch takes the same epochs from all of them, also across restarts."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from pyspark.sql import functions as F
from tests.integration.streams import NOW, Place, failure, finish
from tests.waiting import eventually

import tidelock
from tidelock.errors import PipelineError


def feed(place: Place, name: str, epochs: range, rows: int = 3) -> None:
    place.feed(name, [[{"k": i, "side": name, "e": e} for i in range(rows)] for e in epochs])


def offsets(place: Place, name: str) -> list[list[int]]:
    """The epochs at which each batch of a query ends, one number per source, from Spark's own offset log."""
    files = sorted((f for f in Path(place.checkpoint(name), "offsets").glob("[0-9]*")), key=lambda f: int(f.name))
    return [[json.loads(line)["epoch"] for line in f.read_text().splitlines()[2:]] for f in files]


def together(place: Place, *names: str, **more: object) -> list:
    return tidelock.read_logs(place.spark, [place.url(n) for n in names], consumer="both", **more)


def test_a_union_takes_what_both_have(place: Place) -> None:
    feed(place, "left", range(5))
    feed(place, "right", range(3))
    place.write(place.input("left"), "left")
    place.write(place.input("right"), "right")
    left, right = together(place, "left", "right")
    place.write(left.union(right), "out")
    assert offsets(place, "out") == [[0, 0], [1, 1], [2, 2]]
    assert [len(rows) for rows in place.rows("out").values()] == [6, 6, 6]
    assert place.log("left").cursors() == place.log("right").cursors() == {"both": 2}
    feed(place, "right", range(3, 6))
    place.write(place.input("right"), "right")
    left, right = together(place, "left", "right")
    place.write(left.union(right), "out")
    assert offsets(place, "out")[3:] == [[3, 3], [4, 4]]


def test_a_join_sees_both_sides_of_an_epoch_in_one_batch(place: Place) -> None:
    for name in ("left", "right"):
        feed(place, name, range(4))
        place.write(place.input(name), name)
    left, right = together(place, "left", "right")
    joined = left.alias("l").join(right.alias("r"), F.expr("l.k = r.k and l.e = r.e")).select("l.k", "l.e")
    place.write(joined, "out")
    assert place.rows("out") == {e: [(k, e) for k in range(3)] for e in range(4)}


def test_entries_of_different_lengths_meet_at_common_boundaries(place: Place) -> None:
    feed(place, "left", range(6))
    place.write(place.input("left"), "left")
    place.write(place.read("left", epochs_per_batch=2), "pairs")
    place.write(place.read("left", epochs_per_batch=3), "triples")
    pairs, triples = together(place, "pairs", "triples")
    place.write(pairs.union(triples), "out")
    assert [str(r) for r in place.log("out").ranges()] == ["0-5"]
    assert len(place.rows("out")[5]) == 36


def test_inputs_of_different_paces_never_part_while_everything_runs(place: Place) -> None:
    """Both inputs grow at random while the query runs, is stopped and started again."""
    rng = random.Random(7)
    for name in ("left", "right"):
        feed(place, name, range(1))
        place.write(place.input(name), name)

    def start() -> object:
        left, right = together(place, "left", "right")
        return tidelock.write_log(left.union(right), place.url("out"), checkpoint=place.checkpoint("out"))

    done = {"left": 1, "right": 1}
    for _ in range(3):
        query = start()
        for _ in range(3):
            name = rng.choice(["left", "right"])
            grown = rng.randint(1, 2)
            feed(place, name, range(done[name], done[name] + grown))
            done[name] += grown
            place.write(place.input(name), name)
        query.stop()
        assert query.exception() is None
    query = start()
    newest = min(done.values()) - 1
    eventually(lambda: [r.last for r in place.log("out").ranges()][-1:] == [newest], f"epoch {newest} of both")
    query.stop()
    ends = offsets(place, "out")
    assert all(left == right for left, right in ends)
    rows = place.rows("out")
    assert {e: len(r) for e, r in rows.items()} == dict.fromkeys(range(newest + 1), 6)
    assert all({row[2] for row in found} == {epoch} for epoch, found in rows.items())


def test_a_new_reader_of_logs_that_begin_differently_starts_where_both_are_whole(place: Place) -> None:
    for name in ("left", "right"):
        feed(place, name, range(4))
        place.write(place.input(name), name)
    place.log("left").move_cursor("other", 1)
    feed(place, "left", range(4, 5))
    place.write(place.input("left"), "left")
    assert place.log("left").ranges()[0].first == 2
    left, right = together(place, "left", "right")
    place.write(left.union(right), "out")
    assert [str(r) for r in place.log("out").ranges()] == ["2", "3"]
    assert [len(rows) for rows in place.rows("out").values()] == [6, 6]


def test_what_cannot_be_read_together_is_told(place: Place) -> None:
    feed(place, "left", range(1))
    place.write(place.input("left"), "left")
    with pytest.raises(PipelineError, match="logs that are read together need a name"):
        tidelock.read_logs(place.spark, [place.url("left"), place.url("right")])
    with pytest.raises(PipelineError, match="a log stands twice in read_logs"):
        together(place, "left", "left")


def test_streams_of_one_group_that_are_used_apart_are_told(place: Place) -> None:
    for name in ("left", "right"):
        feed(place, name, range(2))
        place.write(place.input(name), name)
    left, _ = together(place, "left", "right")
    query = tidelock.write_log(left, place.url("out"), checkpoint=place.checkpoint("out"), trigger=NOW)
    assert "read them with one call of tidelock.read_logs" in failure(query)


def test_a_stream_may_be_used_twice(place: Place) -> None:
    feed(place, "left", range(3))
    place.write(place.input("left"), "left")
    stream = place.read("left", consumer="c")
    place.write(stream.where("k = 0").union(stream.where("k = 1")), "out")
    assert place.rows("out") == {e: [(0, "left", e), (1, "left", e)] for e in range(3)}
    finish(place.write(stream.where("k = 0").union(stream.where("k = 1")), "out"))
