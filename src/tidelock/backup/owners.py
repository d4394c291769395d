"""Who owns a place that holds copies: the claims there, and what follows from them. Pure.

Theory of operation
-------------------
Every generation is the claim of one home, in a folder of its own, with a token that was above all others when it
was made. Nobody writes into the folder of another home, so a late writer overwrites nothing, and no store has to
compare and set: two claims that were made at the same time have different names, and rank by token, then by name.

A home that was restored knows its *ancestors*: the home whose copy it was made from, that one's ancestors, and
whoever had made a claim there without getting as far as a complete copy. It succeeds them all. So

* a restore takes, of the complete generations that no other complete one descends from, the highest (`newest`);
* a run is displaced as soon as there is a claim of a descendant, complete or not and whatever its token (an old
  run may wake up in the middle of making a claim), or as soon as a restore would take what is neither its own nor
  of an ancestor (`displacing`). So of several homes that were restored from one copy the first with a complete
  one owns the place, and a claim that never gets that far stops none of the others;
* a run removes generations of its own and of its ancestors only, and only once its own is complete (`removable`);
  and older ones that have lost their claim, or have a damaged one, before they were complete: whoever made such a
  one does not find it any more and has begun another.

Hence the generation that a restore would take is removed only by a run that has a complete one which a restore
takes instead, and there is a usable copy at every moment since the first one was complete. Who owns what a restore
would take is displaced by a descendant and by nobody else, so there is always somebody who may go on.

What is not promised without compare-and-set: a run that was displaced between looking and acting may still write
into, or complete, its own generation. If a descendant has displaced it, no restore takes that, because the
descendant's goes before it as soon as that is complete. Of two homes that were restored from one copy, and find
each other incomplete before both are complete, the one that ranks higher owns the place.

A home has one identity, so a directory that was copied by hand and runs a second time would write into the copies
of the first. So a claim also has the mark of the run that copies, and a run that finds a new one of another run in
a claim of its home stops copying: of the two the last one that was started goes on.

A copy in which there is no batch yet is worth nothing, and a job that starts anew with the same place takes it
over: its claim, not its home, then says that it succeeds the home that made it. At other places it does not.

Generations of release 0.1.0 say nothing of an owner. Their token is 0, and the first home that goes on with one,
or is restored from it, owns it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

_NAME = re.compile(r"(\d{8})-[0-9a-f]{16}|\d{8}T\d{6}-[0-9a-f]{8}")


@dataclass(frozen=True)
class OwnerClaim:
    """A generation, and what is known of its owner.

    ``home`` is the identity of the home that it copies, None if that is not known. ``ancestors`` has the
    identities of the homes, and the names of the generations, that it succeeds.
    """

    name: str
    complete: bool
    home: str | None = None
    ancestors: frozenset[str] = frozenset()
    run: str | None = None
    """The mark of the run that was the last one to copy into it."""

    @property
    def rank(self) -> tuple[int, str]:
        """Where it stands among the others."""
        return token_of(self.name), self.name

    def succeeds(self, other: OwnerClaim) -> bool:
        """Whether the other one is of an ancestor.

        >>> OwnerClaim("00000002-b", True, "B", frozenset({"A"})).succeeds(OwnerClaim("00000003-a", True, "A"))
        True
        """
        return self.home != other.home and bool(self.ancestors & {other.home, other.name})


class CopyingRun:
    """One process that copies a home, and what it knows of others that do. Owned by the thread that copies.

    A home has one such process at a time (a lock in the home sees to that), so whoever has copied it before has
    ended. A home directory that was duplicated has two locks and one identity; then the last one that was started
    goes on. Every run writes its mark into the claim of the home.
    """

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self._before: frozenset[tuple[str, str | None]] | None = None

    def is_last(self, own: Iterable[OwnerClaim]) -> bool:
        """Whether nobody has copied the home since this run first looked at its claims, but this run.

        >>> run = CopyingRun("second")
        >>> [run.is_last([OwnerClaim("00000001-a", True, "A", run=mark)]) for mark in ("first", "second", "third")]
        [True, True, False]
        """
        others = frozenset((claim.name, claim.run) for claim in own if claim.run != self.mark)
        if self._before is None:
            self._before = others
        return others <= self._before


def is_generation(name: str) -> bool:
    """Whether a folder is a generation by its name.

    >>> [is_generation(name) for name in ("00000007-0123456789abcdef", "20260101T120000-0123abcd", "photos")]
    [True, True, False]
    """
    return _NAME.fullmatch(name) is not None


def token_of(name: str) -> int:
    """The token of a generation; 0 for one of release 0.1.0."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and match[1] else 0


def next_name(claims: Iterable[OwnerClaim], chance: str) -> str:
    """The name of a generation that ranks above all of these; ``chance``: 16 random hexadecimal digits."""
    return f"{max((token_of(claim.name) for claim in claims), default=0) + 1:08}-{chance}"


def newest(claims: Collection[OwnerClaim]) -> OwnerClaim | None:
    """The generation that a restore takes, if any is complete."""
    complete = [claim for claim in claims if claim.complete]
    last = [claim for claim in complete if not any(other.succeeds(claim) for other in complete)]
    return max(last or complete, key=lambda claim: claim.rank, default=None)


def displacing(claims: Collection[OwnerClaim], mine: OwnerClaim) -> OwnerClaim | None:
    """The claim that displaces ``mine``, if there is one."""
    successor = next((claim for claim in claims if claim.succeeds(mine)), None)
    taken = newest(claims)
    if successor is not None or taken is None or taken.home == mine.home or mine.succeeds(taken):
        return successor
    # Of a copy that does not say whose it is only a later one matters: an earlier one was there to be looked at.
    return taken if taken.home is not None or taken.rank > mine.rank else None


def removable(claims: Iterable[OwnerClaim], mine: OwnerClaim) -> list[OwnerClaim]:
    """What the owner of ``mine`` may remove now that it is complete."""
    others = (claim for claim in claims if claim.name != mine.name)
    return [c for c in others if c.home == mine.home or mine.succeeds(c) or _is_rubble(c, mine)]


def _is_rubble(claim: OwnerClaim, mine: OwnerClaim) -> bool:
    """Whether it is what is left of a generation that nobody can ever complete, because its claim is gone.

    >>> mine, chance = OwnerClaim("00000002-0123456789abcdef", True, "B"), "0123456789abcdef"
    >>> [_is_rubble(OwnerClaim(f"{token:08}-{chance}", complete=False), mine) for token in (0, 1, 3)]
    [False, True, False]
    """
    return claim.home is None and not claim.complete and 0 < token_of(claim.name) < token_of(mine.name)


def succeeded(taken: OwnerClaim, unfinished: Iterable[OwnerClaim] = ()) -> frozenset[str]:
    """The ancestors of a home that takes the place of ``taken``, and of who came as far as these claims."""
    found = {one for claim in (taken, *unfinished) for one in (claim.home, claim.name) if one is not None}
    return taken.ancestors | found
