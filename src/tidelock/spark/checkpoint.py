"""What a query's own checkpoint says about a batch. Spark writes it before the batch runs.

`offsets/<batch>` has the version, one line of metadata (the batch's watermark among it) and one line for every
source: the offset at which the batch ends there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import PipelineError
from tidelock.log.window import InputRange


@dataclass(frozen=True)
class BatchOffsets:
    """The sources' end offsets of one batch, and the watermark under which it runs."""

    watermark_ms: int
    sources: tuple[dict[str, Any], ...]

    @property
    def follows_logs(self) -> bool:
        """Whether every source is an epoch log, so that the batch has their epochs."""
        return bool(self.sources) and len(self._logs) == len(self.sources)

    @property
    def advance_together(self) -> bool:
        """Whether all logs of the query are read as one group, so that they take the same epochs."""
        return all(log["together"] == len(self._logs) for log in self._logs)

    def inputs(self, before: BatchOffsets | None) -> tuple[InputRange, ...]:
        """The epochs of input logs that this batch takes and the one before it did not."""
        old = before.sources if before else ()
        taken = [log for log in self._logs if log not in old and log["epoch"] > log["start"]]
        return tuple(
            InputRange(
                log["tidelock"],
                log["name"],
                EpochRange.after(Epoch(log["start"]), Epoch(log["epoch"])),
            )
            for log in taken
        )

    @property
    def _logs(self) -> list[dict[str, Any]]:
        """The offsets that `TidelockSource` made; a Kafka topic of that name has no text as its value."""
        return [s for s in self.sources if isinstance(s.get("tidelock"), str)]


class Checkpoint:
    """The checkpoint directory of a query; local paths are read directly, others through Hadoop."""

    def __init__(self, spark: SparkSession, location: str) -> None:
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

    def _text(self, name: str) -> str:
        parsed = urlparse(self.location)
        if parsed.scheme in ("", "file"):
            return (Path(unquote(parsed.path)) / name).read_text()
        jvm: Any = self._spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{self.location}/{name}")
        jsc: Any = self._spark.sparkContext._jsc
        stream = path.getFileSystem(jsc.hadoopConfiguration()).open(path)
        try:
            return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()


def _parse(line: str) -> dict[str, Any]:
    offset = json.loads(line)
    return offset if isinstance(offset, dict) else {"offset": offset}
