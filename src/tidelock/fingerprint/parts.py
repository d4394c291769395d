"""What a fingerprint is made of, and which rules have found it. Pure.

Rules grow: a later release looks at more. What only newer rules see is in parts of their own, so that a home whose
fingerprints were made by older ones is compared by what those have seen, and is not taken for changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

RULES = 2
"""The rules of this release. The second ones look at annotations of classes, at what modules assign that are
handed on as they are, and into formats and views."""
SOURCE = "source"
"""The form of a function that is told by its source."""
VALUE, NAME, MADE = "value", "name", "made"
"""Forms of what is no code. What is made when the operator is built may be something else in every run."""


@dataclass(frozen=True)
class FingerprintPart:
    """One thing that a fingerprint is made of."""

    name: str
    form: str
    digest: str
    shown: str
    since: int = 1
    """The first rules that see it."""

    @property
    def is_code(self) -> bool:
        """Whether it is a function, and no value or name."""
        return self.form not in (VALUE, NAME, MADE)

    def encode(self) -> list[str]:
        """The fields that `decode` reads, which are told what rules see it."""
        return [self.name, self.form, self.digest, self.shown]

    @classmethod
    def decode(cls, fields: Any, since: int = 1) -> FingerprintPart:
        """Read a part."""
        name, form, told, shown = map(str, fields)
        return cls(name, form, told, shown, since)


def seen_by(rules: int, parts: Iterable[FingerprintPart]) -> tuple[FingerprintPart, ...]:
    """The parts that these rules see."""
    return tuple(part for part in parts if part.since <= rules)
