"""The checkpoint of a query: which batches it has begun and committed, and forgetting what came after one of them.

What its files are called is in `layout`, and which of them a batch needs, so that it is safe, in `versions`.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import BackendUnavailable, LogCorrupt, PipelineError
from tidelock.placing import put_file, remove_tree, sync_folder
from tidelock.spark.checkpoint.file_sources import unplanned_steps
from tidelock.spark.checkpoint.filesystem import Folder
from tidelock.spark.checkpoint.formats import check_state_files, log_lines, parsed, torn
from tidelock.spark.checkpoint.layout import (
    COMMITS,
    METADATA,
    OF_QUERY_RUN,
    OFFSETS,
    STATE,
    LogFile,
    batch_numbers,
    belongs,
    checksum_name,
    commit_file,
    is_numbered,
    offsets_file,
)
from tidelock.spark.checkpoint.offsets import BatchOffsets


class Checkpoint:
    """The checkpoint directory of a query; a local one is read directly and needs no session."""

    def __init__(self, spark: SparkSession | None, location: str) -> None:
        self._spark = spark
        self.location = location.rstrip("/")

    def query_id(self) -> str:
        """The identity of the query: the same in every run on this checkpoint."""
        return str(parsed(self._text(METADATA), f"{self.location}/{METADATA}")["id"])

    def offsets(self, batch: int) -> BatchOffsets:
        """The offsets of a batch that runs or has run.

        Raises:
            UnsupportedFormat: they are of another version than the one that is known.
            LogCorrupt: the file is torn.
        """
        name = offsets_file(batch)
        where = f"{self.location}/{name}"
        metadata, *sources = log_lines(self._text(name), where)
        if not sources:
            raise torn(where)
        watermark = parsed(metadata, where)["batchWatermarkMs"]
        # A stream that stands twice in a plan is one source, but has two lines.
        return BatchOffsets(watermark, tuple(_end(line, where) for line in dict.fromkeys(sources) if line != "-"))

    def check_commit(self, batch: int) -> None:
        """See that what Spark has written of a finished batch can be read.

        Raises:
            UnsupportedFormat: it is of another version than the one that is known.
            LogCorrupt: the file is torn.
        """
        self._metadata(commit_file(batch))

    def check_newest(self) -> None:
        """See that the newest files of both logs can be read, from which Spark goes on.

        Raises:
            UnsupportedFormat: one is of another version than the one that is known.
            LogCorrupt: one is torn.
        """
        if begun := self._numbers(OFFSETS):
            self.offsets(max(begun))
        if done := self._numbers(COMMITS):
            self.check_commit(max(done))

    def check_state(self) -> None:
        """See that the names of all state files are known. Only for a local directory.

        Raises:
            UnsupportedFormat: one is not.
        """
        root = self._local()
        check_state_files((file.relative_to(root).as_posix() for file in _files(root / STATE)), self.location)

    def logged(self) -> list[LogFile]:
        """The files of both logs, in the order in which Spark writes them: of each batch offsets, then commit."""
        begun = [LogFile(batch, is_commit=False) for batch in self._numbers(OFFSETS)]
        return sorted([*begun, *(LogFile(batch, is_commit=True) for batch in self._numbers(COMMITS))])

    def is_torn(self, file: LogFile) -> bool:
        """Whether a file of one of the logs is empty or ends too early.

        Raises:
            UnsupportedFormat: it is of another version than the one that is known.
        """
        read = self.check_commit if file.is_commit else self.offsets
        try:
            read(file.batch)
        except LogCorrupt:
            return True
        return False

    def files(self, batch: int) -> list[str]:
        """The files of the batches up to ``batch``, also while the query runs. Only for a local directory.

        Those that belong to no batch are listed last, and all others are looked for again after that: an archive
        that is still there has what it refers to among them.
        """
        root = self._local()
        numbered = [path for path in _walk(root) if is_numbered(path) and belongs(path, batch)]
        others = [path for path in _walk(root) if not is_numbered(path) and belongs(path, batch)]
        return [*others, *(path for path in numbered if (root / path).exists())]

    def drop(self, file: LogFile) -> None:
        """Remove a file of one of the logs. Only for a local directory. Idempotent."""
        _remove(self._local() / file.path)

    def committed(self) -> dict[int, Epoch]:
        """The committed batches that Spark still knows, oldest first, each with the epoch at which it ends."""
        kept = self._numbers(OFFSETS) & self._numbers(COMMITS)
        return {batch: self.offsets(batch).last_epoch(batch) for batch in sorted(kept)}

    def committed_batches(self, after: int) -> list[int]:
        """The committed batches behind ``after`` of which Spark still knows where they begin and end."""
        known = self._numbers(OFFSETS)
        return sorted(n for n in self._numbers(COMMITS) & known if n > after and (n == 0 or n - 1 in known))

    def has_committed(self) -> bool:
        """Whether Spark has finished any batch."""
        return bool(self._numbers(COMMITS))

    def is_committed(self, batch: int) -> bool:
        """Whether Spark has finished the batch for good, also one that it has forgotten since."""
        return batch <= max(self._numbers(COMMITS), default=-1)

    def has_begun(self, batch: int) -> bool:
        """Whether Spark still knows where the batch begins and ends."""
        return batch in self._numbers(OFFSETS)

    def position(self) -> Epoch:
        """The newest committed epoch."""
        newest = self.newest_committed()
        return BEFORE_FIRST if newest is None else self.offsets(newest).last_epoch(newest)

    def begun(self) -> Epoch:
        """The epoch at which the newest batch ends that was begun, whether it is committed or not."""
        newest = max(self._numbers(OFFSETS), default=None)
        return BEFORE_FIRST if newest is None else self.offsets(newest).last_epoch(newest)

    def farthest(self) -> Epoch:
        """As `begun`, but torn offsets are passed over."""
        for batch in sorted(self._numbers(OFFSETS), reverse=True):
            with suppress(LogCorrupt):
                return self.offsets(batch).last_epoch(batch)
        return BEFORE_FIRST

    def shuffle_partitions(self) -> int | None:
        """The number of shuffle partitions that the query has had since its first batch; None if it had none."""
        newest = self.newest_begun()
        if newest < 0:
            return None
        kept = self._metadata(offsets_file(newest)).get("conf", {})
        found = kept.get("spark.sql.shuffle.partitions")
        return None if found is None else int(found)

    def newest_begun(self) -> int:
        """The number of the newest batch that was begun, whether it is committed or not; -1 if there is none."""
        return max(self._numbers(OFFSETS), default=-1)

    def newest_identities(self) -> dict[str, str]:
        """By their names, the identities of the logs that the newest batch has read."""
        newest = max(self._numbers(OFFSETS), default=None)
        return {} if newest is None else self.offsets(newest).identities

    def half_done(self) -> list[int]:
        """The batches that were begun and not committed."""
        newest = self.newest_committed()
        return sorted(n for n in self._numbers(OFFSETS) if newest is None or n > newest)

    def watermark_has_moved(self) -> bool:
        """Whether the next batch, also an empty one, has a later watermark than the newest that was committed."""
        newest = self.newest_committed()
        return newest is not None and self.next_watermark(newest) > self.offsets(newest).watermark_ms

    def begin_empty_batch(self) -> None:
        """Let the query begin, when it is started, with one more batch that takes nothing from its sources.

        Spark finds the offsets of a batch that was not committed, the same as those of the one before, and runs it
        under the watermark that the one before has left. A batch that was begun already stays what it is. Only for
        a local directory of a query that does not run and has committed a batch. Durable, idempotent.
        """
        newest = self.newest_committed()
        if newest is None or newest + 1 in self._numbers(OFFSETS):
            return
        name = offsets_file(newest)
        version, _, *sources = self._text(name).splitlines()
        metadata = self._metadata(name)
        metadata["batchWatermarkMs"] = self.next_watermark(newest)
        metadata["batchTimestampMs"] = int(time.time() * 1000)
        text = "\n".join([version, json.dumps(metadata, separators=(",", ":")), *sources])
        put_file(self._local() / offsets_file(newest + 1), text.encode(), durable=True)

    def next_watermark(self, batch: int) -> int:
        """The watermark that a committed batch has left for the next one."""
        return int(self._metadata(commit_file(batch))["nextBatchWatermarkMs"])

    def newest_committed(self) -> int | None:
        """The number of the newest batch that was committed; None if there is none."""
        return max(self._numbers(OFFSETS) & self._numbers(COMMITS), default=None)

    def roll_back(self, batch: int | None) -> None:
        """Forget what came after ``batch``, or everything but the query's identity. Only for a local directory.

        Spark then runs the next batch as if the later ones had never been. What sources remember stays: a query
        that begins anew begins where it did. Durable. Idempotent: it can be done again if it was cut off.

        Raises:
            BackendUnavailable: something could not be removed; it is not done, and has to be done again.
        """
        try:
            if batch is None:
                self._forget_all()
            else:
                self._forget_after(batch)
        except OSError as error:
            raise BackendUnavailable(
                f"{self.location} could not be rolled back ({error}): see that this process may write there, and "
                "start again, which goes on with it"
            ) from error

    def _forget_all(self) -> None:
        # With everything that is in there, also what a killed query has left unfinished: Spark begins a query only
        # where these are empty.
        for folder in OF_QUERY_RUN:
            remove_tree(self._local() / folder, durable=True)

    def _forget_after(self, batch: int) -> None:
        # Only the state is looked through: nothing else has folders in which Spark keeps files of batches.
        state = (file.relative_to(self._local()).as_posix() for file in _files(self._local() / STATE))
        found = [*(file.path for file in self.logged()), *state]
        later = [path for path in found if is_numbered(path) and not belongs(path, batch)]
        files = [self._local() / path for path in later]
        for file in files:
            _remove(file)
        for folder in sorted({file.parent for file in files}):
            sync_folder(folder)

    def clear_beginning(self) -> None:
        """Remove what a query has left that ended before a batch had begun.

        Without a first batch Spark would not start, and its file source would put two epochs into one. Only for a
        query that does not run. Idempotent.
        """
        if not self._is_local:
            return
        newest = self.newest_begun()
        if newest < 0:
            self.roll_back(None)
        ends = (
            []
            if newest < 0
            else log_lines(self._text(offsets_file(newest)), f"{self.location}/{offsets_file(newest)}")
        )
        for step in unplanned_steps(self._local(), ends[1:]):
            _remove(step)

    def _numbers(self, folder: str) -> set[int]:
        return batch_numbers(self._names(folder))

    def _names(self, folder: str) -> list[str]:
        if not self._is_local:
            found = self._folder()
            return list(found.files(folder)) if found.exists(folder) else []
        directory = self._local() / folder
        return [file.name for file in directory.iterdir()] if directory.exists() else []

    def _metadata(self, name: str) -> dict[str, Any]:
        """What a file of one of Spark's two logs says of its batch."""
        where = f"{self.location}/{name}"
        return dict(parsed(log_lines(self._text(name), where)[0], where))

    def _text(self, name: str) -> str:
        if not self._is_local:
            return self._folder().text(name)
        try:
            return (self._local() / name).read_text()
        except UnicodeDecodeError:
            raise torn(f"{self.location}/{name}") from None

    @property
    def _is_local(self) -> bool:
        return urlparse(self.location).scheme in ("", "file")

    def _local(self) -> Path:
        # As Hadoop reads it: behind the scheme a path has no escapes, and neither # nor ? ends it.
        return Path(_LOCAL.sub("", self.location))

    def _folder(self) -> Folder:
        if self._spark is None:
            raise PipelineError(f"{self.location}: only a Spark session can look into this checkpoint")
        return Folder(self._spark, self.location)


_LOCAL = re.compile(r"\Afile:(//[^/]*)?")


def _remove(file: Path) -> None:
    """Remove a file and the checksum that Hadoop keeps beside it."""
    file.unlink(missing_ok=True)
    file.with_name(checksum_name(file.name)).unlink(missing_ok=True)


def _end(line: str, where: str) -> dict[str, Any]:
    offset = parsed(line, where)
    return offset if isinstance(offset, dict) else {"offset": offset}


def _walk(root: Path) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        base = Path(folder).relative_to(root)
        yield from ((base / name).as_posix() for name in names)


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file())
