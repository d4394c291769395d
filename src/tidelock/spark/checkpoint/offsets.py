"""What a query's own checkpoint says about a batch. Spark writes it before the batch runs. Pure.

`offsets/<batch>` has the version, one line of metadata (the batch's watermark among it) and one line for every
source: the offset at which the batch ends there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
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
