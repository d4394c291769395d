"""The Python functions that an operator's plan calls, and what differs between two versions of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from tidelock.fingerprint.comparing import Difference, compare
from tidelock.fingerprint.parts import RULES, FingerprintPart

AGAIN = "'"
"""Stands behind the name of one more function that a plan knows by the same name."""


@dataclass(frozen=True)
class Call:
    """A function that a plan calls, and the name that the plan knows it by."""

    name: str
    parts: tuple[FingerprintPart, ...]

    def encode(self) -> list[Any]:
        """The fields that `decode` reads."""
        return [self.name, [part.encode() for part in self.parts]]

    @classmethod
    def decode(cls, fields: Any) -> Call:
        """Read a call."""
        name, parts = fields
        return cls(str(name), tuple(FingerprintPart.decode(one, RULES) for one in parts))


def compare_calls(old: Iterable[Call], new: Iterable[Call]) -> Difference:
    """Compare the functions that both plans call: one that only one of them calls makes it another plan."""
    before = {call.name: call.parts for call in old}
    pairs = [(call.name, compare(before[call.name], call.parts)) for call in new if call.name in before]
    changed, unknown, made = (
        tuple(f"UDF {name.rstrip(AGAIN)}: {phrase}" for name, found in pairs for phrase in of(found))
        for of in (attrgetter("changed"), attrgetter("unknown"), attrgetter("made"))
    )
    return Difference(changed, unknown, made)
