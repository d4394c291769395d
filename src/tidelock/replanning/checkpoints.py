"""Checkpoints for the new queries of a home whose plan changes, made aside.

A query that reads sources goes on with the checkpoint of the query that read them before: what stands above
sources is no part of a checkpoint as long as it keeps no state. A query that reads logs gets a checkpoint with one
finished batch that took nothing and ends where the query is to begin, as `TidelockSource` makes one for a query
that finds its logs empty. Both are told their watermark, which is in Spark's offset log and commit log.

A segment has the same query id before and after, if there was one of its name: whoever has copied its checkpoint
knows it again.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidelock.spark.checkpoint.formats import log_lines, parsed

_FIRST = 0


def begin_after(target: Path, offsets: Sequence[Mapping[str, Any]], model: Path, watermark: int) -> None:
    """Make a checkpoint at ``target`` whose query goes on behind ``offsets``, one for each of its sources.

    ``model`` is another checkpoint of the same home; Spark's settings are taken from there.
    """
    newest = newest_batch(model)
    version, metadata, *_ = _lines(model / "offsets" / str(newest))
    sources = [json.dumps(offset) for offset in offsets]
    _write(target / "offsets" / str(_FIRST), [version, metadata, *sources])
    _write(target / "commits" / str(_FIRST), _lines(model / "commits" / str(newest)))
    _set_watermark(target, watermark)


def take_over(target: Path, origin: Path, watermark: int) -> None:
    """Make a checkpoint at ``target`` that goes on where the one at ``origin`` is, also in a half-done batch."""
    if origin.exists():
        shutil.copytree(origin, target)
    _set_watermark(target, watermark)


def identify(target: Path, before: Path | None) -> None:
    """Give the checkpoint at ``target`` the query id of the one at ``before``, or a new one."""
    known = before / "metadata" if before else None
    text = known.read_text() if known and known.exists() else json.dumps({"id": str(uuid.uuid4())})
    _write(target / "metadata", [text])


# -- what a checkpoint says


def newest_batch(checkpoint: Path) -> int | None:
    """The newest finished batch."""
    return max(_numbers(checkpoint / "offsets") & _numbers(checkpoint / "commits"), default=None)


def has_half_done(checkpoint: Path) -> bool:
    """Whether a batch was begun and not finished."""
    return bool(_half_done(checkpoint))


def watermark_of(checkpoint: Path) -> int:
    """The watermark, in milliseconds, that the next batch runs under."""
    newest = newest_batch(checkpoint)
    if newest is None:
        return 0
    file = checkpoint / "commits" / str(newest)
    committed, *_ = log_lines(file.read_text(), str(file))
    return int(parsed(committed, str(file))["nextBatchWatermarkMs"])


def source_count(checkpoint: Path) -> int | None:
    """How many sources the query has; None if it has never begun a batch."""
    newest = max(_numbers(checkpoint / "offsets"), default=None)
    if newest is None:
        return None
    file = checkpoint / "offsets" / str(newest)
    _, *sources = log_lines(file.read_text(), str(file))
    return len(sources)


def _half_done(checkpoint: Path) -> set[int]:
    newest = newest_batch(checkpoint)
    return {n for n in _numbers(checkpoint / "offsets") if newest is None or n > newest}


def _numbers(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.glob("*") if file.name.isdecimal()}


# -- writing


def _set_watermark(checkpoint: Path, watermark: int) -> None:
    newest = newest_batch(checkpoint)
    if newest is not None:
        _set_field(checkpoint / "commits" / str(newest), "nextBatchWatermarkMs", watermark)
    for batch in _half_done(checkpoint):
        _set_field(checkpoint / "offsets" / str(batch), "batchWatermarkMs", watermark)


def _set_field(file: Path, name: str, value: int) -> None:
    """Set a field of the second line of one of Spark's files, which is JSON."""
    version, fields, *rest = _lines(file)
    _write(file, [version, json.dumps({**parsed(fields, str(file)), name: value}), *rest])


def _lines(file: Path) -> list[str]:
    """The lines of one of Spark's files: its version, its fields as JSON, and more.

    Raises:
        LogCorrupt: it is torn.
    """
    text = file.read_text()
    fields, *_ = log_lines(text, str(file))
    parsed(fields, str(file))
    return text.splitlines()


def _write(file: Path, lines: Sequence[str]) -> None:
    """Write a file, and drop the checksum that Hadoop has kept beside it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
