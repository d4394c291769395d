"""Setting the input of an epoch aside that a segment cannot process.

The rows are copied to a log of their own, with the lineage that says where they came from; then the segment is
told to see that epoch without rows. In this order, and both steps can be done again: a crash between them loses
nothing and repeats nothing.

An entry is known by what it is, not by its epoch alone: after a roll-back an epoch is made again, perhaps from
other rows, and may be poison again. Then its rows are another letter, and both are kept; the manifest of each says
of which entry it is a copy (``copy_of``: its digest, query, batch, and when it was published).
"""

from __future__ import annotations

from dataclasses import replace

from tidelock.epochs import Epoch, EpochRange
from tidelock.errors import LogCorrupt
from tidelock.home.home import Home
from tidelock.log import EpochLog, LogWriter
from tidelock.log.entry import Manifest, Part
from tidelock.log.window import InputRange
from tidelock.topology import Segment


def set_aside(log: EpochLog, segment: str, covers: EpochRange, dead: str) -> int:
    """Copy the rows of ``covers`` from ``log`` to the log at the URL ``dead``, and hide them from ``segment``.

    Returns how many rows these are. Durable and idempotent.
    """
    letters = EpochLog.create(dead, log.header.schema, name=f"{segment}.{log.header.name}")
    writer = letters.take_over(f"dead letters of {segment}")
    rows = 0
    for manifest in log.manifests(Epoch(covers.first - 1), covers.last):
        rows += manifest.rows
        if not _is_copied(writer, log, manifest):
            writer.publish(_copy(writer, log, manifest, segment))
        log.set_aside(segment, manifest)
    return rows


def set_aside_inputs(home: Home, reader: Segment, covers: EpochRange) -> int:
    """Do that with all that a segment reads for the epochs ``covers``. Returns how many rows these are."""
    rows = 0
    for read in reader.inputs:
        last = covers.last - read.lag
        if last >= 0:
            taken = EpochRange(Epoch(max(0, covers.first - read.lag)), Epoch(last))
            log = EpochLog.open(home.log(read.log))
            rows += set_aside(log, reader.name, taken, home.dead(reader.name, read.log))
    return rows


def _is_copied(writer: LogWriter, log: EpochLog, manifest: Manifest) -> bool:
    origin = (_origin(log, manifest),)
    letters = (writer.log.manifest(entry.covers) for entry in writer.window.entries if entry.inputs == origin)
    return any(_is_copy(letter, manifest) for letter in letters)


def _is_copy(letter: Manifest, manifest: Manifest) -> bool:
    if letter.copy_of is None:  # release 0.1.0 has written it
        return (letter.content, letter.offsets) == (manifest.content, manifest.offsets)
    return bool(letter.copy_of["entry"] == manifest.digest)


def _origin(log: EpochLog, manifest: Manifest) -> InputRange:
    return InputRange(log.header.id, log.header.name, manifest.covers)


def _copy(writer: LogWriter, log: EpochLog, manifest: Manifest, segment: str) -> Manifest:
    number = Epoch(writer.window.tail + 1)  # dead letters are rare: they have a count of their own
    parts = tuple(_copy_part(writer, log, part, number) for part in manifest.parts)
    return replace(
        manifest,
        log=writer.log.header.id,
        covers=EpochRange.single(number),
        parts=parts,
        inputs=(_origin(log, manifest),),
        query=segment,
        batch=number,
        copy_of={
            "entry": manifest.digest,
            "query": manifest.query,
            "batch": manifest.batch,
            "published_at": manifest.published_at,
        },
    )


def _copy_part(writer: LogWriter, log: EpochLog, part: Part, number: Epoch) -> Part:
    name = f"{writer.part_prefix(number)}{part.file}"
    content = log.store.read_part(part.file)
    if content is None:
        raise LogCorrupt(f"{log.shown}: part {part.file} is missing, so its rows cannot be set aside")
    writer.log.store.write_part(name, lambda file: file.write(content))
    return replace(part, file=name)
