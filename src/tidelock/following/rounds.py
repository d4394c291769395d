"""Several logs in one query: how its inputs take the same epochs, although each is asked on its own.

Spark asks every source of a query once per round, one after the other, where the next batch ends; each source
lives in a process of its own. The first one that is asked decides for all of them and writes the decision down;
the others find it and follow, also when it says "nothing yet" and more has arrived in between.

A decision is known by its round (how often this source has been asked since it started) and by the position it
starts from. All sources of a query start together and are asked equally often, so in round *k* they look for
the same key. What an earlier run left behind does no harm: either its key differs and it is overwritten, or all
sources of the new run find it and follow it alike.

A log may be read with a lag: epoch *n* of the query then takes epoch *n* - lag of that log. That is how a feedback
edge returns what the query has sent downstream one epoch ago. Decisions are in the query's own epochs.

A query that was rolled back ends its batches where they had ended before, as long as the logs allow it: what it
publishes again then has the same epochs as what others may have read already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.errors import PipelineError
from tidelock.log.documents import round_name
from tidelock.log.log import EpochLog, lost
from tidelock.log.sealed import seal, unseal
from tidelock.log.window import next_boundary

ALL_EPOCHS = 0
"""As a number of epochs per batch: everything that is there."""


@dataclass(frozen=True)
class Decision:
    """A batch takes the epochs behind ``start`` up to ``end``; nothing if they are equal."""

    start: Epoch
    end: Epoch


@dataclass
class Reading:
    """One log of a query, read ``lag`` epochs behind the query's own."""

    log: EpochLog
    lag: int = 0
    tail: Epoch | None = field(default=None, init=False)
    """The newest epoch of the log when it was last looked at; None if it was always empty."""
    _entries: dict[Epoch, EpochRange] = field(default_factory=dict, init=False)

    def _ranges(self) -> list[EpochRange]:
        """What the log holds.

        Raises:
            LogCorrupt: the log is gone, or empty although it had entries: a log always keeps its newest one.
        """
        ranges = self.log.ranges()
        if ranges:
            self.tail = ranges[-1].last
        else:
            self.log.check_there()
            if self.tail is not None:
                raise lost(self.log.shown, f"all of its epochs, up to {self.tail}")
        return ranges

    def ends(self) -> list[Epoch]:
        """The query's epochs at which a batch may end, as far as this log is concerned."""
        ranges = self._ranges()
        # What lies before the log's first entry is a boundary too: with a lag the first batch ends there.
        before = Epoch(ranges[0].first - 1) if ranges else BEFORE_FIRST
        ends = [Epoch(before + self.lag)] if self.lag else []
        self._entries = {Epoch(covers.last + self.lag): covers for covers in ranges}
        return [*ends, *self._entries]

    def published_at(self, end: Epoch) -> float:
        """When the entry was published that ends at an epoch of the query, one of the newest `ends`."""
        return self.log.manifest(self._entries[end]).published_at

    def before(self) -> Epoch:
        """The query's epoch right before the first that this log still has all for."""
        ranges = self._ranges()
        if not ranges or ranges[0].first == 0:
            return BEFORE_FIRST
        return Epoch(ranges[0].first - 1 + self.lag)


class Rounds:
    """The rounds of one query over one or more logs. Each source of the query has its own object.

    ``replayed`` has epochs at which batches had ended before the query was rolled back: they end there again.
    """

    def __init__(self, readings: Sequence[Reading], consumer: str | None, replayed: Sequence[Epoch] = ()) -> None:
        self._readings = sorted(readings, key=lambda reading: reading.log.header.id)
        self._replayed = replayed
        self._consumer = consumer
        self._document = round_name(str(consumer))
        self._number = 0
        self._limit: Epoch | None = None

    def stop_at_present(self) -> None:
        """From now on decide nothing beyond what is published in all logs at this moment."""
        self._limit = self.newest()

    def newest(self) -> Epoch:
        """The newest epoch that a batch could reach now: a boundary in every log."""
        ends = [set(reading.ends()) for reading in self._readings]
        return max(set.intersection(*ends), default=BEFORE_FIRST)

    def is_short(self, start: Epoch, epochs: int) -> bool:
        """Whether what the logs hold behind ``start`` is less than a batch, which is to take so many epochs."""
        newest, known = self.newest(), self._known_end(start)
        return newest < (start + epochs if known is None else known)

    def _known_end(self, start: Epoch) -> Epoch | None:
        """Where the next batch had ended before; None if nothing is replayed, or the logs are cut otherwise."""
        known = next((end for end in self._replayed if end > start), None)
        if known is None:
            return None
        common = set.intersection(*(set(reading.ends()) for reading in self._readings))
        return known if known in common or max(common, default=BEFORE_FIRST) < known else None

    def first(self, starting: str) -> Epoch:
        """The position from which a new query starts: ``earliest``, ``latest`` or an epoch's number.

        Nothing behind it goes any more: a consumer with a name is registered before the logs are looked at.
        """
        if self._consumer is not None:
            for reading in self._readings:
                reading.log.register(self._consumer)
        if starting == "latest":
            return self.newest()
        earliest = self._earliest()
        if starting == "earliest":
            return earliest
        asked = Epoch(int(starting) - 1)
        if asked < earliest:
            raise PipelineError(
                f"{self._first_log.shown}: epoch {starting} is gone, the oldest that is left is {earliest + 1}: "
                "start from `earliest`"
            )
        return asked

    def decide(self, key: Any, start: Callable[[], Epoch], epochs: int) -> Decision:
        """Where this round's batch starts and ends; the same answer for every source of the query.

        ``key`` is the position that Spark gave, as it is; ``start`` resolves it and is asked only by the source
        that decides.
        """
        self._number += 1
        if len(self._readings) == 1:
            return self._end(start(), epochs)
        name = json.dumps([self._number, key], sort_keys=True)
        found = self._find(name)
        if found is not None:
            return found
        decision = self._end(start(), epochs)
        self._first_log.store.put(
            self._document,
            seal({"key": name, "start": decision.start, "end": decision.end}),
            durable=False,
        )
        return decision

    def _find(self, name: str) -> Decision | None:
        data = self._first_log.store.get(self._document)
        if data is None:
            return None
        key, decision = unseal(data, f"{self._first_log.shown}: {self._document}", _parse)
        # An earlier run may have left it, and what it is about may be gone since.
        if key != name or decision.end > self.newest():
            return None
        return decision if decision.end == decision.start or decision.start >= self._earliest() else None

    def _end(self, start: Epoch, epochs: int) -> Decision:
        if start == BEFORE_FIRST:
            start = self._earliest()  # a log may begin at a later epoch than 0
        known = self._known_end(start)
        ends = [reading.ends() for reading in self._readings]
        if known is not None and (epochs != ALL_EPOCHS or all(known in some for some in ends)):
            return Decision(start, known if all(known in some for some in ends) else start)
        if self._limit is not None:
            ends = [[end for end in some if end <= self._limit] for some in ends]
        if epochs == ALL_EPOCHS:
            end = max(set.intersection(*map(set, ends)), default=None)
        else:
            end = next_boundary(start, ends, epochs, remainder=self._limit is not None)
        return Decision(start, start if end is None else max(start, end))

    def _earliest(self) -> Epoch:
        return max(reading.before() for reading in self._readings)

    @property
    def _first_log(self) -> EpochLog:
        return self._readings[0].log


def _parse(fields: dict[str, Any]) -> tuple[str, Decision]:
    return fields["key"], Decision(Epoch(fields["start"]), Epoch(fields["end"]))
