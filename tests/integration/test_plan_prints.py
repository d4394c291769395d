"""The fingerprints of operators' plans, on real Spark; nothing runs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

from tidelock.fingerprint.code import value_fingerprint
from tidelock.fingerprint.nodes import NodePrint
from tidelock.spark.plans.prints import plan_print, stand_in

Operator = Callable[..., DataFrame]

COLUMNS = "word string, n long, at timestamp, raw binary"
MORE = "extra double, word string, n long, at timestamp, raw binary, other string"


@F.udf(LongType())
def long(word):  # type: ignore[no-untyped-def]
    return len(word)


def counted(key: Any, rows: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    yield pd.DataFrame()


def timed(a: DataFrame, delay: str = "10 seconds") -> DataFrame:
    return a.withWatermark("at", delay)


def joined(a: DataFrame, b: DataFrame, kind: str = "inner", bound: int = 5) -> DataFrame:
    near = f"l.word = r.word and l.at >= r.at - interval {bound} seconds and l.at <= r.at"
    return timed(a).alias("l").join(timed(b).alias("r"), F.expr(near), kind).select("l.word", "r.n")


def viewed(a: DataFrame, name: str) -> DataFrame:
    a.createOrReplaceTempView(name)
    return a.sparkSession.table(name)


SAME: dict[str, tuple[Operator, Operator]] = {
    "two ways to name a column": (
        lambda a: a.groupBy("word").agg(F.sum("n").alias("t")),
        lambda a: a.groupBy(F.col("word")).agg(F.sum(a.n).alias("t")),
    ),
    "SQL and functions": (
        lambda a: a.groupBy("word").agg(F.sum("n").alias("t")),
        lambda a: a.groupBy("word").agg(F.expr("sum(n) as t")),
    ),
    "a name on the way": (
        lambda a: a.withColumn("x", F.col("n") * 2).groupBy("word").agg(F.sum("x").alias("t")),
        lambda a: a.withColumn("y", F.col("n") * 2).groupBy("word").agg(F.sum("y").alias("t")),
    ),
    "an alias of a table": (
        lambda a: a.alias("q").groupBy("q.word").count(),
        lambda a: a.groupBy("word").count(),
    ),
    "random numbers": (lambda a: a.where(F.rand() < 0.5).sample(0.5),) * 2,
    "a number of partitions": (lambda a: a.repartition(2, "word"), lambda a: a.repartition(5, "word")),
    "windows": (lambda a: timed(a).groupBy(F.window("at", "1 minute"), "word").count(),) * 2,
    "a literal of bytes": (
        lambda a: a.groupBy("word").agg(F.sum(F.when(F.col("raw") == F.lit(b"abc"), 1)).alias("t")),
        lambda a: a.groupBy("word").agg(F.expr("sum(CASE WHEN raw = X'616263' THEN 1 END) AS t")),
    ),
    "a query of a view": (lambda a: a.sparkSession.sql("SELECT word, count(*) AS c FROM {a} GROUP BY word", a=a),)
    * 2,
    "a view and what is in it": (lambda a: viewed(a, "one").where("n > 1"), lambda a: a.where("n > 1")),
    "a join": (lambda a, b: joined(a, b),) * 2,
    "a join with itself": (lambda a: a.alias("l").join(a.alias("r"), F.expr("l.word = r.word")).select("r.n"),)
    * 2,
    "a function with state": (
        lambda a: a.groupBy("word").applyInPandasWithState(counted, "z int", "q int", "append", "NoTimeout"),
    )
    * 2,
}

DIFFERENT: dict[str, tuple[Operator, Operator]] = {
    "sum and max": (
        lambda a: a.groupBy("word").agg(F.sum("n").alias("t")),
        lambda a: a.groupBy("word").agg(F.max("n").alias("t")),
    ),
    "a literal": (lambda a: a.where("n > 1"), lambda a: a.where("n > 2")),
    "a literal of bytes": (
        lambda a: a.where(F.col("raw") == F.lit(b"abc")),
        lambda a: a.where(F.col("raw") == F.lit(b"abd")),
    ),
    "the type of a literal": (
        lambda a: a.withColumn("x", F.lit("1")).groupBy("x").count(),
        lambda a: a.withColumn("x", F.lit(1)).groupBy("x").count(),
    ),
    "an added aggregate": (
        lambda a: a.groupBy("word").agg(F.sum("n").alias("t")),
        lambda a: a.groupBy("word").agg(F.sum("n").alias("t"), F.count("*").alias("c")),
    ),
    "a column of the result": (
        lambda a: a.groupBy("word").agg(F.sum("n").alias("t")),
        lambda a: a.groupBy("word").agg(F.sum("n").alias("u")),
    ),
    "what becomes of a value that cannot be cast": (
        lambda a: a.groupBy("word").agg(F.sum(F.expr("cast(word as int)")).alias("t")),
        lambda a: a.groupBy("word").agg(F.sum(F.expr("try_cast(word as int)")).alias("t")),
    ),
    "what becomes of a sum that is too large": (
        lambda a: a.groupBy("word").agg(F.sum("n").alias("t")),
        lambda a: a.groupBy("word").agg(F.try_sum("n").alias("t")),
    ),
    "the key": (lambda a: a.groupBy("word").count(), lambda a: a.groupBy("at").count()),
    "a watermark": (lambda a: timed(a), lambda a: timed(a, "20 seconds")),
    "a window": (
        lambda a: a.groupBy(F.window("at", "1 minute")).count(),
        lambda a: a.groupBy(F.window("at", "2 minutes")).count(),
    ),
    "the columns of deduplication": (
        lambda a: a.dropDuplicates(["word"]),
        lambda a: a.dropDuplicates(["word", "n"]),
    ),
    "the kind of a join": (lambda a, b: joined(a, b), lambda a, b: joined(a, b, "leftOuter")),
    "the condition of a join": (lambda a, b: joined(a, b), lambda a, b: joined(a, b, bound=6)),
    "the sides of a join": (lambda a, b: joined(a, b), lambda a, b: joined(b, a)),
    "which side of a join with itself": (
        lambda a: a.alias("l").join(a.alias("r"), F.expr("l.word = r.word and l.n < r.n")).select("l.n"),
        lambda a: a.alias("l").join(a.alias("r"), F.expr("l.word = r.word and l.n < r.n")).select("r.n"),
    ),
    "the state of a function": (
        lambda a: a.groupBy("word").applyInPandasWithState(counted, "z int", "q int", "append", "NoTimeout"),
        lambda a: a.groupBy("word").applyInPandasWithState(counted, "z int", "q long", "append", "NoTimeout"),
    ),
}


def told(spark: SparkSession, operator: Operator, columns: str = COLUMNS) -> NodePrint:
    parameters = inspect.signature(operator).parameters.values()
    names = [one.name for one in parameters if one.default is inspect.Parameter.empty]
    inputs = [stand_in(spark, StructType.fromDDL(columns), name) for name in names]  # type: ignore[arg-type]
    plan, layouts = plan_print(operator(*inputs))
    return NodePrint((), bool(layouts), plan, layouts)


@pytest.mark.parametrize("what", SAME)
def test_what_does_not_matter(spark: SparkSession, what: str) -> None:
    before, after = (told(spark, one) for one in SAME[what])
    assert before.plan and after.plan
    assert before.plan.digest == after.plan.digest
    assert [one.required for one in before.layouts] == [one.required for one in after.layouts]


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_matters(spark: SparkSession, what: str) -> None:
    before, after = (told(spark, one) for one in DIFFERENT[what])
    assert before.plan and after.plan
    assert before.plan.digest != after.plan.digest


def test_a_plan_with_python_functions_or_tables_has_holes(spark: SparkSession) -> None:
    table = spark.createDataFrame([("a", 1)], "word string, z int")
    operators: dict[str, tuple[Operator, bool]] = {
        "sql": (lambda a: joined(a, a.select("*")), True),
        "udf": (lambda a: a.withColumn("l", long("word")), False),
        "table": (lambda a: a.join(table, "word"), False),
        "function": (lambda a: a.mapInPandas(lambda rows: rows, "word string"), False),
    }
    found = {name: told(spark, operator).plan for name, (operator, _) in operators.items()}
    assert {name: plan.whole for name, plan in found.items() if plan} == {n: w for n, (_, w) in operators.items()}


def test_a_column_more_in_an_input_matters_only_to_who_looks_at_it(spark: SparkSession) -> None:
    def summed(a: DataFrame) -> DataFrame:
        return timed(a).withColumn("x", F.col("n") + 1).groupBy("word").agg(F.sum("x").alias("t"))

    for operator in (summed, joined):
        assert told(spark, operator) == told(spark, operator, MORE)

    def distinct(a: DataFrame) -> DataFrame:
        return a.distinct()

    assert told(spark, distinct) != told(spark, distinct, MORE)


def test_texts_are_not_shown(spark: SparkSession) -> None:
    def sealed(a: DataFrame) -> DataFrame:
        return a.withColumn("x", F.aes_encrypt("word", F.lit("hunter2hunter2h2"))).where("word = 'word'")

    plan = told(spark, sealed).plan
    assert plan and plan.whole
    assert "hunter2" not in str(plan) and "(word = '…')" in str(plan.shown)
    raw = told(spark, lambda a: a.where(F.col("raw") == F.lit(b"hunter2"))).plan
    assert raw and raw.whole and "(raw = '…')" in str(raw.shown)


LONGER = [F.udf(LongType())(lambda word, by=by: len(word) + by) for by in (0, 1)]
COLUMNS_SAME: dict[str, Callable[[], Column]] = {
    "a UDF": lambda: long("word"),
    "UDFs inside of others": lambda: long(long(F.lower("word"))) + 1,
    "random numbers": lambda: F.rand() * F.col("n"),
    "variables": lambda: F.aggregate("list", F.lit(0), lambda x, y: F.abs(x) + y),
    "bytes": lambda: F.col("raw") == F.lit(b"abc"),
    "a window": lambda: F.sum("n").over(Window.partitionBy("word")),
}
COLUMNS_DIFFERENT: dict[str, tuple[Callable[[], Column], Callable[[], Column]]] = {
    "the function of a UDF": (lambda: LONGER[0]("word"), lambda: LONGER[1]("word")),
    "the function of a UDF inside of another": (lambda: long(LONGER[0]("word")), lambda: long(LONGER[1]("word"))),
    "a number": (lambda: F.col("n") + 1, lambda: F.col("n") + 2),
    "which variable": (
        lambda: F.aggregate("list", F.lit(0), lambda x, y: x - y),
        lambda: F.aggregate("list", F.lit(0), lambda x, y: y - x),
    ),
}


def column_told(column: Callable[[], Column]) -> list[tuple[str, str]]:
    return [(part.name, part.digest) for part in value_fingerprint("column", column())]


@pytest.mark.parametrize("what", COLUMNS_SAME)
def test_a_captured_column_is_the_same_every_time(spark: SparkSession, what: str) -> None:
    assert column_told(COLUMNS_SAME[what]) == column_told(COLUMNS_SAME[what])


@pytest.mark.parametrize("what", COLUMNS_DIFFERENT)
def test_what_is_in_a_captured_column_counts(spark: SparkSession, what: str) -> None:
    one, other = map(column_told, COLUMNS_DIFFERENT[what])
    assert one != other


def test_what_was_sent_to_the_workers_counts(spark: SparkSession) -> None:
    one, again, other = (value_fingerprint("rates", spark.sparkContext.broadcast({"a": n})) for n in (1, 1, 2))
    assert one == again != other


def test_the_columns_of_state(spark: SparkSession) -> None:
    def averaged(a: DataFrame) -> DataFrame:
        return a.groupBy("word").agg(F.avg("n").alias("m"), F.avg("n").alias("again"), F.max("at").alias("last"))

    (state,) = told(spark, averaged).layouts
    assert [kind for _, kind in state.columns] == ["string", "double", "bigint", "timestamp"]
    left, right = (
        [("word", "string"), ("at", "timestamp")],
        [("word", "string"), ("n", "bigint"), ("at", "timestamp")],
    )
    assert [*told(spark, joined).layouts[0].columns] == [*left, *right]


def test_a_fingerprint_is_kept_as_json(spark: SparkSession) -> None:
    made = told(spark, joined)
    assert NodePrint.decode(json.loads(json.dumps(made.encode()))) == made
