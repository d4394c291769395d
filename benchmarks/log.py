"""What the epoch log costs, beside what Spark does natively. One command, one table, ratios within one run.

    python benchmarks/log.py [--rows 4000000] [--repeats 5] [--json]

* reading: an aggregation over a stream of the log, and over Spark's Parquet file stream of the same data; the
  table has 5 columns, of which the aggregation uses 3. Spark tells that to Parquet, but not to a Python source:
  the user says it with `columns=`;
* writing: a stream into the log, and into `foreachBatch` with `df.write.parquet`;
* small epochs: 1,000 rows a batch into the log, and into a no-op sink.

Each pair is measured in turns (log, native, log, native, ...), the first pair warms up and is not counted, and
the table has the medians. Times are those of Spark's own progress reports, without the first batch of a query.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

import tidelock

EPOCHS = 8
PARTS = 2
TITLES = {
    "read": ("read the 3 columns of an aggregation, rows/s", "Parquet file stream"),
    "read_all": ("the same without `columns=`, rows/s", "Parquet file stream"),
    "write": ("write, rows/s", "foreachBatch + write.parquet"),
    "small": ("epoch of {small} rows, ms per batch", "foreachBatch + no-op"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the large runs")
    parser.add_argument("--small-rows", type=int, default=1_000, help="rows of a small epoch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=list(TITLES), action="append")
    parser.add_argument("--set", action="append", default=[], metavar="CONF=VALUE", help="a Spark setting")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="tidelock-bench-"))
    spark = tidelock.session(
        "bench",
        master="local[2]",
        settings={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "3g",
            "spark.ui.showConsoleProgress": "false",
            **dict(s.split("=", 1) for s in args.set),
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        bench = Bench(spark, home, args.rows, args.small_rows, args.repeats)
        only = args.only or list(TITLES)
        results = {name: getattr(bench, name)() for name in only}
    finally:
        spark.stop()
        shutil.rmtree(home)
    if args.json:
        print(json.dumps(results, indent=1))
    else:
        show(results, args)


class Bench:
    """The three comparisons, on data that is made once."""

    def __init__(self, spark: SparkSession, home: Path, rows: int, small_rows: int, repeats: int) -> None:
        self.spark, self.home = spark, home
        self.rows, self.small_rows, self.repeats = rows, small_rows, repeats
        self._made = 0

    # -- the comparisons

    def read(self) -> dict[str, float]:
        return self._read(["key", "value", "at"])

    def read_all(self) -> dict[str, float]:
        return self._read(None)

    def _read(self, columns: list[str] | None) -> dict[str, float]:
        parquet = self._parquet()
        log = f"file:{self._fresh('log')}"
        self._run(
            tidelock.write_log(
                self._files(parquet), log, checkpoint=self._fresh("ck"), trigger={"availableNow": True}
            )
        )

        return self._compare(
            lambda: self._aggregate(tidelock.read_log(self.spark, log, columns=columns)),
            lambda: self._aggregate(self._files(parquet)),
        )

    def write(self) -> dict[str, float]:
        parquet = self._parquet()

        def to_log() -> float:
            return self._rate(
                tidelock.write_log(
                    self._files(parquet),
                    f"file:{self._fresh('log')}",
                    checkpoint=self._fresh("ck"),
                    trigger={"availableNow": True},
                )
            )

        def to_parquet() -> float:
            target = self._fresh("parquet")
            return self._rate(
                self._each_batch(self._files(parquet), lambda df, n: df.write.parquet(f"{target}/{n}"))
            )

        return self._compare(to_log, to_parquet)

    def small(self) -> dict[str, float]:
        def to_log() -> float:
            return self._batch_ms(
                lambda stream: tidelock.write_log(
                    stream,
                    f"file:{self._fresh('log')}",
                    checkpoint=self._fresh("ck"),
                    trigger={"availableNow": True},
                )
            )

        def to_nothing() -> float:
            return self._batch_ms(
                lambda stream: self._each_batch(
                    stream, lambda df, n: df.write.format("noop").mode("overwrite").save()
                )
            )

        return self._compare(to_log, to_nothing)

    # -- how they are measured

    def _compare(self, log: Callable[[], float], native: Callable[[], float]) -> dict[str, float]:
        pairs = [(log(), native()) for _ in range(self.repeats + 1)][1:]
        return {
            "log": statistics.median(p[0] for p in pairs),
            "native": statistics.median(p[1] for p in pairs),
            "ratio": statistics.median(p[0] / p[1] for p in pairs),
            "lowest": min(p[0] / p[1] for p in pairs),
            "highest": max(p[0] / p[1] for p in pairs),
        }

    def _aggregate(self, stream: DataFrame) -> float:
        sums = stream.groupBy("key").agg(F.sum("value"), F.count("*"), F.max("at"))
        return self._rate(
            self._each_batch(sums, lambda df, n: df.write.format("noop").mode("overwrite").save(), mode="update")
        )

    def _rate(self, query: StreamingQuery) -> float:
        batches = self._run(query)[1:]
        return (
            sum(b["numInputRows"] for b in batches)
            / sum(b["durationMs"]["triggerExecution"] for b in batches)
            * 1000
        )

    def _batch_ms(self, start: Callable[[DataFrame], StreamingQuery]) -> float:
        small = self._small_files()
        batches = self._run(start(self._files(small)))[5:]
        return statistics.median(b["durationMs"]["triggerExecution"] for b in batches)

    def _run(self, query: StreamingQuery) -> list[dict[str, object]]:
        query.awaitTermination()
        if failure := query.exception():
            raise failure
        return [p for p in query.recentProgress if p["numInputRows"]]

    def _each_batch(
        self, stream: DataFrame, do: Callable[[DataFrame, int], None], mode: str = "append"
    ) -> StreamingQuery:
        writer = stream.writeStream.outputMode(mode).foreachBatch(do).trigger(availableNow=True)
        return writer.option("checkpointLocation", self._fresh("ck")).start()

    # -- the data

    def _table(self, start: int, rows: int) -> DataFrame:
        return self.spark.range(start, start + rows, numPartitions=PARTS).select(
            "id",
            (F.col("id") * 7919 % 1000).alias("key"),
            (F.col("id") % 1013 / 7).alias("value"),
            F.timestamp_micros(F.col("id") * 1000).alias("at"),
            F.concat(F.lit("word-"), F.col("id") % 5000).alias("word"),
        )

    def _parquet(self) -> Path:
        path = self.home / "input"
        if not path.exists():
            step = self.rows // EPOCHS
            for n in range(EPOCHS):
                self._table(n * step, step).write.mode("append").parquet(str(path))
        return path

    def _small_files(self) -> Path:
        path = self.home / "small"
        if not path.exists():
            for n in range(30):
                self._table(n * self.small_rows, self.small_rows).coalesce(PARTS).write.mode("append").parquet(
                    str(path)
                )
        return path

    def _files(self, path: Path) -> DataFrame:
        schema = self.spark.read.parquet(str(path)).schema
        stream = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", PARTS)
        return stream.parquet(str(path))

    def _fresh(self, name: str) -> str:
        self._made += 1
        return str(self.home / f"{name}-{self._made}")


def show(results: dict[str, dict[str, float]], args: argparse.Namespace) -> None:
    table = Table(title=f"{args.rows:,} rows, {EPOCHS} epochs, medians of {args.repeats}")
    for column in ("what", "log", "native", "native is", "log / native", "range"):
        table.add_column(column, justify="left" if column in ("what", "native is") else "right")
    for name, r in results.items():
        what, native = TITLES[name]
        table.add_row(
            what.format(small=args.small_rows),
            f"{r['log']:,.0f}",
            f"{r['native']:,.0f}",
            native,
            f"{r['ratio']:.2f}",
            f"{r['lowest']:.2f}-{r['highest']:.2f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
