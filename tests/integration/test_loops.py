"""A loop: what an operator gives in one epoch comes back in the next, also when it fails in between."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tests.integration import faults

from tidelock.home.home import Home
from tidelock.pipeline.loading import load
from tidelock.spark.sinks.functions import FunctionSink

EXAMPLE = Path(__file__).parents[2] / "examples" / "components.py"
EPOCHS, EDGES_PER_EPOCH, EDGES = 9, 4, 20

Row = tuple[int, int, int]


def simulated(edges: list[tuple[int, int]]) -> list[Counter[Row]]:
    """What the nodes tell in every epoch, without Spark."""
    known: dict[int, tuple[int, list[int]]] = {}
    told: list[Row] = []
    epochs = []
    for epoch in range(EPOCHS):
        fresh = edges[epoch * EDGES_PER_EPOCH : (epoch + 1) * EDGES_PER_EPOCH]
        heard: dict[int, tuple[set[int], list[int]]] = {}
        for one, other in [pair for a, b in fresh for pair in ((a, b), (b, a))]:
            heard.setdefault(one, (set(), []))[0].add(other)
        for node, to, label in told:
            if node != to:
                heard.setdefault(to, (set(), []))[1].append(label)
        told = [row for node, news in heard.items() for row in tell(known, node, *news)]
        epochs.append(Counter(told))
    return epochs


def tell(known: dict[int, tuple[int, list[int]]], node: int, neighbours: set[int], labels: list[int]) -> list[Row]:
    label, old = known.get(node, (node, []))
    new = sorted(neighbours - set(old))
    smallest = min([label, *labels])
    hearers = [*old, *new] if smallest < label else new
    if smallest < label or node not in known:
        hearers = [node, *hearers]
    known[node] = smallest, [*old, *new]
    return [(node, to, smallest) for to in hearers]


def test_a_loop_that_fails_loses_and_repeats_nothing(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = load(str(EXAMPLE))
    pipeline.epoch = "100 milliseconds"
    heard = pipeline.functions["heard"]

    def doomed(**inputs: DataFrame) -> DataFrame:
        stream = heard(**inputs)
        return faults.at_row(stream, 2, tmp_path / "fault", 4, faults.raising("in the loop"), column="node")

    delivered: dict[int, Counter[Row]] = {}

    def record(told: DataFrame, epoch: int) -> None:
        rows = Counter(tuple(row) for row in told.collect())
        assert delivered.setdefault(epoch, rows) == rows, "the same epoch has the same rows"

    pipeline.functions["heard"] = doomed
    pipeline.sinks["labels"] = lambda spark, home: FunctionSink(record)
    pipeline.run(spark, str(tmp_path / "home"), last_epoch=EPOCHS - 1)

    hashed = spark.range(EDGES).selectExpr("pmod(hash(id, 1), 30) AS a", "pmod(hash(id, 2), 30) AS b").collect()
    expected = simulated([(row["a"], row["b"]) for row in hashed])
    assert faults.happened(tmp_path / "fault") == 4
    assert [delivered[epoch] for epoch in range(EPOCHS)] == expected
    assert any(expected[-4:]), "news went round after the last edge had come"
    failed: list[dict[str, Any]] = [e for e in Home(tmp_path / "home").events() if e["kind"] == "segment failed"]
    assert [event["segment"] for event in failed] == ["told"]
    assert "ValueError: in the loop" in failed[0]["text"]
