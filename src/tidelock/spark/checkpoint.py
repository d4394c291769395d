"""What a query's own checkpoint says about a batch. Spark writes it before the batch runs.

`offsets/<batch>` has the version, one line of metadata (the batch's watermark among it) and one line for every
source: the offset at which the batch ends there.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import PipelineError
from tidelock.log.window import InputRange
from tidelock.spark.filesystem import Folder


@dataclass(frozen=True)
class BatchOffsets:
    """The sources' end offsets of one batch, and the watermark under which it runs."""

    watermark_ms: int
    sources: tuple[dict[str, Any], ...]

    @property
    def follows_logs(self) -> bool:
        """Whether every source is an epoch log, so that the batch has their epochs."""
        return bool(self.sources) and len(self._logs) == len(self.sources)

    def last_epoch(self, batch: int) -> Epoch:
        """The epoch at which this batch, of that number, ends."""
        return max(Epoch(log["epoch"]) for log in self._logs) if self.follows_logs else Epoch(batch)

    @property
    def advance_together(self) -> bool:
        """Whether all logs of the query are read as one group, so that they take the same epochs."""
        return all(log["together"] == len(self._logs) for log in self._logs)

    def inputs(self, before: BatchOffsets | None) -> tuple[InputRange, ...]:
        """The epochs of input logs that this batch takes and the one before it did not."""
        return tuple(found for log in self._taken(before) if (found := _input_range(log)) is not None)

    def covers(self, before: BatchOffsets | None) -> frozenset[EpochRange]:
        """The query's epochs that this batch takes from each of its logs: one range, if they go together."""
        return frozenset(_epochs(log) for log in self._taken(before))

    def _taken(self, before: BatchOffsets | None) -> list[dict[str, Any]]:
        old = before.sources if before else ()
        return [log for log in self._logs if log not in old and log["epoch"] > log["start"]]

    @property
    def is_first(self) -> bool:
        """Whether nothing was taken from any log before this batch."""
        return all(log["start"] == BEFORE_FIRST for log in self._logs)

    @property
    def identities(self) -> dict[str, str]:
        """By their names, the identities of the logs that are read."""
        return {log["name"]: log["tidelock"] for log in self._logs}

    @property
    def _logs(self) -> list[dict[str, Any]]:
        """The offsets that `TidelockSource` made; a Kafka topic of that name has no text as its value."""
        return [s for s in self.sources if isinstance(s.get("tidelock"), str)]


class Checkpoint:
    """The checkpoint directory of a query; a local one is read directly and needs no session."""

    def __init__(self, spark: SparkSession | None, location: str) -> None:
        self._spark = spark
        self.location = location.rstrip("/")

    def query_id(self) -> str:
        """The identity of the query: the same in every run on this checkpoint."""
        return str(json.loads(self._text("metadata"))["id"])

    def offsets(self, batch: int) -> BatchOffsets:
        """The offsets of a batch that runs or has run."""
        version, metadata, *sources = self._text(f"offsets/{batch}").splitlines()
        if version != "v1":
            raise PipelineError(
                f"{self.location}: the offset log has version {version}, and Tidelock reads v1: leave "
                "spark.sql.streaming.offsetLog.formatVersion at 1"
            )
        # A stream that stands twice in a plan is one source, but has two lines.
        ends = tuple(_parse(line) for line in dict.fromkeys(sources) if line != "-")
        return BatchOffsets(json.loads(metadata)["batchWatermarkMs"], ends)

    def committed(self) -> dict[int, Epoch]:
        """The committed batches that Spark still knows, oldest first, each with the epoch at which it ends."""
        kept = self._numbers("offsets") & self._numbers("commits")
        return {batch: self.offsets(batch).last_epoch(batch) for batch in sorted(kept)}

    def committed_batches(self, after: int) -> list[int]:
        """The committed batches behind ``after`` of which Spark still knows where they begin and end."""
        known = self._numbers("offsets")
        return sorted(n for n in self._numbers("commits") & known if n > after and (n == 0 or n - 1 in known))

    def is_committed(self, batch: int) -> bool:
        """Whether Spark has finished the batch for good."""
        return batch in self._numbers("commits")

    def position(self) -> Epoch:
        """The newest committed epoch."""
        newest = max(self._numbers("offsets") & self._numbers("commits"), default=None)
        return BEFORE_FIRST if newest is None else self.offsets(newest).last_epoch(newest)

    def begun(self) -> Epoch:
        """The epoch at which the newest batch ends that was begun, whether it is committed or not."""
        newest = max(self._numbers("offsets"), default=None)
        return BEFORE_FIRST if newest is None else self.offsets(newest).last_epoch(newest)

    def newest_identities(self) -> dict[str, str]:
        """By their names, the identities of the logs that the newest batch has read."""
        newest = max(self._numbers("offsets"), default=None)
        return {} if newest is None else self.offsets(newest).identities

    def roll_back(self, batch: int | None) -> None:
        """Forget what came after ``batch``, or everything but the query's identity. Only for a local directory.

        Spark then runs the next batch as if the later ones had never been. What sources remember stays: a query
        that begins anew begins where it did. Idempotent: it can be done again if it was cut off.
        """
        if batch is None:
            # With everything that is in there, also what a killed query has left unfinished: Spark begins a query
            # only where these are empty.
            for folder in ("offsets", "commits", "state"):
                shutil.rmtree(self._local() / folder, ignore_errors=True)
            return
        for folder in ("offsets", "commits"):
            for number in self._numbers(folder):
                if number > batch:
                    _remove(self._local() / folder / str(number))
        for file in (self._local() / "state").rglob("*.*"):
            version = _STATE_FILE.match(file.name)
            if version and int(version[1]) > batch + 1:  # a batch leaves the state's next version
                _remove(file)

    def clear_beginning(self) -> None:
        """Remove what a query has left that was killed before its first batch had begun: Spark would not start."""
        if self._is_local and not self._numbers("offsets"):
            self.roll_back(None)

    def _numbers(self, folder: str) -> set[int]:
        return {int(name) for name in self._names(folder) if name.isdecimal()}

    def _names(self, folder: str) -> list[str]:
        if not self._is_local:
            found = self._folder()
            return list(found.files(folder)) if found.exists(folder) else []
        directory = self._local() / folder
        return [file.name for file in directory.iterdir()] if directory.exists() else []

    def _text(self, name: str) -> str:
        return (self._local() / name).read_text() if self._is_local else self._folder().text(name)

    @property
    def _is_local(self) -> bool:
        return urlparse(self.location).scheme in ("", "file")

    def _local(self) -> Path:
        return Path(unquote(urlparse(self.location).path))

    def _folder(self) -> Folder:
        if self._spark is None:
            raise PipelineError(f"{self.location}: only a Spark session can look into this checkpoint")
        return Folder(self._spark, self.location)


_STATE_FILE = re.compile(r"(\d+)\.(delta|snapshot|zip|changelog)$")


def _remove(file: Path) -> None:
    """Remove a file and the checksum that Hadoop keeps beside it."""
    file.unlink(missing_ok=True)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _epochs(log: Mapping[str, Any]) -> EpochRange:
    return EpochRange.after(Epoch(log["start"]), Epoch(log["epoch"]))


def _input_range(log: Mapping[str, Any]) -> InputRange | None:
    """The epochs of the log itself; None if the batch takes none, as the first one of a log with a lag does."""
    if "at" in log:  # one of several subjects, each with epochs of its own
        first, last = log["from"][log["tidelock"]], log["at"][log["tidelock"]]
        if last == first:
            return None
        return InputRange(log["tidelock"], log["name"], EpochRange.after(Epoch(first), Epoch(last)))
    lag = log.get("lag", 0)
    last = log["epoch"] - lag
    if last < 0:
        return None
    first = max(0, log["start"] + 1 - lag)
    return InputRange(log["tidelock"], log["name"], EpochRange(Epoch(first), Epoch(last)))


def _parse(line: str) -> dict[str, Any]:
    offset = json.loads(line)
    return offset if isinstance(offset, dict) else {"offset": offset}
