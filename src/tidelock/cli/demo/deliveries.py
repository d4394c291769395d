"""What the sink of the demo writes: the list of every epoch, in an SQLite file, exactly once.

The epoch and its list come in one transaction. After a failure the sink is called again for an epoch that may be
there: then the transaction finds it, and changes nothing but the number of calls.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

Ranking = list[tuple[str, int]]
"""Words and their counts, the most frequent first."""

_TABLES = (
    "CREATE TABLE IF NOT EXISTS epochs (epoch INTEGER PRIMARY KEY, calls INTEGER)",
    "CREATE TABLE IF NOT EXISTS trends (epoch INTEGER, place INTEGER, word TEXT, count INTEGER)",
)


@dataclass(frozen=True)
class Delivered:
    """What has arrived."""

    rankings: dict[int, Ranking]
    """The list of each epoch, in the order of epochs."""
    again: int
    """How often an epoch came that was there already."""


def deliver(database: Path, epoch: int, ranking: Sequence[tuple[str, int]]) -> None:
    """Store the list of an epoch, unless it is there. Durable and idempotent."""
    with _transaction(database) as connection:
        is_new = connection.execute("INSERT OR IGNORE INTO epochs VALUES (?, 0)", (epoch,)).rowcount == 1
        connection.execute("UPDATE epochs SET calls = calls + 1 WHERE epoch = ?", (epoch,))
        if is_new:
            rows = [(epoch, place, word, count) for place, (word, count) in enumerate(ranking)]
            connection.executemany("INSERT INTO trends VALUES (?, ?, ?, ?)", rows)


def delivered(database: Path) -> Delivered:
    """All that is in the database; nothing if there is none."""
    if not database.exists():
        return Delivered({}, 0)
    with _transaction(database) as connection:
        calls = dict(connection.execute("SELECT epoch, calls FROM epochs ORDER BY epoch"))
        rankings: dict[int, Ranking] = {epoch: [] for epoch in calls}
        for epoch, word, count in connection.execute(
            "SELECT epoch, word, count FROM trends ORDER BY epoch, place"
        ):
            rankings.setdefault(epoch, []).append((word, count))
    return Delivered(rankings, sum(calls.values()) - len(calls))


@contextmanager
def _transaction(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database)) as connection, connection:
        for table in _TABLES:
            connection.execute(table)
        connection.execute("BEGIN")
        yield connection
