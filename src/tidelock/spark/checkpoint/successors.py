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

from tidelock.errors import InternalError
from tidelock.spark.checkpoint.checkpoint import Checkpoint
from tidelock.spark.checkpoint.formats import log_lines, parsed
from tidelock.spark.checkpoint.layout import FIRST_BATCH, METADATA, checksum_name, commit_file, offsets_file


def begin_after(target: Path, offsets: Sequence[Mapping[str, Any]], model: Path, watermark: int) -> None:
    """Make a checkpoint at ``target`` whose query goes on behind ``offsets``, one for each of its sources.

    ``model`` is another checkpoint of the same home; Spark's settings are taken from there.
    """
    newest = _there(model).newest_committed()
    if newest is None:
        raise InternalError(f"{model} has finished no batch that another query could begin behind")
    version, metadata, *_ = _lines(model / offsets_file(newest))
    sources = [json.dumps(offset) for offset in offsets]
    _write(target / offsets_file(FIRST_BATCH), [version, metadata, *sources])
    _write(target / commit_file(FIRST_BATCH), _lines(model / commit_file(newest)))
    _set_watermark(target, watermark)


def take_over(target: Path, origin: Path, watermark: int) -> None:
    """Make a checkpoint at ``target`` that goes on where the one at ``origin`` is, also in a half-done batch."""
    if origin.exists():
        shutil.copytree(origin, target)
    _set_watermark(target, watermark)


def identify(target: Path, before: Path | None) -> None:
    """Give the checkpoint at ``target`` the query id of the one at ``before``, or a new one."""
    known = before / METADATA if before else None
    text = known.read_text() if known and known.exists() else json.dumps({"id": str(uuid.uuid4())})
    _write(target / METADATA, [text])


# -- what a checkpoint says


def has_half_done(checkpoint: Path) -> bool:
    """Whether a batch was begun and not finished."""
    return bool(_half_done(checkpoint))


def watermark_of(checkpoint: Path) -> int:
    """The watermark, in milliseconds, that the next batch runs under."""
    there = _there(checkpoint)
    newest = there.newest_committed()
    return 0 if newest is None else there.next_watermark(newest)


def source_count(checkpoint: Path) -> int | None:
    """How many sources the query has; None if it has never begun a batch."""
    newest = _there(checkpoint).newest_begun()
    if newest < 0:
        return None
    _, _, *sources = _lines(checkpoint / offsets_file(newest))
    return len(sources)


def _half_done(checkpoint: Path) -> list[int]:
    return _there(checkpoint).half_done()


def _there(checkpoint: Path) -> Checkpoint:
    return Checkpoint(None, str(checkpoint))


# -- writing


def _set_watermark(checkpoint: Path, watermark: int) -> None:
    newest = _there(checkpoint).newest_committed()
    if newest is not None:
        _set_field(checkpoint / commit_file(newest), "nextBatchWatermarkMs", watermark)
    for batch in _half_done(checkpoint):
        _set_field(checkpoint / offsets_file(batch), "batchWatermarkMs", watermark)


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
    file.with_name(checksum_name(file.name)).unlink(missing_ok=True)
