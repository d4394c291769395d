"""A subject of several producers: how their parts become one epoch (Epoch Alignment, sections 5.5.1 and 5.5.2).

Theory of operation
-------------------
Every producer writes into a log of its own, so nobody ever waits for
another one's writing, and the rows of one epoch are never mixed with those of the next (figures 5.6 to 5.8). That
an entry is in a producer's log is the first phase: its part of the subject's next epoch is *pre-committed*, and no
follower sees it (figure 5.9). The second phase is one entry in the subject's own log: it names the parts of all
producers, holds no rows itself, and appears whole or not at all (figure 5.10). Then the epoch is *committed*.
Followers read the subject's log like any other.

Which entries of the producers make an epoch is decided by the rules of `log/merging`: one of each as soon as all
have one; several of a fast producer for one of a slow one; and a producer that is silent for too long is not
waited for, until it has something again: its part of those epochs is empty.

Event time is that of the slowest producer: one that has told nothing yet holds it back, as a source does in any
query. A producer that was withdrawn does not.

One of the producing jobs combines, the one that holds the subject's lease in the shared tree. Two that believe to
hold it do no harm: the subject's log has one writer, and the older one is fenced. Where the producers are is in
the newest entry, so whoever takes over goes on exactly there: an epoch is combined once.

The producers' logs keep what the subject's log still names: the combiner has a cursor on each of them, which moves
when entries of the subject's log go. They remember how far the subject was, too: if its log has lost epochs,
followers that had read them are told before any is combined again (`notes`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelock.alignment.notes import Note, leave_note, note_of, recalls_after
from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.following.merging import Pace, Position, SilenceClock, next_position, silent
from tidelock.log import EpochLog
from tidelock.log.entry import Manifest, Watermark
from tidelock.log.window import InputRange

_AT = "combined"
_CLOCKS = "watermarks"


def combiner_cursor(subject: str) -> str:
    """The consumer of a producer's log that the combiner of a subject is."""
    return f"subject.{subject}"


@dataclass(frozen=True)
class Combined:
    """Where the producers of a subject stand in its newest epoch."""

    epoch: Epoch
    at: Position
    clocks: Mapping[str, int]
    """Their watermarks, as far as they have one."""
    watermark: int = 0


def standing(subject: EpochLog) -> Combined:
    """What the newest entry of a subject says."""
    ranges = subject.ranges()
    if not ranges:
        return Combined(BEFORE_FIRST, {}, {})
    newest = subject.manifest(ranges[-1])
    fields: Mapping[str, Any] = newest.offsets[0]
    after = newest.watermark.after if newest.watermark else 0
    return Combined(ranges[-1].last, fields[_AT], fields[_CLOCKS], after)


class Combiner:
    """Puts the parts of producers together. One thread.

    Args:
        subject: the subject's own log, which it takes over.
        patience: for how many seconds a silent producer is waited for.
        recalled: is told the epoch that the subject was put back to, if its log has lost some.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        subject: EpochLog,
        *,
        patience: float,
        recalled: Callable[[Epoch], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._subject = subject
        self._writer = subject.take_over("the combiner of its producers")
        self._patience = patience
        self._recalled = recalled
        self._clock = clock
        self._now = standing(subject)
        self._begun = self._now.epoch
        self._recalls = subject.recalls()
        self._met: set[str] = set()
        self._waiting = SilenceClock()

    def step(self, producers: Mapping[str, EpochLog]) -> bool:
        """Publish the next epoch, if there is one; whether there was.

        Raises:
            Fenced: another one combines now.
            LogCorrupt: the subject's log has lost epochs since this one combines: another `Combiner` has to begin.
            PipelineError: a producer's log no longer has what comes next.
        """
        logs = {log.header.id: log for log in producers.values()}
        self._meet(logs)
        at = {name: self._now.at.get(name, log.head()) for name, log in logs.items()}
        end = self._next(at, logs)
        if end is None:
            return False
        self._publish(at, end, logs)
        leave_note(logs.values(), self._subject, Note(self._now.epoch, self._recalls))
        self._let_go(logs)
        return True

    def _meet(self, logs: Mapping[str, EpochLog]) -> None:
        """Hear what producers remember of the subject, before anything is put together with them."""
        new = {name: log for name, log in logs.items() if name not in self._met}
        notes = [note for log in new.values() if (note := note_of(log, self._subject)) is not None]
        recalls = recalls_after(self._recalls, notes, self._begun)
        if recalls != self._recalls:
            # The notes first: should the subject's store lose its recalls as well, they still have them.
            leave_note(logs.values(), self._subject, Note(self._now.epoch, recalls))
            self._subject.tell_recalls(recalls)
            self._recalls = recalls
            self._recalled(recalls[-1])
        self._met |= new.keys()

    def _next(self, at: Position, logs: Mapping[str, EpochLog]) -> Position | None:
        found = {name: {covers.last: covers for covers in log.ranges()} for name, log in logs.items()}
        ends = {name: [*covers] for name, covers in found.items()}
        all_of_them = Pace(dict.fromkeys(at, BEFORE_FIRST))

        def times(name: str, end: Epoch) -> float:
            return logs[name].manifest(found[name][end]).published_at

        end = next_position(at, ends, all_of_them, times)
        if end is not None:
            self._waiting.all_went()
            return end
        missed = silent(at, ends, at)
        pending = len(missed) < len(at)
        if not self._waiting.is_over(missed, pending=pending, now=self._clock(), patience=self._patience):
            return None
        self._waiting.went_without(missed)
        return next_position(at, ends, replace(all_of_them, impatient=True), times)

    def _publish(self, at: Position, end: Position, logs: Mapping[str, EpochLog]) -> None:
        taken = {name: list(log.manifests(at[name], end[name])) for name, log in logs.items()}
        clocks = {**self._now.clocks, **{name: c for name, found in taken.items() if (c := _clock(found))}}
        epoch = Epoch(self._now.epoch + 1)
        watermark = self._watermark([clocks.get(n, 0) for n in logs if logs[n].header.event_time], taken)
        manifest = Manifest(
            log=self._subject.header.id,
            covers=EpochRange.single(epoch),
            schema=self._subject.header.schema,
            parts=tuple(
                part if part.log else replace(part, log=logs[name].url)
                for name, found in taken.items()
                for one in found
                for part in one.parts
            ),
            inputs=tuple(
                InputRange(name, log.header.name, EpochRange.after(at[name], end[name]))
                for name, log in logs.items()
                if end[name] > at[name]
            ),
            offsets=({_AT: {**self._now.at, **end}, _CLOCKS: clocks},),
            watermark=watermark,
            query=f"combined {self._subject.header.name}",
            batch=epoch,
        )
        self._writer.publish(manifest)
        self._now = Combined(epoch, {**self._now.at, **end}, clocks, watermark.after if watermark else 0)

    def _watermark(self, clocks: Sequence[int], taken: Mapping[str, list[Manifest]]) -> Watermark | None:
        """Event time of the whole: that of the slowest producer, and never back."""
        if not self._subject.header.event_time:
            return None
        columns = next((m.watermark.columns for found in taken.values() for m in found if m.watermark), {})
        return Watermark(self._now.watermark, max(self._now.watermark, min(clocks, default=0)), columns)

    def _let_go(self, logs: Mapping[str, EpochLog]) -> None:
        """Truncate the subject's log, and let producers drop what it no longer names."""
        self._writer.truncate()
        needed = dict(self._now.at)
        for entry in reversed(self._writer.window.entries):
            for taken in entry.inputs:
                needed[taken.log] = Epoch(taken.covers.first - 1)
        for name, log in logs.items():
            cursor = combiner_cursor(self._subject.header.name)
            if name in needed:
                log.move_cursor(cursor, needed[name])


def _clock(found: list[Manifest]) -> int | None:
    return found[-1].watermark.after if found and found[-1].watermark else None
