"""The jobs of the benchmark of cached state: the same work with and without a cache, each in a process of its own.

Two of them: a chain of operators each of which removes duplicates by a key of its own and so knows every key so
far, and one aggregation by key. The variants:

* plain:       one Structured Streaming query, started again at once when it fails;
* spark:       a Tidelock pipeline whose operators keep their state in Spark, a segment for each;
* cache:       the same segments with their state in Redis;
* cache-redis: the same, and the logs between them in Redis, too.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jobs
import pyarrow as pa
import pyarrow.compute as pc

VARIANTS = ("plain", "spark", "cache", "cache-redis")


def operator_names(count: int) -> list[str]:
    return [f"op{number}" for number in range(1, count + 1)]


def run(settings: dict[str, Any]) -> None:
    """Run one job until its last epoch is at the sink."""
    spark = jobs.session(settings["master"])
    home, cached = Path(settings["home"]), settings["variant"].startswith("cache")
    if settings["kind"] == "chain":
        source = partial(numbered, home=home, keys=len(settings["operators"]))
        operators, mode = chain(home, settings["operators"], settings["failures"], cached), "append"
    else:
        source = partial(jobs.events, home=home, schema="k long, value long")
        operators, mode = {"counts": counts_in_cache if cached else counts}, "update"
    if settings["variant"] == "plain":
        plain(spark, home, settings, jobs.chained(source(spark), operators), mode)
    else:
        pipeline(spark, home, settings, source, operators, mode)
    spark.stop()


def plain(spark: Any, home: Path, settings: dict[str, Any], stream: Any, mode: str) -> None:
    def start() -> Any:
        writer = stream.writeStream.foreachBatch(lambda rows, batch: deliver(home, rows, batch)).outputMode(mode)
        return (
            writer.option("checkpointLocation", f"{home}/checkpoint")
            .trigger(processingTime=settings["pace"])
            .start()
        )

    jobs.run_plain(start, settings["last"])


def pipeline(
    spark: Any, home: Path, settings: dict[str, Any], source: Any, operators: jobs.Operators, mode: str
) -> None:
    import tidelock

    made = tidelock.Pipeline("bench", epoch=settings["pace"], snapshot_every=settings["snapshot_every"])
    jobs.declare(made, source, operators, partial(deliver, home), mode)
    *before, end = operators
    plan = {"segments": [{"operators": ["events"]}, *({"operators": [one]} for one in before)]}
    plan["segments"].append({"operators": [end, "store"]})
    places = {}
    if settings["variant"] != "spark":
        places["cache"] = f"{settings['redis']}/{home.name}/state"
    if settings["variant"] == "cache-redis":
        places["log"] = f"{settings['redis']}/{home.name}/logs"
    made.run(spark, f"{home}/state", plan=plan, last_epoch=settings["last"], **places)


def deliver(home: Path, rows: Any, epoch: int) -> None:
    """Take the rows at the sink, and write down how many they are and what they have in common with no others."""
    from pyspark.sql import functions as F

    hashed = F.xxhash64(*(F.col(name) for name in sorted(rows.columns)))
    (found,) = rows.agg(F.count(F.lit(1)), F.bit_xor(hashed), F.sum(hashed % (1 << 32))).collect()
    jobs.record(home, epoch, ":".join(map(str, found)))


# -- the chain


def numbered(spark: Any, home: Path, keys: int) -> Any:
    """The rows, with a key for each operator."""
    from pyspark.sql import functions as F

    rows = jobs.events(spark, home)
    return rows.select("id", *(F.hash("id", F.lit(i)).alias(f"k{i}") for i in range(1, keys + 1)))


def chain(home: Path, names: list[str], failures: list[jobs.Failure], cached: bool) -> jobs.Operators:
    def operator(rows: Any, name: str, key: str) -> Any:
        once = once_in_cache(rows, key) if cached else rows.dropDuplicates(["id", key])
        return jobs.doomed(once, home, name, failures)

    return {name: partial(operator, name=name, key=f"k{i}") for i, name in enumerate(names, 1)}


def once_in_cache(rows: Any, key: str) -> Any:
    import tidelock

    columns = ", ".join(f"{name} {kind}" for name, kind in rows.dtypes)
    return tidelock.keyed(rows, "id", key).apply(first_seen, state="seen boolean", output=columns)


def first_seen(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows of new keys, each once; all keys are known afterwards. Rows with the same id are equal."""
    fresh = state.filter(pc.is_null(state.column("seen"))).column("id").combine_chunks()
    once = rows.group_by(rows.column_names).aggregate([])
    seen = pa.array([True] * state.num_rows, pa.bool_())
    known = state.set_column(state.column_names.index("seen"), "seen", seen)
    return once.filter(pc.is_in(once.column("id"), value_set=fresh)), known


# -- the aggregation


def counts(rows: Any) -> Any:
    from pyspark.sql import functions as F

    return rows.groupBy("k").agg(F.count(F.lit(1)).alias("n"), F.sum("value").alias("total"))


def counts_in_cache(rows: Any) -> Any:
    import tidelock

    aggregates = tidelock.aggregates
    return tidelock.keyed(rows, "k").aggregate(n=aggregates.count(), total=aggregates.sum("value"))


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
