"""Where a pipeline ends: a function of the user, Parquet files, the console.

A sink's batch that is run again after a failure has the same epochs and the same input. So an effect that is
idempotent for an epoch, or that stores the epoch in the same transaction, happens exactly once.
"""

from __future__ import annotations

import inspect
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import BatchFailed, Fenced, LogCorrupt
from tidelock.log.sealed import seal, unseal
from tidelock.spark.checkpoint.filesystem import Folder
from tidelock.spark.checkpoint.replay import Replay
from tidelock.spark.query.batches import Batches, Gate, Work
from tidelock.spark.query.failures import told_shortly
from tidelock.spark.query.queries import compute, passing
from tidelock.spark.schema import quoted

Deliver = Callable[[DataFrame, Work], None]
"""Takes the rows of a batch to where they belong; may be called again with the same work."""


class DeliverySink:
    """The function for `foreachBatch` of a segment that ends in a sink."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        deliver: Deliver,
        checkpoint: str,
        gate: Gate,
        replay: Replay | None = None,
    ) -> None:
        self._name = name
        self._deliver = deliver
        self._batches = Batches(spark, checkpoint, f"sink {name}")
        self._gate = gate
        self._delivered = replay.delivered if replay else BEFORE_FIRST
        if replay is not None and isinstance(deliver, FileSink):
            self._take_back(deliver, replay)

    def _take_back(self, files: FileSink, replay: Replay) -> None:
        """Remove what is delivered again, unless the replay is under way."""
        if self._batches.checkpoint.begun() <= replay.after:
            files.take_back(max(replay.after, replay.delivered))

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Deliver ``rows``; a batch that takes no epoch, or was delivered before a replay, is only computed."""
        with told_shortly(f"sink {self._name}: batch {batch_id}"):
            work = self._batches.work(batch_id)
            if work is None:
                compute(rows)
                return
            with passing(self._gate, work):
                if work.covers.last <= self._delivered:
                    compute(rows)
                else:
                    self._deliver(rows, work)


class FunctionSink:
    """Calls the user's function with the rows and, if it has such a parameter, the epoch.

    The rows are kept until the function returns: it may go through them as often as it likes, and the state of
    the operators before it is computed once, also if it does not look at the rows at all.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        parameters = inspect.signature(function).parameters
        self._rows = next(name for name in parameters if name != "epoch")
        self._takes_epoch = "epoch" in parameters

    def __call__(self, rows: DataFrame, work: Work) -> None:
        """Call the function with the last epoch that the batch covers."""
        held = kept(rows)
        try:
            epoch = {"epoch": work.covers.last} if self._takes_epoch else {}
            self._function(**{self._rows: held}, **epoch)
        except SystemExit as leaving:  # it would end the thread that Spark waits for, and nothing else
            raise BatchFailed(f"the sink's function called exit({leaving.code!r})") from leaving
        finally:
            held.unpersist()


def discard(rows: DataFrame, work: Work) -> None:
    """Compute the rows and take them nowhere."""
    compute(rows)


def kept(rows: DataFrame) -> DataFrame:
    """The rows, computed and kept until `unpersist`."""
    # A batch that was sorted says so in terms of columns that it no longer has, and Spark 4.3 stumbles over that
    # when it keeps the batch. Renaming the columns makes it forget; the mark makes the renaming more than a no-op.
    renamed = [
        F.col(quoted(field.name)).alias(field.name, metadata={**field.metadata, "tidelock.kept": True})
        for field in rows.schema
    ]
    held = rows.select(renamed).persist()
    compute(held)
    return held


class ConsoleSink:
    """Prints the rows of every epoch."""

    def __init__(self, name: str, rows: int = 20) -> None:
        self._name = name
        self._limit = rows

    def __call__(self, rows: DataFrame, work: Work) -> None:
        """Print the first rows as a table, under the epochs that they belong to."""
        held = kept(rows)
        try:
            print(f"-- {self._name}, epoch {work.covers}")
            held.show(self._limit, truncate=False)
        finally:
            held.unpersist()


class FileSink:
    """Writes Parquet, one directory per batch: ``epoch=<last epoch>``, with a manifest in it.

    A directory is written aside, synced and renamed, so it is there as a whole or not at all. Where renaming means
    copying (object stores), a kill in the middle leaves a part of it; so the manifest lists the files with their
    sizes, and a directory is believed only if it has exactly these. Spark reads the directory above them as one
    table with a column ``epoch``. What an earlier run wrote for the same work stays; what other work left under
    the same epoch (after a restore from a backup), or what is torn, is replaced.

    Of two runs that write to one path (a job that was taken for dead wakes up beside the one that was restored
    from its backup) the one that came first finds the other one's mark before it puts anything in place, and
    stops. So does a call that was given up and left alone, when another one has been made.

    Crash points: before the rename there is nothing of the epoch, or what was there before; between moving that
    away and the rename there is nothing; in each case the batch is delivered again, as Spark has not committed it.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._folder = Folder(spark, path)
        self._mark = uuid.uuid4().hex
        self._marked = False
        self._newest = ""

    def __call__(self, rows: DataFrame, work: Work) -> None:
        """Write the rows, unless that has been done.

        Raises:
            Fenced: somebody else has begun to write to this path.
        """
        self._take_over()
        target = f"epoch={work.covers.last}"
        if self._is_done(target, work):
            self._folder.sync_names()  # which who wrote it may not have lived to do
            compute(rows)
            return
        mine = self._newest = f"{_ASIDE}/{work.covers.last}-{uuid.uuid4().hex}"
        aside = f"{mine}/new"
        rows.write.parquet(f"{self._folder.location}/{aside}")
        self._folder.write(f"{aside}/{_MANIFEST}", seal({"work": identity(work), "files": self._tables(aside)}))
        self._folder.sync_tree(aside)
        self._check_newest(mine)
        self._replace(target, aside, f"{mine}/before")
        self._folder.sync_names()
        self._folder.remove(mine)

    def take_back(self, after: Epoch) -> None:
        """Remove the epochs behind ``after``: they are made again, perhaps with other rows."""
        if not self._folder.exists(""):
            return
        self._take_over()
        for name in self._folder.folders():
            found = _EPOCH.fullmatch(name)
            if found and int(found[1]) > after:
                self._folder.remove(name)
        self._folder.sync_names()

    def _take_over(self) -> None:
        """From now on whoever came before writes nothing more; what that has left aside goes."""
        if self._marked:
            return
        self._folder.make()
        self._folder.write(_WRITER, self._mark.encode())
        self._folder.remove(_ASIDE)
        self._marked = True

    def _check_newest(self, mine: str) -> None:
        """See that what is put in place is what somebody still waits for."""
        marked = self._folder.text(_WRITER) if self._folder.exists(_WRITER) else self._mark
        if marked != self._mark or mine != self._newest:
            self._folder.remove(mine)
            raise Fenced(
                f"{self._folder.location}: somebody else has begun to write there, so this run stops and leaves "
                "everything as it is; see which of the two is to go on"
            )

    def _replace(self, target: str, new: str, before: str) -> None:
        moved = self._folder.exists(target)
        if moved:
            self._folder.rename(target, before)
        try:
            self._folder.rename(new, target)
        except BaseException:
            if moved:
                self._folder.rename(before, target)
            raise

    def _is_done(self, target: str, work: Work) -> bool:
        """Whether a directory has what this very work wrote, all of it and nothing else."""
        name = f"{target}/{_MANIFEST}"
        if not self._folder.exists(name):
            return False
        try:
            recorded = unseal(self._folder.text(name).encode(), name, dict)
        except LogCorrupt:
            return False
        return recorded.get("work") == identity(work) and recorded.get("files") == self._tables(target)

    def _tables(self, folder: str) -> dict[str, int]:
        """The files with rows in a directory, with their sizes."""
        return {name: size for name, size in self._folder.files(folder).items() if name.endswith(".parquet")}


_MANIFEST = "_manifest.json"
_ASIDE = ".aside"
_WRITER = ".writer"
"""The mark of the run that writes there; Spark passes over names that begin with a dot."""
_EPOCH = re.compile(r"epoch=(\d+)")


def identity(work: Work) -> dict[str, Any]:
    """The work as it looks after a trip through JSON."""
    fields = {**asdict(work), "covers": _pair(work.covers)}
    fields["inputs"] = [{"log": i.log, "name": i.name, "covers": _pair(i.covers)} for i in work.inputs]
    return dict(json.loads(json.dumps(fields)))


def _pair(covers: EpochRange) -> list[int]:
    return [covers.first, covers.last]
