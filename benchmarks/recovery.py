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
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

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


# -- the parent: input, children, times


class Job:
    """One variant in a directory of its own, with its input and its progress."""

    def __init__(self, variant: str, epochs: list[int], faults: list[int], pace: str, provider: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="tidelock-bench-"))
        self.settings = {
            "variant": variant,
            "home": str(self.home),
            "last": len(epochs) - 1,
            "faults": faults,
            "pace": pace,
            "provider": provider,
        }
        first = 0
        (self.home / "input").mkdir()
        for number, rows in enumerate(epochs):
            write_epoch(self.home / "input" / f"{number:06}.parquet", first, rows)
            first += rows
        (self.home / "progress").touch()
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, "--child", json.dumps(self.settings)]
        with (self.home / "output").open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)

    def kill(self) -> float:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return time.time()

    def delivered(self) -> dict[int, float]:
        """The epochs that have come to the sink, and when each came first."""
        found: dict[int, float] = {}
        for line in (self.home / "progress").read_text().splitlines():
            epoch, at = line.split()
            found.setdefault(int(epoch), float(at))
        return found

    def wait_for(self, epoch: int) -> None:
        while max(self.delivered(), default=-1) < epoch:
            if self.process.poll() is not None:
                tail = (self.home / "output").read_text(errors="replace")[-3000:]
                raise SystemExit(f"{self.settings['variant']} ended before epoch {epoch}:\n{tail}")
            time.sleep(0.05)

    def finish(self) -> None:
        self.process.wait()
        shutil.rmtree(self.home)


def write_epoch(path: Path, first: int, rows: int) -> None:
    ids = pa.array(range(first, first + rows), pa.int64())
    pq.write_table(pa.table({"id": ids}), path)
    os.utime(path, (1_000_000 + first, 1_000_000 + first))


def recover(variant: str, keys: int, failures: int, kills: int, provider: str) -> dict[str, Any]:
    say(f"{variant}, {keys} keys: failures")
    small = (failures + kills + 1) * SETTLED + 1
    faults = [SETTLED * (i + 1) for i in range(failures)]
    job = Job(variant, [keys] + [SMALL] * small, faults, PACE, provider)
    job.wait_for(faults[-1] + SETTLED - 1)
    operator = [job.delivered()[epoch] - raised(job.home, epoch) for epoch in faults]
    process = [kill_and_wait(job) for _ in range(kills)]
    job.wait_for(len(list((job.home / "input").iterdir())) - 1)
    job.finish()
    found = {
        "variant": variant,
        "keys": keys,
        "operator": statistics.median(operator),
        "operator_all": operator,
        "process": statistics.median(process) if process else None,
        "process_all": process,
    }
    say(json.dumps(found))
    return found


def raised(home: Path, epoch: int) -> float:
    return max(file.stat().st_mtime for file in (home / "faults" / str(epoch)).iterdir())


def kill_and_wait(job: Job) -> float:
    reached = max(job.delivered())
    killed = job.kill()
    job.process = job.start()
    job.wait_for(reached + 1)
    delay = job.delivered()[reached + 1] - killed
    job.wait_for(reached + SETTLED)
    return delay


def flow(variant: str, rows: int, epochs: int, provider: str) -> dict[str, Any]:
    say(f"{variant}: throughput")
    job = Job(variant, [rows] * epochs, [], "0 seconds", provider)
    job.wait_for(epochs - 1)
    at = job.delivered()
    job.finish()
    speed = rows * (epochs - 2) / (at[epochs - 1] - at[1])
    found = {"variant": variant, "rows": rows, "rows_per_second": speed}
    say(json.dumps(found))
    return found


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- the child: one variant on Spark


def child(settings: dict[str, Any]) -> None:
    import tidelock

    spark = tidelock.session(
        "bench",
        master="local[2,4]",
        settings={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "8g",
            **(ROCKSDB if settings["provider"] == "rocksdb" else {}),
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    home = Path(settings["home"])
    if settings["variant"] == "plain":
        plain(spark, home, settings["last"], settings["faults"], settings["pace"])
    else:
        plan: Any = PLAN if settings["variant"] == "three" else settings["variant"]
        pipeline = declare(home, settings["faults"], settings["pace"])
        pipeline.run(spark, f"{home}/state", plan=plan, last_epoch=settings["last"])
    spark.stop()


def events(spark: Any, home: Path) -> Any:
    return spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(f"{home}/input")


def operators(home: Path, faults: list[int]) -> dict[str, Any]:
    """The six operators, as functions of DataFrames."""
    from pyspark.sql import functions as F

    return {
        "parsed": lambda rows: rows.select("id", *(F.hash("id", F.lit(i)).alias(f"k{i}") for i in range(4))),
        "first": lambda rows: rows.dropDuplicates(["id", "k0"]),
        "second": lambda rows: rows.dropDuplicates(["id", "k1"]),
        "enriched": lambda rows: rows.withColumn("sum", F.col("k0") % 1000 + F.col("k1") % 1000),
        "third": lambda rows: rows.dropDuplicates(["id", "k2"]),
        "fourth": lambda rows: doomed(rows.dropDuplicates(["id", "k3"]), home, faults),
    }


def doomed(rows: Any, home: Path, faults: list[int]) -> Any:
    """The rows; in the first tries of some epochs it raises instead. Only small epochs go through Python."""
    if not faults:
        return rows
    known = {first_id(home, epoch): epoch for epoch in faults}
    folder = home / "faults"

    def watch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in known.keys() & set(batch.column("id").to_pylist()):
                tries = folder / str(known[number])
                tries.mkdir(parents=True, exist_ok=True)
                seen = len(list(tries.iterdir()))
                if seen < 4:
                    (tries / str(seen)).touch()
                    raise ValueError(f"epoch {known[number]} was to fail")
            yield batch

    return rows.mapInArrow(watch, rows.schema)


def first_id(home: Path, epoch: int) -> int:
    sizes = [pq.read_metadata(path).num_rows for path in sorted((home / "input").iterdir())]
    return sum(sizes[:epoch])


def record(home: Path, epoch: int) -> None:
    with (home / "progress").open("a") as file:
        file.write(f"{epoch} {time.time()}\n")


def plain(spark: Any, home: Path, last: int, faults: list[int], pace: str) -> None:
    from pyspark.errors import StreamingQueryException

    def deliver(rows: Any, batch: int) -> None:
        rows.write.format("noop").mode("overwrite").save()
        record(home, batch)

    while True:
        stream = events(spark, home)
        for function in operators(home, faults).values():
            stream = function(stream)
        writer = stream.writeStream.foreachBatch(deliver).option("checkpointLocation", f"{home}/checkpoint")
        query = writer.trigger(processingTime=pace).start()
        try:
            while not query.awaitTermination(1):
                progress = query.lastProgress
                if progress is not None and progress["batchId"] >= last:
                    query.stop()
                    return
        except StreamingQueryException:
            continue


def declare(home: Path, faults: list[int], pace: str) -> Any:
    import inspect

    import tidelock

    pipeline = tidelock.Pipeline("bench", epoch=pace)

    def source(spark: Any) -> Any:
        return events(spark, home)

    source.__name__ = "events"
    pipeline.source(source)
    before = "events"
    for name, function in operators(home, faults).items():

        def operator(function: Any = function, **rows: Any) -> Any:
            return function(*rows.values())

        operator.__name__ = name
        parameter = inspect.Parameter(before, inspect.Parameter.KEYWORD_ONLY)
        operator.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
        pipeline.operator(operator)
        before = name

    @pipeline.sink
    def store(fourth: Any, epoch: int) -> None:
        record(home, epoch)

    return pipeline


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
