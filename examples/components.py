"""Connected components of a growing graph, with a loop: nodes tell their neighbours the smallest name they know.

    tidelock run examples/components.py --home components --epochs 12

Every epoch brings some edges. What a node learns in one epoch it tells its neighbours, who hear it in the next
one: the messages go round through the feedback of `told`. When no news are left, nodes with the same label are
connected.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import tidelock

EDGES_PER_EPOCH, EPOCHS_WITH_EDGES, NODES = 4, 5, 30
RESULT = Path("components.sqlite")

pipeline = tidelock.Pipeline("components", epoch="1 second")


@pipeline.source
def edges(spark: SparkSession) -> DataFrame:
    """Edges between nodes, chosen by a hash; after some epochs no more come."""
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", EDGES_PER_EPOCH).load()
    few = numbers.where(F.col("value") < EDGES_PER_EPOCH * EPOCHS_WITH_EDGES)
    ends = [F.pmod(F.hash("value", F.lit(side)), F.lit(NODES)).cast("long") for side in (1, 2)]
    return few.select(ends[0].alias("a"), ends[1].alias("b"))


@pipeline.operator
def heard(edges: DataFrame, told: DataFrame) -> DataFrame:
    """What each node hears in this epoch: of new neighbours, and of the labels of old ones."""
    one = edges.selectExpr("a AS node", "b AS neighbour", "CAST(NULL AS LONG) AS label")
    other = edges.selectExpr("b AS node", "a AS neighbour", "CAST(NULL AS LONG) AS label")
    messages = told.where("node != to").selectExpr("to AS node", "CAST(NULL AS LONG) AS neighbour", "label")
    return one.union(other).union(messages)


@pipeline.operator
def told(heard: DataFrame) -> DataFrame:
    """What each node tells: its label to all neighbours when it got smaller, and to new ones. And to itself."""

    def tell(key: tuple[Any, ...], news: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        node = int(key[0])
        label, names = state.get if state.exists else (node, "")
        known = [int(name) for name in names.split()]
        rows = pd.concat(news)
        new = sorted(set(rows["neighbour"].dropna().astype(int)) - set(known))
        smallest = min([label, *rows["label"].dropna().astype(int)])
        hearers = [*known, *new] if smallest < label else new
        if smallest < label or not state.exists:
            hearers = [node, *hearers]
        state.update((smallest, " ".join(map(str, [*known, *new]))))
        yield pd.DataFrame({"node": node, "to": hearers, "label": smallest}, dtype="int64")

    told, state = "node long, to long, label long", "label long, names string"
    nodes = heard.groupBy("node")
    return nodes.applyInPandasWithState(tell, told, state, "append", GroupStateTimeout.NoTimeout)


pipeline.feedback("told", schema="node long, to long, label long")


@pipeline.sink
def labels(told: DataFrame, epoch: int) -> None:
    """Keep the newest label of every node, and the epoch, in one transaction: exactly once."""
    rows = [(row["node"], row["label"], epoch) for row in told.where("node = to").collect()]
    with sqlite3.connect(RESULT) as database:
        database.execute("CREATE TABLE IF NOT EXISTS labels (node PRIMARY KEY, label, epoch)")
        database.executemany("INSERT OR REPLACE INTO labels VALUES (?, ?, ?)", rows)
