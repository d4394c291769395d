"""Parquet files as a sink: a directory for each batch, exactly once."""

from __future__ import annotations

import re
import uuid

from pyspark.sql import DataFrame, SparkSession

from tidelock.epochs import Epoch
from tidelock.errors import Fenced, LogCorrupt
from tidelock.log.sealed import seal, unseal
from tidelock.spark.checkpoint.filesystem import Folder
from tidelock.spark.query.batches import Work
from tidelock.spark.query.queries import compute
from tidelock.spark.sinks.sink import Sink


class FileSink(Sink):
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

    keeps_rows = False

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._folder = Folder(spark, path)
        self._mark = uuid.uuid4().hex
        self._marked = False
        self._newest = ""

    def deliver(self, rows: DataFrame, work: Work) -> None:
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
        self._folder.write(f"{aside}/{_MANIFEST}", seal({"work": work.identity(), "files": self._tables(aside)}))
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
        return recorded.get("work") == work.identity() and recorded.get("files") == self._tables(target)

    def _tables(self, folder: str) -> dict[str, int]:
        """The files with rows in a directory, with their sizes."""
        return {name: size for name, size in self._folder.files(folder).items() if name.endswith(".parquet")}


_MANIFEST = "_manifest.json"
_ASIDE = ".aside"
_WRITER = ".writer"
"""The mark of the run that writes there; Spark passes over names that begin with a dot."""
_EPOCH = re.compile(r"epoch=(\d+)")
