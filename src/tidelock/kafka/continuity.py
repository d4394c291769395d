"""Whether a topic still goes on from where it was read to: what is missing is told, never stepped over. Pure.

A position in a topic is an offset of every partition. It means something for as long as the topic is the same one
and has kept what lies behind the position. What breaks that shows in three ways, each with its error here: a topic
of another identity was deleted and made again; one that ends before the position has lost records; one that begins
behind it has dropped them. A topic that was made again and is longer than the old one differs in its identity
alone, which brokers before Kafka 2.8 do not tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelock.errors import LogCorrupt

_BEGIN_ANEW = "to go on with what it has now, begin anew: a new home, checkpoint or log"


@dataclass(frozen=True)
class Position:
    """How far a topic was read or reaches: the next offset of every partition, and which topic that is."""

    offsets: tuple[int, ...]
    identity: str | None = None
    """None: brokers did not tell, or it was kept by a release that did not ask."""

    def to_fields(self) -> dict[str, Any]:
        """What is stored of it.

        >>> Position((3, 4), "Qh1c").to_fields(), Position((3,)).to_fields()
        ({'offsets': [3, 4], 'id': 'Qh1c'}, {'offsets': [3]})
        """
        known = {} if self.identity is None else {"id": self.identity}
        return {"offsets": list(self.offsets), **known}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Position:
        """The position that was stored."""
        return cls(tuple(fields["offsets"]), fields.get("id"))

    def padded(self, partitions: int) -> Position:
        """The position with partitions that were added to the topic since; they are read from their beginning."""
        added = (0,) * (partitions - len(self.offsets))
        return Position(self.offsets + added, self.identity)

    def or_further(self, other: Position) -> Position:
        """The position, or for each partition the ``other`` one where that is further.

        >>> Position((3, 4)).or_further(Position((5, 1, 2))).offsets
        (5, 4, 2)
        """
        most = max(len(self.offsets), len(other.offsets))
        pairs = zip(self.padded(most).offsets, other.padded(most).offsets, strict=True)
        return Position(tuple(map(max, pairs)), self.identity)


@dataclass(frozen=True)
class Span:
    """Records of one partition, from the offset ``first`` to ``last``, both included."""

    topic: str
    partition: int
    first: int
    last: int


def check_goes_on(where: str, topic: str, before: Position, now: Position) -> Position:
    """``before``, with a place for every partition that ``now`` has, if a topic that ends at ``now`` follows it.

    Raises:
        LogCorrupt: it is another topic of the same name, or it has lost records.
    """
    check_same(where, topic, before.identity, now.identity)
    if len(now.offsets) < len(before.offsets):
        raise LogCorrupt(
            f"{where}: the topic {topic} had {len(before.offsets)} partitions when it was read and has "
            f"{len(now.offsets)}, so it was deleted and made again, and records that were not read are gone; "
            f"nothing was skipped. See who did that; {_BEGIN_ANEW}"
        )
    before = before.padded(len(now.offsets))
    for partition, (first, end) in enumerate(zip(before.offsets, now.offsets, strict=True)):
        if end < first:
            raise _stepped_back(where, Span(topic, partition, end, first - 1))
    return before


def check_kept(where: str, topic: str, before: Position, beginnings: Sequence[int]) -> None:
    """See that a topic that begins at ``beginnings`` has dropped nothing behind ``before``.

    Raises:
        LogCorrupt: it has.
    """
    for partition, (first, low) in enumerate(zip(before.offsets, beginnings, strict=False)):
        if low > first:
            raise _dropped(where, Span(topic, partition, first, low - 1))


def check_same(where: str, topic: str, known: str | None, now: str | None) -> None:
    """See that a topic is the one that is known; if one of the two was not told, there is nothing to compare.

    Raises:
        LogCorrupt: it is another one.
    """
    if known is not None and now is not None and known != now:
        raise LogCorrupt(
            f"{where}: the topic {topic} was deleted and made again since it was read: its id was {known} and "
            f"is {now}. What was not read of the old one is gone; nothing was skipped. See who did that; "
            f"{_BEGIN_ANEW}"
        )


def missing(where: str, wanted: Span, low: int, end: int) -> LogCorrupt:
    """The error for records that cannot be read because their partition begins at ``low`` and ends at ``end``."""
    if low > wanted.first:
        return _dropped(where, Span(wanted.topic, wanted.partition, wanted.first, low - 1))
    return _stepped_back(where, Span(wanted.topic, wanted.partition, max(end, wanted.first), wanted.last))


def deleted(where: str, topic: str) -> LogCorrupt:
    """The error for a topic that was read before and is not there any more."""
    return LogCorrupt(
        f"{where}: the topic {topic} was read before and is gone, with all its records that were not read. See "
        f"who deleted it; if it is made again, {_BEGIN_ANEW}"
    )


def _dropped(where: str, gone: Span) -> LogCorrupt:
    return LogCorrupt(
        f"{where}: the records from {gone.first} to {gone.last} of partition {gone.partition} of the topic "
        f"{gone.topic} are gone before they were read; nothing was skipped. Its retention is too short for how "
        f"far this reader is behind, or somebody deleted them: let the topic keep more; {_BEGIN_ANEW}"
    )


def _stepped_back(where: str, gone: Span) -> LogCorrupt:
    return LogCorrupt(
        f"{where}: partition {gone.partition} of the topic {gone.topic} ends at offset {gone.first}, and the "
        f"records from {gone.first} to {gone.last} were there: its brokers have lost them, or the topic was made "
        f"again; nothing was skipped. See what happened to it; {_BEGIN_ANEW}"
    )
