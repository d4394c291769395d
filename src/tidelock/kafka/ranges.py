"""Ranges of records of a topic of others: read whole, or with an error that says which records are missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from tidelock.errors import LogCorrupt
from tidelock.kafka.brokers import Brokers, MissingRecords, MissingTopic
from tidelock.kafka.continuity import Position, Span, check_same, deleted, missing

_AT_ONCE = 10_000


def position(brokers: Brokers, topic: str, word: str) -> Position:
    """Where a topic begins (``word`` is `earliest`) or ends (`latest`) now, and which topic it is.

    Raises:
        MissingTopic: there is no such topic, or not yet: `Brokers.insist` asks longer.
        BackendUnavailable: no answer in time.
    """
    identity = brokers.identity(topic)
    offsets = brokers.beginnings(topic) if word == "earliest" else brokers.ends(topic)
    return Position(tuple(offsets), identity)


def read_range(brokers: Brokers, where: str, wanted: Span, identity: str | None) -> Iterator[list[Any]]:
    """The records of a range, some at a time, of the topic that has this identity (None: not known).

    Offsets without a record are no loss: a transaction's end has one, and so has what compaction has removed.

    Raises:
        LogCorrupt: some of the records are gone, or it is another topic.
        BackendUnavailable: they do not arrive in time.
    """
    for first in range(wanted.first, wanted.last + 1, _AT_ONCE):
        some = Span(wanted.topic, wanted.partition, first, min(first + _AT_ONCE - 1, wanted.last))
        try:
            found = brokers.insist(partial(_read, brokers, where, some, identity))
        except (MissingTopic, MissingRecords) as gone:
            raise _explained(brokers, where, some, identity, gone) from gone
        yield found


def _read(brokers: Brokers, where: str, wanted: Span, identity: str | None) -> list[Any]:
    found = brokers.read(wanted.topic, wanted.partition, wanted.first, wanted.last)
    # Asked after the records were read: if it is the same now, it was so all the time.
    check_same(where, wanted.topic, identity, brokers.identity(wanted.topic))
    return found


def _explained(
    brokers: Brokers, where: str, wanted: Span, identity: str | None, gone: MissingTopic | MissingRecords
) -> LogCorrupt:
    try:
        check_same(where, wanted.topic, identity, brokers.identity(wanted.topic))
    except LogCorrupt as another:
        return another
    except MissingTopic:
        return deleted(where, wanted.topic)
    if isinstance(gone, MissingTopic):  # the topic is there, and has fewer partitions
        return missing(where, wanted, 0, 0)
    return missing(where, replace(wanted, first=gone.at), gone.low, gone.end)
