"""Epochs on a topic of somebody who knows nothing of Tidelock (Epoch Alignment, 5.5.2, external producers).

A cutter looks at the end of a topic now and then and publishes an entry that names the offsets since the last one.
It reads no records and copies none. Jobs that follow the subject agree on these epochs with each other; with the
producer of the topic nobody can agree.

Where the cutter is stands in the newest entry, and before there is one in a document that the first cutter of the
log has made; so one that was killed goes on exactly there, and of two at a time the older one is fenced.
Partitions that are added to the topic later are taken from their beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import LogCorrupt, PipelineError
from tidelock.extras import need
from tidelock.kafka.continuity import Position, Span, check_goes_on, check_kept, deleted
from tidelock.kafka.location import KafkaLocation
from tidelock.log import EpochLog
from tidelock.log.documents import BEGINNING
from tidelock.log.entry import Manifest
from tidelock.log.sealed import seal, unseal
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

    def __init__(self, log: EpochLog, brokers: KafkaLocation, topic: str, *, starting: str = "earliest") -> None:
        need("kafka", "a Kafka topic")
        from tidelock.kafka.brokers import connect

        self._brokers = connect(brokers)
        self._servers, self._where = brokers.url, brokers.shown
        self._topic = topic
        self._log = log
        self._writer = log.take_over(f"the cutter of topic {topic}")
        self._epoch, self._at = self._standing(starting)

    def _standing(self, starting: str) -> tuple[Epoch, Position]:
        ranges = self._log.ranges()
        fields: Mapping[str, Any] = (
            (self._log.manifest(ranges[-1]).offsets or ({},))[0] if ranges else self._beginning(starting)
        )
        if fields.get(_AT) != self._topic:
            raise PipelineError(
                f"{self._log.shown} holds epochs of something else than topic {self._topic}: give another --log"
            )
        return ranges[-1].last if ranges else Epoch(-1), Position.from_fields(fields)

    def _beginning(self, starting: str) -> dict[str, Any]:
        """Where the log's first epoch begins: settled once, whoever asks again."""
        store = self._log.store
        if store.get(BEGINNING) is None:
            store.create(BEGINNING, seal({_AT: self._topic, **self._position(starting).to_fields()}))
        kept = store.get(BEGINNING)
        if kept is None:
            raise LogCorrupt(f"{self._log.shown} has lost where it begins: look at its store, then start again")
        return unseal(kept, f"{self._log.shown}: {BEGINNING}", dict)

    def cut(self) -> int | None:
        """End an epoch here; how many offsets it has, None if there was nothing new.

        Raises:
            Fenced: another cutter has taken over.
            BackendUnavailable: brokers or store do not answer; nothing was published.
            LogCorrupt: records are gone since the last epoch, or the topic was made again; nothing was published.
        """
        now = self._position("latest")
        before = check_goes_on(self._where, self._topic, self._at, now)
        check_kept(self._where, self._topic, before, self._position("earliest").offsets)
        pairs = enumerate(zip(before.offsets, now.offsets, strict=True))
        spans = [Span(self._topic, number, first, end - 1) for number, (first, end) in pairs if end > first]
        if not spans:
            return None
        taken = tuple(topic_part(self._servers, span, now.identity) for span in spans)
        epoch = Epoch(self._epoch + 1)
        self._writer.publish(
            Manifest(
                log=self._log.header.id,
                covers=EpochRange.single(epoch),
                schema=self._log.header.schema,
                parts=taken,
                offsets=({_AT: self._topic, **now.to_fields()},),
                query=f"cut {self._topic}",
                batch=epoch,
            )
        )
        self._epoch, self._at = epoch, now
        self._writer.truncate()
        return sum(part.rows for part in taken)

    @property
    def epoch(self) -> Epoch:
        """The newest epoch."""
        return self._epoch

    def _position(self, word: str) -> Position:
        from tidelock.kafka.brokers import MissingTopic
        from tidelock.kafka.ranges import position

        ask, known = partial(position, self._brokers, self._topic, word), bool(self._log.ranges())
        try:
            return self._brokers.insist(ask) if known else ask()
        except MissingTopic as missing:
            if known:
                raise deleted(self._where, self._topic) from missing
            raise PipelineError(
                f"there is no topic {self._topic}: start what writes to it first, or make it"
            ) from missing
