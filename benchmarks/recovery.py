"""How fast a pipeline recovers, and what its segments cost, beside one plain Structured Streaming query.

    python benchmarks/recovery.py [--keys 100000 300000 1000000] [--failures 3] [--kills 2] [--json]

A chain of six operators, four of them stateful (each removes duplicates by another key and knows every key so
far), over the same files, once as

* plain: one Structured Streaming query, started again at once when it fails;
* one:   a Tidelock pipeline in one segment;
* each:  one segment per operator;
* three: a plan with three segments, made by hand: the last operator is alone in the last one.

After a warm-up epoch that brings all the keys, small epochs follow at a steady pace. In some of them the last
operator fails as often as Spark tries a task, so that its query fails; later the whole process is killed with
SIGKILL and started again. Told is the time from the failure (the last try of the operator; the kill) to the first
new epoch at the sink. State is in Spark's default store, or in RocksDB with changelogs. Throughput is
measured in runs of their own without failures, as fast as it goes, from the second epoch at the sink to the last.
Medians, and ratios within one run of this program.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs import (
    Failure,
    Job,
    Operators,
    chained,
    declare,
    doomed,
    events,
    record,
    rising,
    run_plain,
    say,
    session,
)

VARIANTS = ("plain", "one", "each", "three")
OPERATORS = ("parsed", "first", "second", "enriched", "third", "fourth")
PLAN = {
    "segments": [
        {"operators": ["events", "parsed", "first", "second"]},
        {"operators": ["enriched", "third"]},
        {"operators": ["fourth", "store"]},
    ]
}
SMALL = 2_000
PACE = "3 seconds"
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
SETTLED = 4
"""How many epochs go by between two failures."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, nargs="*", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--failures", type=int, default=3, help="failures of the last operator, per run")
    parser.add_argument("--kills", type=int, default=2, help="kills of the whole process, per run")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--throughput-rows", type=int, nargs="*", default=[50_000, 250_000], help="per epoch")
    parser.add_argument("--throughput-epochs", type=int, default=12)
    parser.add_argument("--provider", choices=["memory", "rocksdb"], default="memory", help="the state store")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        child(json.loads(args.child))
        return
    results = measure(args)
    print(json.dumps(results, indent=1) if args.json else "")
    if not args.json:
        show(results)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    throughput = [
        flow(variant, rows, args.throughput_epochs, args.provider)
        for rows in args.throughput_rows
        for variant in args.variants
    ]
    recovery = [
        recover(variant, keys, args.failures, args.kills, args.provider)
        for keys in args.keys
        for variant in args.variants
    ]
    return {"recovery": recovery, "throughput": throughput}


# -- the parent


def job(settings: dict[str, Any], sizes: list[int]) -> Job:
    """A job that has all its input and has been started."""
    made = Job((__file__, "--child"), rising(sizes), {**settings, "last": len(sizes) - 1})
    made.feed(len(sizes))
    made.start()
    return made


def recover(variant: str, keys: int, failures: int, kills: int, provider: str) -> dict[str, Any]:
    say(f"{variant}, {keys} keys: failures")
    sizes = [keys] + [SMALL] * ((failures + kills + 1) * SETTLED + 1)
    epochs = [SETTLED * (i + 1) for i in range(failures)]
    doomed_ids = [{OPERATORS[-1]: sum(sizes[:epoch])} for epoch in epochs]
    settings = {"variant": variant, "failures": doomed_ids, "pace": PACE, "provider": provider}
    with job(settings, sizes) as running:
        running.wait_for(epochs[-1] + SETTLED - 1 if epochs else 0)
        operator = [running.delivered()[epoch] - running.failed_at(i) for i, epoch in enumerate(epochs)]
        process = [kill_and_wait(running) for _ in range(kills)]
        running.wait_for(len(sizes) - 1)
        running.finish()
    found = {
        "variant": variant,
        "keys": keys,
        "operator": statistics.median(operator) if operator else None,
        "operator_all": operator,
        "process": statistics.median(process) if process else None,
        "process_all": process,
    }
    say(json.dumps(found))
    return found


def kill_and_wait(running: Job) -> float:
    reached = max(running.delivered())
    killed = running.kill()
    running.start()
    running.wait_for(reached + 1)
    delay = running.delivered()[reached + 1] - killed
    running.wait_for(reached + SETTLED)
    return delay


def flow(variant: str, rows: int, epochs: int, provider: str) -> dict[str, Any]:
    say(f"{variant}: throughput")
    settings = {"variant": variant, "failures": [], "pace": "1 millisecond", "provider": provider}
    with job(settings, [rows] * epochs) as running:
        running.wait_for(epochs - 1)
        at = running.delivered()
        running.finish()
    speed = rows * (epochs - 2) / (at[epochs - 1] - at[1])
    found = {"variant": variant, "rows": rows, "rows_per_second": speed}
    say(json.dumps(found))
    return found


# -- the child: one variant on Spark


def child(settings: dict[str, Any]) -> None:
    import tidelock

    spark = session(**(ROCKSDB if settings["provider"] == "rocksdb" else {}))
    home = Path(settings["home"])
    if settings["variant"] == "plain":
        plain(spark, home, settings)
    else:
        plan: Any = PLAN if settings["variant"] == "three" else settings["variant"]
        pipeline = declare(
            tidelock.Pipeline("bench", epoch=settings["pace"]),
            lambda spark: events(spark, home),
            operators(home, settings["failures"]),
            lambda rows, epoch: record(home, epoch),
        )
        pipeline.run(spark, f"{home}/state", plan=plan, last_epoch=settings["last"])
    spark.stop()


def operators(home: Path, failures: list[Failure]) -> Operators:
    """The six operators, as functions of DataFrames."""
    from pyspark.sql import functions as F

    functions: list[Callable[[Any], Any]] = [
        lambda rows: rows.select("id", *(F.hash("id", F.lit(i)).alias(f"k{i}") for i in range(4))),
        lambda rows: rows.dropDuplicates(["id", "k0"]),
        lambda rows: rows.dropDuplicates(["id", "k1"]),
        lambda rows: rows.withColumn("sum", F.col("k0") % 1000 + F.col("k1") % 1000),
        lambda rows: rows.dropDuplicates(["id", "k2"]),
        lambda rows: doomed(rows.dropDuplicates(["id", "k3"]), home, OPERATORS[-1], failures),
    ]
    return dict(zip(OPERATORS, functions, strict=True))


def plain(spark: Any, home: Path, settings: dict[str, Any]) -> None:
    def deliver(rows: Any, batch: int) -> None:
        rows.write.format("noop").mode("overwrite").save()
        record(home, batch)

    def start() -> Any:
        stream = chained(events(spark, home), operators(home, settings["failures"]))
        writer = stream.writeStream.foreachBatch(deliver).option("checkpointLocation", f"{home}/checkpoint")
        return writer.trigger(processingTime=settings["pace"]).start()

    run_plain(start, settings["last"])


# -- the table


def show(results: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="seconds from the failure to the next epoch at the sink (times faster than plain)")
    for column in ("keys", "variant", "last operator fails", "process is killed"):
        table.add_column(column, justify="left" if column == "variant" else "right")
    for row in results["recovery"]:
        base = next((r for r in results["recovery"] if r["keys"] == row["keys"] and r["variant"] == "plain"), row)
        cells = [
            f"{row[what]:.1f} ({base[what] / row[what]:.1f}x)" if row[what] else "-"
            for what in ("operator", "process")
        ]
        table.add_row(f"{row['keys']:,}", row["variant"], *cells)
    Console().print(table)
    flows = Table(title="rows per second without failures")
    for column in ("rows per epoch", "variant", "rows/s", "of plain"):
        flows.add_column(column, justify="left" if column == "variant" else "right")
    for row in results["throughput"]:
        same = (r for r in results["throughput"] if r["rows"] == row["rows"] and r["variant"] == "plain")
        share = row["rows_per_second"] / next(same, row)["rows_per_second"]
        flows.add_row(f"{row['rows']:,}", row["variant"], f"{row['rows_per_second']:,.0f}", f"{share:.2f}")
    Console().print(flows)


if __name__ == "__main__":
    main()
