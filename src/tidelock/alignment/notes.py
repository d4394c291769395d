"""What the producers of a shared subject remember of it, in case its own log forgets.

The store of a subject's log may come back without the newest epochs. They are combined again, perhaps cut
otherwise, and nothing in that log tells its followers so. Therefore every epoch leaves a note in the producers'
logs: which one it was, and which recalls of the subject were known. A note that is ahead of the subject's log
proves a loss.

A note that knows of fewer recalls than another one is older than the last loss, and proves nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidelock.epochs import Epoch
from tidelock.log import EpochLog
from tidelock.log.documents import combined_name
from tidelock.log.sealed import seal, unseal

Recalls = tuple[Epoch, ...]


@dataclass(frozen=True)
class Note:
    """The newest epoch of a subject when the note was left, and the epochs that it had been put back to."""

    epoch: Epoch
    recalls: Recalls


def note_of(producer: EpochLog, subject: EpochLog) -> Note | None:
    """What a producer remembers of a subject; None if it has never had a part in this log of it.

    Raises:
        LogCorrupt: the note is damaged.
    """
    name = _document(subject)
    data = producer.store.get(name)
    if data is None:
        return None
    log, note = unseal(
        data,
        f"{producer.shown}: {name}",
        lambda fields: (fields["log"], Note(Epoch(fields["epoch"]), tuple(map(Epoch, fields["recalls"])))),
    )
    return note if log == subject.header.id else None


def leave_note(producers: Iterable[EpochLog], subject: EpochLog, note: Note) -> None:
    """Let all of ``producers`` remember ``note``. It counts only if something else is lost as well: not synced."""
    data = seal({"log": subject.header.id, "epoch": note.epoch, "recalls": list(note.recalls)})
    for producer in producers:
        producer.store.put(_document(subject), data, durable=False)


def recalls_after(told: Recalls, notes: Sequence[Note], present: Epoch) -> Recalls:
    """All recalls of a subject whose own log tells ``told`` and ends at ``present``.

    >>> recalls_after((), [Note(Epoch(8), ()), Note(Epoch(4), ())], Epoch(5))
    (5,)
    >>> recalls_after((5,), [Note(Epoch(8), ())], Epoch(6))
    (5,)
    >>> recalls_after((), [Note(Epoch(6), (Epoch(5),))], Epoch(3))
    (5, 3)
    """
    known = max([told, *(note.recalls for note in notes)], key=len)
    lost = any(note.epoch > present for note in notes if len(note.recalls) == len(known))
    return (*known, present) if lost else known


def _document(subject: EpochLog) -> str:
    return combined_name(subject.header.name)
