"""Code that changes between two runs of one home, on real Spark."""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.integration.pipelines import Bench, named
from tests.integration.random_pipelines import SCHEMA, RandomPipeline, rows
from tests.integration.streams import Place

from tidelock.errors import PipelineError, SchemaMismatch
from tidelock.fingerprint.nodes import Meaning, NodePrint, judge
from tidelock.home.home import Home
from tidelock.pipeline.declaration import Declaration
from tidelock.pipeline.loading import load
from tidelock.preparing.changed_code import node_prints
from tidelock.preparing.preparation import prepare, settle
from tidelock.spark.segments.describing import describe_nodes
from tidelock.topology import Kind

PAYMENTS = """
import json
import tidelock
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

pipeline = tidelock.Pipeline("payments", epoch="100 milliseconds")

@pipeline.source
def payments(spark):
    stream = spark.readStream.schema("customer string, cents long").option("maxFilesPerTrigger", 1)
    return stream.json(INPUT)

@F.udf(StringType())
def region(customer):
    return "north" if customer < "m" else "south"

@pipeline.operator
def located(payments):
    return payments.withColumn("region", region("customer"))

@pipeline.operator(mode="update")
def sums(located):
    grouped = located.groupBy("region")
    return grouped.agg(F.sum("cents").alias("cents"))

@pipeline.sink
def store(sums, epoch):
    rows = {row["region"]: row["cents"] for row in sums.collect()}
    with open(OUTPUT, "a") as file:
        file.write(json.dumps(rows) + "\\n")
"""

MOVED = (
    PAYMENTS.replace("    grouped = located", "    # by region\n    by_region = located")
    .replace("grouped.agg(", "by_region.agg(\n        ")
    .replace('"north" if', "'north' if")
    .replace("def region(customer):", 'def region(customer):\n    """Where a customer lives."""')
    .replace("def sums(located):", 'def sums(located: "DataFrame") -> "DataFrame":')
)
MAXIMA = PAYMENTS.replace("F.sum(", "F.max(")
COUNTED = PAYMENTS.replace('.alias("cents"))', '.alias("cents"), F.count("*").alias("n"))')
ALL_NORTH = MAXIMA.replace('< "m"', '< "z"')


class Office:
    """Where the program is written, in a folder of its own every time, and run on the next files."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.home = Home(folder / "home")
        (folder / "input").mkdir()

    def program(self, text: str) -> Declaration:
        place = self.folder / f"program{len([*self.folder.iterdir()])}"
        place.mkdir()
        text = text.replace("INPUT", repr(str(self.folder / "input")))
        (place / "job.py").write_text(text.replace("OUTPUT", repr(str(self.folder / "output"))))
        return load(str(place / "job.py"))

    def run(self, text: str, epoch: int, *payments: tuple[str, int], **more: Any) -> dict[str, int]:
        """Run a program for one more file; what its sink got."""
        lines = [json.dumps({"customer": customer, "cents": cents}) for customer, cents in payments]
        (self.folder / "input" / f"{epoch}.json").write_text("\n".join(lines))
        self.program(text).run(self.spark, self.home.root, last_epoch=epoch, **more)
        found: dict[str, int] = json.loads((self.folder / "output").read_text().splitlines()[-1])
        return found

    def refusal(self, text: str, **more: Any) -> str:
        """Why a program is not started; nothing may have been touched."""
        before = self._files()
        with pytest.raises(PipelineError) as refused:
            self.program(text).run(self.spark, self.home.root, last_epoch=99, **more)
        assert self._files() == before
        return str(refused.value)

    def settle(self, text: str, **more: Any) -> None:
        """What happens before anything starts."""
        settle(prepare(self.program(text), self.spark), self.home, self.spark, asked=False, **more)

    def finish_a_batch(self) -> None:
        """Let it look as if every segment had finished its first batch, as far as changes of code go."""
        for segment in self.home.known().segments:
            commits = Path(self.home.checkpoint(segment.name), "commits")
            commits.mkdir(parents=True)
            (commits / "0").touch()

    def changes(self) -> list[str]:
        return [event["text"] for event in self.home.events() if event["kind"] == "code changed"]

    def _files(self) -> dict[str, bytes]:
        files = [
            file
            for file in self.home.root.rglob("*")
            if file.is_file() and file.name not in ("lock", "status.json")
        ]
        return {str(file): file.read_bytes() for file in files}


@pytest.fixture
def office(spark: SparkSession, tmp_path: Path) -> Office:
    return Office(spark, tmp_path)


def test_state_goes_on_with_the_code_that_made_it(office: Office) -> None:
    assert office.run(PAYMENTS, 0, ("ann", 1), ("bob", 2), ("zoe", 3)) == {"north": 3, "south": 3}

    refused = office.refusal(MAXIMA)
    assert "Operator sums" in refused and "sum(cents)" in refused and "max(cents)" in refused
    assert "F.sum('…')" in refused and "F.max('…')" in refused
    assert "new home" in refused and "--accept-changes" in refused
    for more in ({}, {"accept_changes": True}):
        refused = office.refusal(COUNTED, **more)
        assert "operator sums" in refused and "count of count(1) bigint" in refused and "new home" in refused
        assert ("--accept-changes does not help" in refused) == bool(more)

    assert office.run(MOVED, 1, ("ann", 10), ("zoe", 10)) == {"north": 13, "south": 13}
    assert office.changes() == []

    assert office.run(ALL_NORTH, 2, ("ann", 1), ("yan", 20), accept_changes=True) == {"north": 20}
    located, sums = office.changes()
    assert located.startswith("operator located computes something else") and "function region" in located
    assert located.endswith("The state of sums holds what it gave before")
    assert sums.startswith("operator sums goes on with state that something else has made")
    assert sums.endswith("That was accepted")

    office.settle(ALL_NORTH)
    assert len(office.changes()) == 2, "what was accepted is what is compared with from then on"


FUNCTIONS = """
import pandas as pd
import tidelock
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructType

pipeline = tidelock.Pipeline("functions")
STEP = 1

def stepped(n):
    return n + STEP

class Counter(StatefulProcessor):
    def init(self, handle):
        self.count = handle.getValueState("count", StructType().add("n", LongType()))
    def handleInputRows(self, key, rows, timers):
        yield pd.DataFrame({"word": [key[0]], "n": [stepped(1)]})
    def close(self):
        pass

@pipeline.source
def words(spark):
    return spark.readStream.format("rate").load().select(F.col("value").cast("string").alias("word"))

@pipeline.operator
def long(words):
    return words.where(F.length("word") > 1)

@pipeline.operator(mode="update")
def counted(long):
    return long.groupBy("word").transformWithStateInPandas(
        statefulProcessor=Counter(), outputStructType="word string, n long", outputMode="Update", timeMode="None"
    )

@pipeline.operator(mode="update")
def summed(long):
    return long.groupBy("word").agg(F.sum(F.length("word")).alias("n"))

pipeline.console("counted")
pipeline.console("summed")
"""

Edit = Callable[[str], str]
REFUSED: dict[str, tuple[Edit, str]] = {
    "a method of a processor": (lambda text: text.replace("[key[0]]", "[key[0][:1]]"), "Counter.handleInputRows"),
    "a global of what it calls": (lambda text: text.replace("STEP = 1", "STEP = 2"), "STEP was 1, is 2"),
    "a function that it calls": (lambda text: text.replace("n + STEP", "n - STEP"), "function stepped"),
    "what is built": (
        lambda text: text.replace('("word")).alias', '("word") * 2).alias'),
        "sum((length(word) * 2))",
    ),
}
TOLD: dict[str, tuple[Edit, str | None]] = {
    "nothing": (lambda text: text, None),
    "another way to build the same": (
        lambda text: text.replace('F.sum(F.length("word")).alias("n")', 'F.expr("sum(length(word)) as n")'),
        "operator summed computes the same as before",
    ),
    "an operator without state": (
        lambda text: text.replace("> 1)", "> 2)"),
        "operator long computes something else from now on: in Spark's plan `Filter (length(word) > 1)` is now",
    ),
    "a source": (
        lambda text: text.replace('format("rate")', 'format("rate").option("rowsPerSecond", 5)'),
        "source words computes something else from now on",
    ),
}  # fmt: skip


def test_every_change_is_noticed_before_anything_starts(office: Office) -> None:
    office.settle(FUNCTIONS)
    office.settle(REFUSED[next(iter(REFUSED))][0](FUNCTIONS))
    assert len(office.changes()) == 1, "no batch is finished, so there is no state that it would not fit"
    office.settle(FUNCTIONS)
    office.finish_a_batch()
    record = office.home.known()
    for what, (edit, told) in REFUSED.items():
        with pytest.raises(PipelineError, match="made by other code") as refused:
            office.settle(edit(FUNCTIONS))
        assert told in str(refused.value), what
        assert office.home.known() == record
    for what, (edit, expected) in TOLD.items():
        before = office.changes()
        office.settle(edit(FUNCTIONS))
        found = office.changes()[len(before) :]
        assert len(found) == (expected is not None), what
        assert not expected or found[0].startswith(expected), what
        office.home.remember(record)


def test_a_change_is_told_once_the_home_can_be_started(office: Office) -> None:
    def start(text: str) -> None:
        prepared = prepare(office.program(text), office.spark, "each")
        settle(prepared, office.home, office.spark, asked=False)

    start(PAYMENTS)
    with pytest.raises(SchemaMismatch):
        start(PAYMENTS.replace('region("customer"))', 'region("customer")).withColumn("more", F.lit(1))'))
    assert office.changes() == []
    start(PAYMENTS.replace('"north" if', '"far north" if'))
    (told,) = office.changes()
    assert told.startswith("operator located computes something else")


def edited(function: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    def other(**given: DataFrame) -> DataFrame:
        return function(**given).where("amount != 77")

    return named(other, *inspect.signature(function).parameters)


def test_an_edit_of_a_random_pipeline_is_noticed_where_it_is(place: Place) -> None:
    bench = Bench(place)
    for name in ("clicks", "views"):
        bench.feed(name, rows(1, random.Random(7)), SCHEMA)
    for seed in range(3):
        pipeline, _ = RandomPipeline(seed).declare(bench)
        before, again = (printed(place.spark, RandomPipeline(seed).declare(bench)[0]) for _ in range(2))
        assert judged(before, again) == {}, f"seed {seed}: the same pipeline is the same"
        operators = [node.name for node in pipeline.topology().nodes if node.kind is Kind.OPERATOR]
        chosen = random.Random(seed).choice(operators)
        pipeline.functions[chosen] = edited(pipeline.functions[chosen])
        meaning = Meaning.STATE if before[chosen].keeps_state else Meaning.RESULTS
        assert judged(before, printed(place.spark, pipeline)) == {chosen: meaning}, f"seed {seed}"


def printed(spark: SparkSession, pipeline: Declaration) -> dict[str, NodePrint]:
    topology = pipeline.topology()
    return node_prints(pipeline, topology, describe_nodes(spark, topology, pipeline.functions))


def judged(old: dict[str, NodePrint], new: dict[str, NodePrint]) -> dict[str, Meaning]:
    """What a home that has kept the old fingerprints says to the new ones."""
    kept = {name: NodePrint.decode(json.loads(json.dumps(one.encode()))) for name, one in old.items()}
    found = [judge(name, kept[name], new[name]) for name in new]
    return {change.node: change.meaning for change in found if change is not None}
