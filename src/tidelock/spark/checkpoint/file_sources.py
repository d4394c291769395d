"""What Spark's file source remembers of files, beside the offsets of batches.

    sources/<number>/<n>            v1, and a line for each file that the source has listed as its n-th step
    sources/<number>/<n>.compact    the same, with all steps before

The source writes a step down before Spark begins the batch that takes it. If the query ends in between, the next
batch takes that step and one more, so that the rows of two epochs come as one. No row is lost, but epochs do not
mean the same any more as in a run that was not stopped there. So such a step is forgotten before the query is
started again: the source lists the same files once more.

Only if all its files are still where they were, and can be looked at from here: otherwise Spark has to say what is
missing, which it does when it reads them. A step that was compacted stays, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tidelock.spark.checkpoint.layout import COMPACTED, SOURCES

_VERSION = "v1"


def unplanned_steps(checkpoint: Path, ends: Sequence[str]) -> list[Path]:
    """The steps of file sources that no batch takes, newest first.

    Args:
        checkpoint: of a query that does not run.
        ends: the lines that say where the newest batch ends that was begun, one for each source.
    """
    steps = [_step(line) for line in ends]
    # A stream that stands twice in a plan is one source, but has two lines: then nobody knows which are whose.
    known = len(set(ends)) == len(ends)
    found: list[Path] = []
    for folder in _folders(checkpoint):
        number = int(folder.name)
        last = steps[number] if known and number < len(steps) else max(steps, default=-1)
        found += _beyond(folder, last)
    return found


def _step(line: str) -> int:
    """The step at which a batch ends, in one line of Spark's offset log; -1 if it is of another source or none."""
    end = json.loads(line) if line != "-" else None
    return int(end.get("logOffset", -1)) if isinstance(end, dict) else -1


def _folders(checkpoint: Path) -> Iterator[Path]:
    sources = checkpoint / SOURCES
    return (folder for folder in sources.glob("*") if folder.name.isdecimal()) if sources.exists() else iter(())


def _beyond(folder: Path, last: int) -> list[Path]:
    names = [(file.name.removesuffix(COMPACTED), file) for file in folder.iterdir()]
    steps = sorted((int(name), file) for name, file in names if name.isdecimal() and int(name) > last)
    if all(file.suffix != COMPACTED and _is_there_again(file, number) for number, file in steps):
        return [file for _, file in reversed(steps)]
    return []


def _is_there_again(step: Path, number: int) -> bool:
    """Whether it is a step of a file source, and all its files would be listed again."""
    version, *lines = step.read_text(errors="replace").splitlines() or [""]
    try:
        entries = [json.loads(line) for line in lines]
        return version == _VERSION and bool(entries) and all(_is_there(entry, number) for entry in entries)
    except (ValueError, KeyError, TypeError):  # other sources keep other things there
        return False


def _is_there(entry: Mapping[str, Any], number: int) -> bool:
    place = urlsplit(str(entry["path"]))
    return (
        entry["batchId"] == number
        and place.scheme == "file"
        and Path(unquote(place.path)).exists()
        and "timestamp" in entry
    )
