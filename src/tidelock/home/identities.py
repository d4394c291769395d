"""What a home remembers of its logs, which may be in stores that forget: their identities and their recalls.

The offsets of a log's readers hold its identity, so that they never take another log for it. A log that was lost
is made anew under the same one. A log that was put back says so to its readers (`EpochLog.recalls`), also when it
had to be made anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidelock.epochs import Epoch
from tidelock.home.home import Home, Record
from tidelock.log import EpochLog
from tidelock.spark.checkpoint.checkpoint import Checkpoint

_DOCUMENT = "logs"


@dataclass(frozen=True)
class _Memory:
    """Both by the names of nodes."""

    identities: Mapping[str, str] = field(default_factory=dict)
    recalls: Mapping[str, tuple[Epoch, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, home: Home) -> _Memory:
        return home.sealed_document(_DOCUMENT, lambda fields: cls(fields["identities"], _recalls(fields))) or cls()

    def write(self, home: Home) -> None:
        """Durable; nothing is written if nothing has changed."""
        if self != self.of(home):
            home.seal_document(_DOCUMENT, {"identities": self.identities, "recalls": self.recalls})


def _recalls(fields: Mapping[str, Mapping[str, list[int]]]) -> dict[str, tuple[Epoch, ...]]:
    return {node: tuple(Epoch(e) for e in epochs) for node, epochs in fields.get("recalls", {}).items()}


def known_identities(home: Home) -> dict[str, str]:
    """By the names of nodes, the identities of the logs that were made for them; what readers know goes first.

    Raises:
        LogCorrupt: the document that has them is damaged.
    """
    record = home.record()
    return {} if record is None else {**_Memory.of(home).identities, **_read_by_segments(home, record)}


def remember_identities(home: Home, logs: Mapping[str, EpochLog]) -> None:
    """Write down the identities of the logs. Durable; nothing is written if nothing has changed."""
    identities = {node: log.header.id for node, log in sorted(logs.items())}
    replace(_Memory.of(home), identities=identities).write(home)


def remember_recalls(home: Home, recalled: Mapping[str, Epoch]) -> None:
    """Write down, before it is done, that what is behind an epoch of these logs is published again. Durable."""
    memory = _Memory.of(home)
    added = {node: (*memory.recalls.get(node, ()), epoch) for node, epoch in recalled.items()}
    replace(memory, recalls={**memory.recalls, **added}).write(home)


def announce_recalls(home: Home, logs: Mapping[str, EpochLog]) -> None:
    """Let the logs say what the home remembers of their recalls, and the home remember what they say."""
    memory = _Memory.of(home)
    said = {node: log.recalls() for node, log in logs.items()}
    all_of_them = {node: max(told, memory.recalls.get(node, ()), key=len) for node, told in said.items()}
    replace(memory, recalls={node: known for node, known in all_of_them.items() if known}).write(home)
    for node, known in all_of_them.items():
        if known != said[node]:
            logs[node].tell_recalls(known)


def _read_by_segments(home: Home, record: Record) -> dict[str, str]:
    found: dict[str, str] = {}
    for segment in record.segments:
        if segment.inputs:
            found.update(Checkpoint(None, home.checkpoint(segment.name)).newest_identities())
    return found
