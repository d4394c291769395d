"""Which formats of Spark's own checkpoint files are known here. What is not known is refused, never skipped.

Tidelock reads the offset log and the commit log, and tells by the names of state files which batches Spark can go
back to. A file whose name it does not understand would count as no state at all, and every batch as safe.

    offsets/<batch>     v1, a line of metadata, a line for each source; v2 has names in front of the offsets
    commits/<batch>     v1, a line of metadata; v2 names the state files of the batch, v3 the sinks, too
    state/...           <version>.delta, .changelog, .snapshot, .zip; format 2 has <version>_<id> in their place
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidelock.errors import LogCorrupt, PipelineError, UnsupportedFormat
from tidelock.spark.checkpoint.layout import is_known_state

_VERSION = "v1"
_ANY_VERSION = re.compile(r"v\d+")

_SETTINGS: Mapping[str, tuple[str, str]] = {
    "spark.sql.streaming.stateStore.checkpointFormatVersion": ("1", "state files of format 2"),
    "spark.sql.streaming.offsetLog.formatVersion": ("1", "an offset log of version 2"),
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": ("false", "an offset log of version 2"),
    "spark.sql.streaming.queryEvolution.enableSinkEvolution": ("false", "a commit log of version 3"),
}
"""For each setting that makes Spark write another format: what it has to be, and what it writes otherwise."""


def check_settings(setting: Callable[[str, str], str | None]) -> None:
    """See that queries of a session write checkpoints that Tidelock can read.

    ``setting`` gives what the session has, or what it is given if there is nothing: `spark.conf.get`.

    Raises:
        PipelineError: they would not; the message names the setting.
    """
    for name, (good, otherwise) in _SETTINGS.items():
        given = str(setting(name, good)).lower()
        if given != good:
            raise PipelineError(
                f"the session has {name}={given}: Spark then writes {otherwise}, which Tidelock does not know. "
                f"Leave the setting out, or set it to {good}"
            )


def log_lines(text: str, where: str) -> list[str]:
    """What a file of the offset log or the commit log has behind its version: metadata, and more.

    Raises:
        UnsupportedFormat: it has another version than the one that is known.
        LogCorrupt: it is torn.
    """
    version, *lines = text.splitlines() or [""]
    if version != _VERSION and _ANY_VERSION.fullmatch(version) and lines:
        raise UnsupportedFormat(
            f"{where} is of version {version}, and Tidelock knows {_VERSION} only: Spark writes others under "
            f"{', '.join(_SETTINGS)}. Leave them alone, and use a new home or checkpoint"
        )
    if version != _VERSION or not lines:
        raise torn(where)
    return lines


def parsed(line: str, where: str) -> Any:
    """The JSON of a line of one of Spark's logs.

    Raises:
        LogCorrupt: it is torn.
    """
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        raise torn(where) from None


def torn(where: str) -> LogCorrupt:
    """The error about a file of Spark's that is empty or ends too early."""
    return LogCorrupt(
        f"{where} is torn: it is empty or ends too early, as a power cut leaves a file that Spark had not put on "
        "disk. Restore the home from a backup, or use a new home or checkpoint"
    )


def check_state_files(paths: Iterable[str], where: str) -> None:
    """See that the files of state among ``paths``, which are relative to a checkpoint, have names that are known.

    Raises:
        UnsupportedFormat: one has not.

    >>> check_state_files(["state/0/1/7.delta", "state/0/1/.7.delta.crc", "state/0/_metadata/metadata"], "here")
    >>> check_state_files(["state/0/0/left/3.zip", "state/0/0/SSTs/000008-1b2.sst", "offsets/3"], "here")
    """
    for path in paths:
        if not is_known_state(path):
            raise UnsupportedFormat(
                f"{where}: the state file {path} is of a format that Tidelock does not know, so it cannot tell "
                "which batches have their state (<version>_<id> are names of Spark's checkpoint format 2). Leave "
                "spark.sql.streaming.stateStore.checkpointFormatVersion at 1, and use a new home or checkpoint"
            )
