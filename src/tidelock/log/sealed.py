"""Sealed documents: the small files of a log, in a form that shows when it is torn or damaged. Pure.

Format, version 1: one line of JSON with a field ``format``, then one line with the CRC-32 of the first in
hexadecimal. Every release keeps this envelope, so that an older one can tell "newer" from "damaged".
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tidelock.errors import LogCorrupt, UnsupportedFormat

FORMAT = 1

Parsed = TypeVar("Parsed")


def seal(fields: Mapping[str, Any]) -> bytes:
    """One line of JSON and one with its checksum: a small document that shows when it is damaged."""
    line = json.dumps({"format": FORMAT, **fields}, separators=(",", ":"), sort_keys=True).encode() + b"\n"
    return line + b"%08x\n" % zlib.crc32(line)


def unseal(data: bytes, where: str, parse: Callable[[dict[str, Any]], Parsed]) -> Parsed:
    """What ``parse`` makes of the fields of a sealed document.

    Raises:
        LogCorrupt: the bytes are torn or damaged.
        UnsupportedFormat: a newer release wrote them.
    """
    line, _, check = data.partition(b"\n")
    if check != b"%08x\n" % zlib.crc32(line + b"\n"):
        raise LogCorrupt(f"{where} is torn or damaged (its checksum does not match)")
    fields = json.loads(line)
    if fields["format"] > FORMAT:
        raise UnsupportedFormat(
            f"{where} has format version {fields['format']}, and this release of Tidelock reads up to "
            f"{FORMAT}: upgrade Tidelock to read it"
        )
    try:
        return parse(fields)
    except LogCorrupt as error:
        raise LogCorrupt(f"{where}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise LogCorrupt(f"{where} lacks what format version {FORMAT} has ({error!r})") from error
