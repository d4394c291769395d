"""Which other plan a home can go on with: the rules, without the home.

A segment that computes the same operators from the same logs as before is kept with all that it has. Every other
segment of the new plan is a new query, and a new query starts with nothing but a position. So

* state does not move: an operator that keeps state has to stay in a segment that is kept;
* a position in sources goes over only to a segment that reads exactly the same sources. Heads therefore stay as
  many as they are, and with that also whether their sources are united with ticks;
* a watermark is one number per query. It goes over if it is the only one of the query that has it and of the query
  that gets it. A segment that only reads watermarks from its logs finds them there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidelock.errors import PlanError
from tidelock.home.home import Record, SegmentRecord
from tidelock.topology import Kind, Topology, Traits
from tidelock.topology.names import listed


def kept_segments(before: Record, after: Record) -> tuple[str, ...]:
    """The segments that are the same in both."""
    return tuple(segment.name for segment in after.segments if segment in before.segments)


@dataclass(frozen=True)
class Transition:
    """The way from what a home remembers to what it is to remember."""

    before: Record
    after: Record
    topology: Topology
    traits: Mapping[str, Traits]

    @property
    def kept(self) -> tuple[str, ...]:
        """The segments that go on as they are."""
        return kept_segments(self.before, self.after)

    @property
    def changed(self) -> tuple[str, ...]:
        """The segments that keep their name, and nothing else."""
        return tuple(s.name for s in self.made if s.name in _names(self.before))

    @property
    def added(self) -> tuple[str, ...]:
        """The segments of the new plan whose names are new."""
        return tuple(s.name for s in self.made if s.name not in _names(self.before))

    @property
    def removed(self) -> tuple[str, ...]:
        """The segments of the old plan whose names are gone."""
        return tuple(s.name for s in self.before.segments if s.name not in _names(self.after))

    @property
    def made(self) -> tuple[SegmentRecord, ...]:
        """The segments of the new plan that need a new checkpoint."""
        return tuple(s for s in self.after.segments if s.name not in self.kept)

    @property
    def ended(self) -> tuple[SegmentRecord, ...]:
        """The segments of the old plan that do not go on as they are."""
        return tuple(s for s in self.before.segments if s.name not in self.kept)

    def check(self) -> None:
        """See that the home can take this way.

        Raises:
            PlanError: it cannot; the message says what is in the way, and what to do.
        """
        for fault in (*self._moved_state(), *self._moved_sources(), *self._mixed_watermarks()):
            raise PlanError(fault)

    # -- where something comes from

    def sources(self, segment: SegmentRecord) -> frozenset[str]:
        """The sources that a segment reads; none if it reads logs."""
        return frozenset(name for name in segment.operators if self.topology.node(name).kind is Kind.SOURCE)

    def head_before(self, segment: SegmentRecord) -> str | None:
        """The segment of the old plan that reads exactly the sources of this one; None if this one reads logs."""
        sources = self.sources(segment)
        return next((s.name for s in self.before.segments if sources and self.sources(s) == sources), None)

    def clock_before(self, segment: SegmentRecord) -> str | None:
        """The segment of the old plan that has the watermark which this one declares; None if it declares none."""
        return next((_home(self.before, name).name for name in self._declared(segment)), None)

    def _declared(self, segment: SegmentRecord) -> list[str]:
        return [name for name in segment.operators if self._trait(name).watermark]

    def _clocks(self, segment: SegmentRecord) -> list[str]:
        """The operators and logs that bring a watermark into the query of a segment."""
        return self._declared(segment) + [log for log, lag in segment.inputs if not lag and self._is_timed(log)]

    def _is_timed(self, log: str) -> bool:
        return any(self._trait(one).watermark for one in {log} | self.topology.ancestors(log))

    def _trait(self, name: str) -> Traits:
        return self.traits.get(name, Traits())

    # -- what is in the way

    def _moved_state(self) -> Iterator[str]:
        for segment in self.ended:
            for name in segment.operators:
                if self._trait(name).stateful:
                    yield (
                        f"operator {name} keeps state, and the plan moves it from segment {_told(segment)} to "
                        f"segment {_told(_home(self.after, name))}. State stays with the query that has made "
                        f"it: keep {listed(segment.operators)} together, with the same inputs, or use a new home"
                    )

    def _moved_sources(self) -> Iterator[str]:
        for segment in self.made:
            sources = self.sources(segment)
            if sources and self.head_before(segment) is None:
                yield (
                    f"segment {segment.name} would read {listed(sorted(sources))} in one query, and no segment of "
                    f"this home does. Where a query stands in its sources goes over to a query with the same "
                    f"sources only: leave the sources together, and apart, as they are, or use a new home"
                )

    def _mixed_watermarks(self) -> Iterator[str]:
        for segment in self.made:
            for name in self._declared(segment):
                old = _home(self.before, name)
                clocks = max(self._clocks(segment), self._clocks(old), key=len)
                if len(clocks) > 1:
                    yield (
                        f"operator {name} declares a watermark, and the plan moves it from segment {_told(old)} "
                        f"to segment {_told(segment)}, with {listed(clocks)} as clocks of one query. Spark "
                        "remembers one watermark per query, so theirs would be lost: leave this segment as it is, "
                        "or use a new home"
                    )


def _home(record: Record, operator: str) -> SegmentRecord:
    return next(segment for segment in record.segments if operator in segment.operators)


def _names(record: Record) -> set[str]:
    return {segment.name for segment in record.segments}


def _told(segment: SegmentRecord) -> str:
    return f"{segment.name} ({', '.join(segment.operators)})"
