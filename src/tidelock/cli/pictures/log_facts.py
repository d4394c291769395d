"""What there is to know about an epoch log from outside, as plain values: for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidelock.epochs import BEFORE_FIRST, EpochRange
from tidelock.errors import LogCorrupt
from tidelock.log import EpochLog
from tidelock.log.entry import Manifest

Facts = dict[str, Any]


def log_facts(log: EpochLog, last: int) -> Facts:
    """The log as a whole, and its ``last`` entries. Only looks; the log may be in use.

    Raises:
        LogCorrupt: a manifest is damaged or missing.
    """
    manifests = list(_manifests(log))
    newest = manifests[-1].covers.last if manifests else None
    return {
        "url": log.shown,
        "name": log.header.name,
        "id": log.header.id,
        "columns": [
            {"name": field["name"], "type": type_name(field["type"])} for field in log.header.schema["fields"]
        ],
        "oldest": manifests[0].covers.first if manifests else None,
        "newest": newest,
        "entries": len(manifests),
        "rows": sum(manifest.rows for manifest in manifests),
        "bytes": sum(manifest.size for manifest in manifests),
        "retention": _retention(log),
        "writer": _writer(log),
        "cursors": _cursors(log, BEFORE_FIRST if newest is None else newest),
        "last": [_entry(manifest) for manifest in manifests[max(0, len(manifests) - last) :]],
    }


def _manifests(log: EpochLog) -> Iterator[Manifest]:
    for covers in log.ranges():
        try:
            yield log.manifest(covers)
        except LogCorrupt:
            if still_there(log, covers):
                raise


def still_there(log: EpochLog, covers: EpochRange) -> bool:
    """Whether an entry is still part of the log: its writer may have dropped it since we looked."""
    return covers in log.store.ranges()


def _retention(log: EpochLog) -> Facts:
    keep = log.header.retention
    return {"epochs": keep.epochs, "seconds": keep.seconds, "wait_for": sorted(keep.wait_for)}


def _writer(log: EpochLog) -> Facts | None:
    holder = log.store.holder()
    return holder and {"token": holder[0], "owner": holder[1]}


def _cursors(log: EpochLog, newest: int) -> list[Facts]:
    return [
        {"consumer": consumer, "epoch": epoch, "lag": max(0, newest - epoch)}
        for consumer, epoch in sorted(log.cursors().items())
    ]


def _entry(manifest: Manifest) -> Facts:
    return {
        "epochs": _pair(manifest.covers),
        "rows": manifest.rows,
        "bytes": manifest.size,
        "parts": len(manifest.parts),
        "watermark": manifest.watermark and manifest.watermark.after,
        "inputs": [
            {"log": source.name, "id": source.log, "epochs": _pair(source.covers)} for source in manifest.inputs
        ],
        "published_at": manifest.published_at,
        **({} if manifest.copy_of is None else {"copy_of": manifest.copy_of}),
    }


def _pair(covers: EpochRange) -> list[int]:
    return [covers.first, covers.last]


def type_name(described: Any) -> str:
    """The type of a column as people write it.

    >>> type_name("long")
    'long'
    >>> type_name({"type": "array", "elementType": "string", "containsNull": True})
    'array<string>'
    """
    if isinstance(described, str):
        return described
    kind = described["type"]
    if kind == "array":
        return f"array<{type_name(described['elementType'])}>"
    if kind == "map":
        return f"map<{type_name(described['keyType'])}, {type_name(described['valueType'])}>"
    if kind == "struct":
        fields = ", ".join(f"{f['name']}: {type_name(f['type'])}" for f in described["fields"])
        return f"struct<{fields}>"
    return str(kind)
