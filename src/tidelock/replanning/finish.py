"""The crash points of a change of the plan: wherever it was cut off, it is finished or taken back.

What the change is stands in the folder `replanning` of the home before anything else is made:

    replanning/before.json, after.json    the two records
    replanning/checkpoints/<segment>/     new checkpoints for segments whose name has one already

New logs, and checkpoints under new names, are made in their places: the old plan does not know them. The change
happens when the home's record is replaced. `finish` looks at the record, and then either takes back what was made
or does the rest: it puts the other checkpoints in their places, sets the readers of the logs and removes what
nobody uses. Each step can be done again, and the folder goes last.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidelock.epochs import Epoch
from tidelock.errors import LogCorrupt
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.log import EpochLog
from tidelock.log.repair import remove_log, set_readers
from tidelock.log.store import open_store
from tidelock.placing import remove_tree, sync_folder
from tidelock.recovery import Link
from tidelock.replanning.rules import kept_segments
from tidelock.spark.checkpoint.checkpoint import Checkpoint


def begin(home: Home, before: Record, after: Record) -> None:
    """Write down which change is coming. From here on `finish` knows what to do."""
    folder = _folder(home)
    folder.mkdir()
    (folder / "before.json").write_bytes(before.encode())
    (folder / "after.json").write_bytes(after.encode())


def aside(home: Home, segment: str) -> Path:
    """Where a checkpoint waits for its place."""
    return _folder(home) / "checkpoints" / segment


def finish(home: Home) -> None:
    """Finish a change of the plan that was cut off: do the rest if it has happened, otherwise take it back.

    Idempotent, and nothing happens if there is no such change. Whoever calls this holds the home.
    """
    folder = _folder(home)
    before, after = _read(folder / "before.json"), _read(folder / "after.json")
    if before is not None and after is not None:
        if home.known().encode() == after.encode():
            _complete(home, before, after)
        else:
            _remove(home, _without(after, before), before)
    remove_tree(folder, durable=True)


def _complete(home: Home, before: Record, after: Record) -> None:
    for made in sorted((_folder(home) / "checkpoints").glob("*")):
        target = Path(home.checkpoint(made.name))
        remove_tree(target)
        made.rename(target)
        sync_folder(target.parent)
    for segment in after.segments:
        if segment.log is not None:
            _set_readers(home, EpochLog.open(segment.log), segment.name, before, after)
    _remove(home, _without(before, after), after)


def _set_readers(home: Home, log: EpochLog, node: str, before: Record, after: Record) -> None:
    kept, readers = kept_segments(before, after), after.readers(node)
    gone = [name for name in before.readers(node) if name not in readers]
    new = {name: _position(home, after.segment(name), node) for name in readers if name not in kept}
    set_readers(log, gone, readers, new)


def _position(home: Home, reader: SegmentRecord, node: str) -> Epoch:
    """How much of the log of a node a segment has taken."""
    epoch = Checkpoint(None, home.checkpoint(reader.name)).position()
    return min(Link(log, lag).position(epoch) for log, lag in reader.inputs if log == node)


def _remove(home: Home, segments: Iterable[SegmentRecord], record: Record) -> None:
    """Remove the checkpoints of segments, and those of their logs that are not in ``record``."""
    logs = {segment.log for segment in record.segments}
    for segment in segments:
        remove_tree(Path(home.checkpoint(segment.name)), durable=True)
        if segment.log is not None and segment.log not in logs:
            remove_log(open_store(segment.log))


def _without(record: Record, other: Record) -> list[SegmentRecord]:
    """The segments whose names the other record does not have."""
    names = {segment.name for segment in other.segments}
    return [segment for segment in record.segments if segment.name not in names]


def _folder(home: Home) -> Path:
    return home.root / "replanning"


def _read(file: Path) -> Record | None:
    """A record of the change; None if it was not wholly written: then nothing else was made."""
    try:
        return Record.decode(file.read_bytes(), str(file))
    except (FileNotFoundError, LogCorrupt):
        return None
