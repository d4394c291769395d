"""From a pipeline to its plan: measured on a sample, planned within a budget, run, and watched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.integration.streams import Place

import tidelock
from tidelock.home.home import Home
from tidelock.measuring.profiling import Number, history, profile
from tidelock.planning.document import read_model
from tidelock.preparing.planner import Planner

ROWS = 1000

pytestmark = pytest.mark.chaos


def numbers(spark: SparkSession) -> DataFrame:
    made = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("startTimestamp", 0)
    return made.load().select("value")


@pytest.fixture(scope="module")
def sinks() -> list[int]:
    return []


@pytest.fixture(scope="module")
def pipeline(sinks: list[int]) -> tidelock.Pipeline:
    pipeline = tidelock.Pipeline("measured", epoch="300 milliseconds")
    pipeline.source(numbers)

    @pipeline.operator(failure_rate=5)
    def even(numbers: DataFrame) -> DataFrame:
        return numbers.where("value % 2 = 0")

    @pipeline.operator
    def twice(even: DataFrame) -> DataFrame:
        return even.withColumn("copy", F.explode(F.array(F.lit(1), F.lit(2))))

    @pipeline.operator(mode="update", anchor=True)
    def counts(twice: DataFrame) -> DataFrame:
        return twice.groupBy((F.col("value") % 50).alias("key")).count()

    @pipeline.sink
    def store(counts: DataFrame, epoch: int) -> None:
        sinks.append(epoch)

    return pipeline


@pytest.fixture(scope="module")
def measured(
    pipeline: tidelock.Pipeline, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    known = {"twice": Number(0.25, "history: told by a test")}
    folder = tmp_path_factory.mktemp("profile")
    return profile(pipeline, spark, folder, epochs=2, failures=known, tell=lambda what: None)


def test_a_profile_has_what_the_operators_really_do(measured: dict[str, Any], sinks: list[int]) -> None:
    found = {operator["name"]: operator for operator in measured["operators"]}
    assert {name: one["selectivity"] for name, one in found.items()} == {
        "numbers": 1.0,
        "even": 0.5,
        "twice": 2.0,
        "counts": pytest.approx(25 / ROWS),
        "store": 0.0,
    }
    assert [name for name, one in found.items() if one["state_size"] > 0] == ["counts"]
    assert all(one["tuple_size"] >= 8 for one in found.values())
    # An epoch takes 300 ms, or longer where the machine is slow; single ones follow faster when it catches up.
    assert 0 < found["numbers"]["input_rate"] < 4 * ROWS / 0.3
    assert sinks == []


def test_a_profile_tells_where_every_number_comes_from(measured: dict[str, Any]) -> None:
    found = {operator["name"]: operator for operator in measured["operators"]}
    assert found["even"]["failure_rate"] == pytest.approx(5 / 86_400)
    assert found["even"]["provenance"]["failure_rate"].startswith("declared")
    assert (found["twice"]["failure_rate"], found["twice"]["provenance"]["failure_rate"]) == (
        0.25,
        "history: told by a test",
    )
    assert found["counts"]["provenance"]["failure_rate"].startswith("assumed")
    for operator in measured["operators"]:
        for name in ("selectivity", "processing_cost", "state_size", "tuple_size", "failure_rate"):
            assert operator["provenance"][name]
    for name in ("storage_cost", "log_read_cost", "state_load_cost", "segment_cost", "restart_cost", "baseline"):
        assert measured["provenance"][name]
    assert measured["segment_cost"] > 0
    assert measured["restart_cost"] > measured["segment_cost"]


def test_the_profile_of_a_pipeline_can_be_planned_with(
    measured: dict[str, Any], pipeline: tidelock.Pipeline, spark: SparkSession
) -> None:
    model = read_model(json.loads(json.dumps(measured)))
    planned = Planner.of(pipeline, spark).plan(model, 50.0)
    assert planned.overhead <= 50.0
    assert planned.costs.recovery > 0
    # Declared as an anchor: a cut in every plan. Whether the sink gets a segment of its own is up to the figures.
    assert "twice" in {cut.log for cut in planned.cutting.cuts}


def test_history_counts_the_failures_of_a_home(pipeline: tidelock.Pipeline, place: Place, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    pipeline.rehearsal().run(place.spark, home.root, last_epoch=0)
    (home.root / "events.jsonl").unlink()
    segment = next(s.name for s in home.known().segments if "even" in s.operators)
    for at, kind, text in (
        (1.0, "run started", ""),
        (2.0, "segment failed", "in epoch 1: in operator even: ValueError"),
        (3.0, "segment failed", "in epoch 2: in operator even: ValueError"),
        (101.0, "run ended", ""),
    ):
        home.add_event({"at": at, "kind": kind, "segment": segment, "text": text, "epoch": None})
    found = history(home)
    assert found["even"].value == pytest.approx(2 / 100)
    assert found["numbers"].value == 0


# -- the commands


PIPELINE = """
import tidelock

pipeline = tidelock.Pipeline("shop", epoch="200 milliseconds")

@pipeline.source
def orders(spark):
    made = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).option("startTimestamp", 0)
    return made.load().select("value")

@pipeline.operator
def checked(orders):
    return orders.where("value % 2 = 0")

@pipeline.operator
def priced(checked):
    return checked.selectExpr("value", "value * 2 AS price")

pipeline.files("priced")
"""


def attributes(rate: float) -> dict[str, Any]:
    """A profile under which a cut before `priced` is worth it, and one before `checked` is not."""

    def operator(name: str, inputs: list[str], **more: float) -> dict[str, Any]:
        cheap = {"selectivity": 1.0, "processing_cost": 1e-6, "state_size": 0, "tuple_size": 1, "failure_rate": 0}
        return {"name": name, "inputs": inputs, **cheap, **more}

    return {
        "input_rate": rate,
        "storage_cost": 1e-6,
        "segment_cost": 0.004,
        "restart_cost": 1.0,
        "scope": "segment",
        "head_frequency": 5.0,
        "max_frequency": 5.0,
        "operators": [
            operator("orders", [], input_rate=rate, tuple_size=0),
            operator("checked", ["orders"], selectivity=0.01, processing_cost=1e-3),
            operator("priced", ["checked"], processing_cost=1e-2, failure_rate=1.0),
            operator("priced_files", ["priced"], failure_rate=0.1),
        ],
    }


class Shop:
    """A directory with a pipeline's file and its attributes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(PIPELINE)
        (folder / "shop.topology.json").write_text(json.dumps(attributes(400.0)))

    def ask(self, *words: str, code: int = 0) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "tidelock", *words],
            cwd=self.folder,
            env={**os.environ},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, done.stderr[-3000:]
        return done.stderr if code else json.loads(done.stdout.splitlines()[-1])


@pytest.mark.chaos
def test_a_pipeline_is_planned_run_and_watched_within_a_budget(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    planned = shop.ask("plan", "shop.py", "--budget", "0.5", "--json", "--explain", "--compare")
    head, second = planned["segments"][:2]
    assert head["operators"] == ["orders", "checked"]
    assert planned["overhead"] <= 0.5
    reasons = {reason["operator"]: reason["anchor"] for reason in planned["reasons"]}
    assert (reasons["orders"], reasons["checked"], reasons["priced"]) == (True, False, True)
    rows = {row["method"]: row.get("expected_recovery_time") for row in planned["comparison"]}
    assert rows["exact"] == min(time for time in rows.values() if time is not None)

    status = shop.ask("run", "shop.py", "--budget", "0.5", "--epochs", "14", "--home", "home", "--json")["status"]
    assert Home(tmp_path / "home").known().plan == planned["plan"]
    (tmp_path / "shop.topology.json").write_text(json.dumps(attributes(400_000.0)))
    assert status["state"] == "stopped"
    again = shop.ask("run", "shop.py", "--budget", "0.9", "--epochs", "16", "--home", "home", "--json")["status"]
    assert again["epoch"] == 15
    assert Home(tmp_path / "home").known().plan == planned["plan"]

    changed = shop.ask("plan", "shop.py", "--plan", "one", "--apply", "--home", "home", "--json")
    assert changed["removed"]
    shop.ask("run", "shop.py", "--epochs", "18", "--home", "home", "--json")
    assert [s.operators for s in Home(tmp_path / "home").known().segments] == [
        ("orders", "checked", "priced", "priced_files")
    ]
    files = pq.read_table(sorted((tmp_path / "home" / "out" / "priced_files").glob("*/*.parquet")))
    assert sorted(files["price"].to_pylist()) == [2 * n for n in range(0, 1800, 2)]

    # Half of the rows pass the check, and not a hundredth, as the plan was told.
    change = next(one for one in status["drift"]["changes"] if one["segment"] == second["name"])
    assert change["attribute"] == "rows per second"
    assert change["measured"] > 1.5 * change["planned"]
    assert [name for one in status["drift"]["plan"]["segments"] for name in one["operators"]] == [
        "orders",
        "checked",
        "priced",
        "priced_files",
    ]
