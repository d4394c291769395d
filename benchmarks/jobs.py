"""Jobs whose operators fail: what the benchmarks of recovery share.

The parent makes the input, one file per epoch, starts a job as a process of its own and watches what comes to its
sink. The job is a chain of operators, as one plain query or as a pipeline. Both talk through files in the job's
directory:

    input/<number>.parquet             the epochs
    progress                           epoch, time and digest of what came to the sink, one line each
    failures/<number>/<operator>.<try> when an operator failed; `<operator>.over` when it was through with it
    output                             what the process printed
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.cli.demo.leash import kill_session

TRIES = 4
"""How often Spark tries a task before its query fails."""
PATIENCE = 600.0
"""How many seconds may go by without news from a job before it counts as stuck."""

Failure = dict[str, int]
"""Operators that fail at the same moment, each while it has the row with this id."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited for {PATIENCE:g} s until {what}")
        time.sleep(0.05)


def rising(sizes: Sequence[int]) -> Iterator[pa.Table]:
    """Epochs of these sizes, with ids that grow by one."""
    first = 0
    for size in sizes:
        yield pa.table({"id": pa.array(range(first, first + size), pa.int64())})
        first += size


# -- the parent


class Job:
    """One process in a directory of its own, with its input and its progress.

    ``program`` is called with ``settings``, to which the directory is added, as its last argument.
    """

    def __init__(self, program: Sequence[str], epochs: Iterator[pa.Table], settings: dict[str, Any]) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="tidelock-bench-"))
        self._command = [sys.executable, *program, json.dumps({**settings, "home": str(self.home)})]
        self._name = str(settings["variant"])
        self._epochs = epochs
        self._fed = 0
        (self.home / "input").mkdir()
        (self.home / "progress").touch()
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.home)

    def start(self) -> None:
        # Spark's Python workers import the functions of these modules, too.
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        with (self.home / "output").open("ab") as output:
            self.process = subprocess.Popen(
                self._command,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path},
            )

    def kill(self) -> float:
        """End the process and all that it has started; returns when that was."""
        if self.process is not None and self.process.poll() is None:
            kill_session(self.process.pid)
            self.process.wait()
        return time.time()

    def feed(self, epochs: int) -> int:
        """Give it so many more epochs; returns the last."""
        for _ in range(epochs):
            aside = self.home / "aside"
            pq.write_table(next(self._epochs), aside)
            os.utime(aside, (1_000_000 + self._fed, 1_000_000 + self._fed))  # Spark takes the oldest file first
            aside.rename(self.home / "input" / f"{self._fed:06}.parquet")
            self._fed += 1
        return self._fed - 1

    def delivered(self) -> dict[int, float]:
        """The epochs that have come to the sink, and when each came first."""
        found: dict[int, float] = {}
        for epoch, at, *_ in self._progress():
            found.setdefault(int(epoch), float(at))
        return found

    def results(self) -> dict[int, str]:
        """The digest of every epoch, as it came last."""
        return {int(epoch): digest for epoch, _, digest in self._progress()}

    def _progress(self) -> Iterator[list[str]]:
        for line in (self.home / "progress").read_text().splitlines():
            if line.count(" ") == 2:  # the last one may not be complete
                yield line.split(" ")

    def wait_for(self, epoch: int) -> None:
        """Wait until ``epoch`` has come to the sink."""
        news, reached = time.monotonic(), -1
        while reached < epoch:
            time.sleep(0.05)
            newest = max(self.delivered(), default=-1)
            if newest > reached:
                news, reached = time.monotonic(), newest
            if reached < epoch and (self._ended() or time.monotonic() - news > PATIENCE):
                tail = (self.home / "output").read_text(errors="replace")[-3000:]
                raise SystemExit(f"{self._name} did not come to epoch {epoch}, only to {reached}:\n{tail}")

    def _ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def finish(self) -> None:
        """Wait until the process has ended by itself."""
        assert self.process is not None
        if self.process.wait(PATIENCE) != 0:
            raise SystemExit(f"{self._name} failed:\n{(self.home / 'output').read_text(errors='replace')[-3000:]}")

    def failed_at(self, number: int) -> float:
        """When the first of the operators of a failure tried for the last time."""
        return min(file.stat().st_mtime for file in self._failure(number).glob(f"*.{TRIES - 1}"))

    def through_at(self, number: int) -> float:
        """When the last of the operators of a failure was through with what it had failed on."""
        return max(file.stat().st_mtime for file in self._failure(number).glob("*.over"))

    def _failure(self, number: int) -> Path:
        return self.home / "failures" / str(number)


# -- the job


def session(master: str = "local[2,4]", **settings: str) -> Any:
    """A session that says nothing and has memory for the state of a million keys in every operator."""
    import tidelock

    spark = tidelock.session(
        "bench",
        master=master,
        settings={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "8g",
            **settings,
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def events(spark: Any, home: Path, schema: str = "id long") -> Any:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{home}/input")


def record(home: Path, epoch: int, digest: str = "-") -> None:
    with (home / "progress").open("a") as file:
        file.write(f"{epoch} {time.time()} {digest}\n")


def doomed(rows: Any, home: Path, operator: str, failures: Sequence[Failure]) -> Any:
    """The rows of ``operator``; where it is to fail, it raises instead, as often as Spark tries a task.

    Operators that are to fail together wait for each other first.
    """
    known = {failure[operator]: number for number, failure in enumerate(failures) if operator in failure}
    if not known:
        return rows

    def watch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in known.keys() & set(batch.column("id").to_pylist()):
                fail(home / "failures" / str(known[number]), operator, failures[known[number]])
            yield batch

    return rows.mapInArrow(watch, rows.schema)


def fail(folder: Path, operator: str, partners: Failure) -> None:
    """Raise, unless it was tried often enough."""
    folder.mkdir(parents=True, exist_ok=True)
    tried = len(list(folder.glob(f"{operator}.[0-9]")))
    if tried == TRIES:
        (folder / f"{operator}.over").touch()
        return
    (folder / f"{operator}.{tried}").touch()
    while len(list(folder.glob("*.0"))) < len(partners):
        time.sleep(0.01)
    os.utime(folder / f"{operator}.{tried}")
    raise ValueError(f"{operator} was to fail")


Operators = dict[str, Callable[[Any], Any]]


def run_plain(start: Callable[[], Any], last: int) -> None:
    """Run the query that ``start`` starts until it has done batch ``last``, starting it again when it fails."""
    from pyspark.errors import StreamingQueryException

    while True:
        query = start()
        try:
            while not query.awaitTermination(1):
                progress = query.lastProgress
                if progress is not None and progress["batchId"] >= last:
                    query.stop()
                    return
        except StreamingQueryException:
            continue


def chained(stream: Any, operators: Operators) -> Any:
    for function in operators.values():
        stream = function(stream)
    return stream


def declare(
    pipeline: Any,
    source: Callable[[Any], Any],
    operators: Operators,
    deliver: Callable[[Any, int], None],
    mode: str = "append",
) -> Any:
    """The pipeline `events`, the operators one after the other, `store`."""

    def events(spark: Any) -> Any:
        return source(spark)

    pipeline.source(events)
    before = "events"
    for name, function in operators.items():
        pipeline.operator(mode=mode)(_operator(name, before, function))
        before = name

    def store(epoch: int, **rows: Any) -> None:
        deliver(rows[before], epoch)

    store.__signature__ = _signature(before, "epoch")  # type: ignore[attr-defined]
    pipeline.sink(store)
    return pipeline


def _operator(name: str, before: str, function: Callable[[Any], Any]) -> Callable[..., Any]:
    def operator(**rows: Any) -> Any:
        return function(rows[before])

    operator.__name__ = name
    operator.__signature__ = _signature(before)  # type: ignore[attr-defined]
    return operator


def _signature(*names: str) -> inspect.Signature:
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names])
