"""The names of the documents that lie in a log's store. Pure: made and read here, and nowhere else.

log                             the header
lease                           the newest writer, where a store keeps that as a document
recalls                         the epochs that the log was put back to
cursor/<consumer>               how far a consumer has come
aside/<consumer>-<epochs>       an entry that a consumer is to see without its rows
round/<consumer or group>       where the sources of one query have agreed to end their batch
combined/<subject>              what a producer remembers of a shared subject
meeting/<logs>-<number>         a position that several jobs go through
beginning                       where the first epoch of a topic begins that is cut
"""

from __future__ import annotations

from tidelock.epochs import Epoch, EpochRange

HEADER = "log"
LEASE = "lease"
RECALLS = "recalls"
BEGINNING = "beginning"
CURSORS = "cursor/"
"""How the names of cursors begin; a store looks at them itself."""
ASIDES = "aside/"
"""How the names of notes begin that say what a consumer is to see without its rows."""
ROUNDS = "round/"
"""How the names of documents begin in which the sources of a query agree."""


def cursor_name(consumer: str) -> str:
    """The cursor of a consumer."""
    return f"{CURSORS}{consumer}"


def consumer_of(cursor: str) -> str:
    """Whose cursor this is.

    >>> consumer_of(cursor_name("counts"))
    'counts'
    """
    return cursor.removeprefix(CURSORS)


def aside_name(consumer: str, covers: EpochRange) -> str:
    """The note that a consumer is to see the entry of these epochs without its rows."""
    return f"{ASIDES}{consumer}-{covers}"


def last_aside(name: str) -> Epoch:
    """The last epoch that such a note is about, by its name or by the epochs that it names.

    >>> last_aside(aside_name("a-job.counts", EpochRange(Epoch(5), Epoch(7))))
    7
    >>> last_aside(aside_name("counts", EpochRange.single(Epoch(5))))
    5
    """
    return Epoch(int(name.rpartition("-")[2]))


def round_name(group: str) -> str:
    """Where the sources of a query agree, which is known by its consumer or by the group of its sources."""
    return f"{ROUNDS}{group}"


def combined_name(subject: str) -> str:
    """What a producer remembers of a subject."""
    return f"combined/{subject}"


def meeting_prefix(logs: str) -> str:
    """How the names of the positions begin that jobs go through in these logs."""
    return f"meeting/{logs}-"


def meeting_name(prefix: str, number: int) -> str:
    """The position with this number."""
    return f"{prefix}{number:012}"


def meeting_number(prefix: str, name: str) -> int:
    """The number of a position.

    >>> meeting_number("meeting/ab-", meeting_name("meeting/ab-", 7))
    7
    """
    return int(name.removeprefix(prefix))
