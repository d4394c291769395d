"""The identities of a home's logs, kept in the home: a log that was lost is made anew under the same one.

The offsets of a log's readers hold its identity, so that they never take another log for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelock.log import EpochLog
from tidelock.runtime.home import Home, Record
from tidelock.spark.checkpoint import Checkpoint

_DOCUMENT = "logs"


def known_identities(home: Home) -> dict[str, str]:
    """By the names of nodes, the identities of the logs that were made for them; what readers know goes first.

    Raises:
        LogCorrupt: the document that has them is damaged.
    """
    record = home.record()
    if record is None:
        return {}
    stored = home.sealed_document(_DOCUMENT, lambda fields: dict(fields["identities"]))
    return {**(stored or {}), **_read_by_segments(home, record)}


def remember_identities(home: Home, logs: Mapping[str, EpochLog]) -> None:
    """Write down the identities of the logs. Durable; nothing is written if nothing has changed."""
    identities = {node: log.header.id for node, log in sorted(logs.items())}
    if identities != home.sealed_document(_DOCUMENT, lambda fields: dict(fields["identities"])):
        home.seal_document(_DOCUMENT, {"identities": identities})


def _read_by_segments(home: Home, record: Record) -> dict[str, str]:
    found: dict[str, str] = {}
    for segment in record.segments:
        if segment.inputs:
            found.update(Checkpoint(None, home.checkpoint(segment.name)).newest_identities())
    return found
