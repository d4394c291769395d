"""Epochs on a topic of somebody who knows nothing of Tidelock (Epoch Alignment, 5.5.2, external producers).

A cutter looks at the end of a topic now and then and publishes an entry that names the offsets since the last one.
It reads no records and copies none. Jobs that follow the subject agree on these epochs with each other; with the
producer of the topic nobody can agree.

Where the cutter is stands in the newest entry, so one that was killed goes on exactly there, and of two at a time
the older one is fenced. Partitions that are added to the topic later are taken from their beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import PipelineError
from tidelock.kafka import check_installed
from tidelock.kafka.location import Location
from tidelock.log import EpochLog
from tidelock.log.entry import Manifest, Part
from tidelock.log.topic_parts import topic_part

_AT = "topic"


class Cutter:
    """Cuts epochs on one topic, into a log that it takes over. One thread.

    Args:
        log: the log; its columns are those of the records.
        brokers: where the topic is.
        topic: its name.
        starting: where a new log begins: at the `earliest` record or behind the `latest`.

    Raises:
        PipelineError: there is no such topic, or the log was cut on another one.
    """

    def __init__(self, log: EpochLog, brokers: Location, topic: str, *, starting: str = "earliest") -> None:
        check_installed()
        from tidelock.kafka.brokers import connect

        self._brokers = connect(brokers)
        self._servers = brokers.url
        self._topic = topic
        self._log = log
        self._writer = log.take_over(f"the cutter of topic {topic}")
        self._epoch, self._at = self._standing(starting)

    def _standing(self, starting: str) -> tuple[Epoch, list[int]]:
        ranges = self._log.ranges()
        if not ranges:
            return Epoch(-1), self._offsets(starting)
        fields: Mapping[str, Any] = (self._log.manifest(ranges[-1]).offsets or ({},))[0]
        if fields.get(_AT) != self._topic:
            raise PipelineError(
                f"{self._log.shown} holds epochs of something else than topic {self._topic}: give another --log"
            )
        return ranges[-1].last, list(fields["offsets"])

    def cut(self) -> int | None:
        """End an epoch here; how many offsets it has, None if there was nothing new.

        Raises:
            Fenced: another cutter has taken over.
            BackendUnavailable: brokers or store do not answer; nothing was published.
        """
        ends = self._offsets("latest")
        before = self._at + [0] * (len(ends) - len(self._at))
        parts = tuple(self._part(number, *span) for number, span in enumerate(zip(before, ends, strict=True)))
        taken = tuple(part for part in parts if part is not None)
        if not taken:
            return None
        epoch = Epoch(self._epoch + 1)
        after = [max(first, end) for first, end in zip(before, ends, strict=True)]
        self._writer.publish(
            Manifest(
                log=self._log.header.id,
                covers=EpochRange.single(epoch),
                schema=self._log.header.schema,
                parts=taken,
                offsets=({_AT: self._topic, "offsets": after},),
                query=f"cut {self._topic}",
                batch=epoch,
            )
        )
        self._epoch, self._at = epoch, after
        self._writer.truncate()
        return sum(part.rows for part in taken)

    @property
    def epoch(self) -> Epoch:
        """The newest epoch."""
        return self._epoch

    def _part(self, partition: int, first: int, end: int) -> Part | None:
        return topic_part(self._servers, self._topic, partition, first, end - 1) if end > first else None

    def _offsets(self, word: str) -> list[int]:
        from tidelock.kafka.brokers import MissingTopic

        try:
            return self._brokers.beginnings(self._topic) if word == "earliest" else self._brokers.ends(self._topic)
        except MissingTopic as missing:
            raise PipelineError(
                f"there is no topic {self._topic}: start what writes to it first, or make it"
            ) from missing
