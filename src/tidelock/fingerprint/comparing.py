"""What differs between two fingerprints, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from tidelock.fingerprint.parts import MADE, SOURCE, FingerprintPart

_LONGEST = 90


@dataclass(frozen=True)
class Difference:
    """What tells two fingerprints apart; false if nothing does."""

    changed: tuple[str, ...] = ()
    """What has changed, one phrase each."""
    unknown: tuple[str, ...] = ()
    """What cannot be compared: functions without their source that ran under another Python before."""

    made: tuple[str, ...] = ()
    """What was made anew when the operator was built and is something else now, one phrase each."""

    def __bool__(self) -> bool:
        return bool(self.changed or self.unknown or self.made)


def compare(old: Sequence[FingerprintPart], new: Sequence[FingerprintPart]) -> Difference:
    """Compare the parts of two fingerprints, by their names."""
    before, after = {part.name: part for part in old}, {part.name: part for part in new}
    pairs = [(before[name], part) for name, part in after.items() if name in before]
    apart = [now.name for was, now in pairs if was.form != now.form and _is_code(was, now)]
    other = [(was, now) for was, now in pairs if was.digest != now.digest and now.name not in apart]
    told = [(MADE in (was.form, now.form), _told(was, now)) for was, now in other]
    told += [
        (one.form == MADE, f"{name} is not used any more") for name, one in before.items() if name not in after
    ]
    told += [(one.form == MADE, f"{name} is used now") for name, one in after.items() if name not in before]
    changed, made = (tuple(text for is_made, text in told if is_made is which) for which in (False, True))
    return Difference(changed, tuple(apart), made)


def _is_code(*parts: FingerprintPart) -> bool:
    return all(part.is_code for part in parts)


def _told(old: FingerprintPart, new: FingerprintPart) -> str:
    if not _is_code(old, new):
        if old.shown == new.shown:
            return f"{new.name} has another value"
        return f"{new.name} was {shortened(old.shown)}, is {shortened(new.shown)}"
    if old.shown == new.shown:
        return f"function {new.name} has changed" + (" in a text" if new.form == SOURCE else "")
    return f"function {new.name}: {first_change(old.shown.splitlines(), new.shown.splitlines())}"


def first_change(old: Sequence[str], new: Sequence[str]) -> str:
    """The first lines that differ.

    >>> first_change(["x = 1", "return x"], ["x = 2", "return x"])
    '`x = 1` is now `x = 2`'
    """
    for what, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        was, now = (" ".join(" ".join(part).split()) for part in (old[i1:i2], new[j1:j2]))
        if what == "replace":
            return "`{}` is now `{}`".format(*_around_change(was, now))
        if what != "equal":
            return f"`{shortened(now)}` is new" if what == "insert" else f"`{shortened(was)}` is gone"
    return "its order has changed"


def _around_change(old: str, new: str) -> tuple[str, str]:
    """Two texts, both shortened to where they differ."""
    if max(len(old), len(new)) <= _LONGEST:
        return old, new
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, same - _LONGEST // 3)
    before = "…" if start else ""
    return shortened(f"{before}{old[start:]}"), shortened(f"{before}{new[start:]}")


def shortened(text: str) -> str:
    """A text that fits into a line."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
