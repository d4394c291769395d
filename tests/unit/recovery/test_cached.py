"""Where a segment with cached state goes on: for all small findings, against the rule said plainly."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, product

import pytest

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.recovery import Unrecoverable
from tidelock.recovery.cached import CacheFound, Resume, Way, resume

EPOCHS = [Epoch(number) for number in range(-1, 4)]


def subsets(epochs: list[Epoch]) -> Iterator[frozenset[Epoch]]:
    return map(frozenset, chain.from_iterable(combinations(epochs, size) for size in range(len(epochs) + 1)))


def everything() -> Iterator[CacheFound]:
    """All that may be found with so few epochs: a checkpoint can always stay where it is."""
    for committed, begun, cached, oldest in product(EPOCHS, EPOCHS, [None, *EPOCHS], EPOCHS):
        if begun >= committed:
            for others, snapshots in product(subsets(EPOCHS[:3]), subsets(EPOCHS[1:])):
                safe = frozenset(epoch for epoch in others if epoch < committed) | {committed}
                yield CacheFound(committed, begun, safe, cached, snapshots, oldest)


def possible(found: CacheFound) -> dict[Way, set[Epoch]]:
    """From where it could go on after a loss, in each way."""
    held = {e for e in EPOCHS if e in found.safe and found.oldest <= e <= found.committed}
    return {
        Way.KEEP: held & {found.cached},
        Way.LOAD: held & found.snapshots,
        Way.BEGIN: set() if found.snapshots else held & {BEFORE_FIRST},
    }


def test_the_newest_epoch_that_is_held_is_taken() -> None:
    outcomes = set()
    for found in set(everything()):
        ways = possible(found)
        if found.cached in (found.committed, found.begun) and found.cached is not None:
            assert resume(found) == Resume(found.committed, Way.KEEP)
        elif found.committed == BEFORE_FIRST:
            assert resume(found) == Resume(BEFORE_FIRST, Way.BEGIN)
        elif not any(ways.values()):
            with pytest.raises(Unrecoverable):
                resume(found)
            outcomes.add("lost")
        else:
            going_on = resume(found)
            assert going_on.epoch == max(set.union(*ways.values()))
            assert going_on.epoch in ways[going_on.way]
            assert going_on.way is Way.KEEP or going_on.epoch not in ways[Way.KEEP], "nothing is loaded needlessly"
            outcomes.add(going_on.way.name)
    assert outcomes == {"lost", "KEEP", "LOAD", "BEGIN"}


def found(**given: object) -> CacheFound:
    usual = {
        "committed": Epoch(7),
        "begun": Epoch(8),
        "safe": frozenset(map(Epoch, range(3, 8))),
        "cached": Epoch(7),
        "snapshots": frozenset({Epoch(4)}),
        "oldest": Epoch(4),
    }
    return CacheFound(**{**usual, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "going_on"),
    [
        (found(), Resume(Epoch(7), Way.KEEP)),
        (found(cached=Epoch(8)), Resume(Epoch(7), Way.KEEP)),
        (found(cached=Epoch(6)), Resume(Epoch(6), Way.KEEP)),
        (found(cached=None), Resume(Epoch(4), Way.LOAD)),
        (found(cached=Epoch(3)), Resume(Epoch(4), Way.LOAD)),
        (found(cached=Epoch(4)), Resume(Epoch(4), Way.KEEP)),
        (found(cached=Epoch(9)), Resume(Epoch(4), Way.LOAD)),
        (found(committed=BEFORE_FIRST, begun=BEFORE_FIRST, cached=None), Resume(BEFORE_FIRST, Way.BEGIN)),
    ],
    ids=["whole", "a batch ahead", "older", "empty", "too old", "as old", "from elsewhere", "new"],
)
def test_usual_findings(what: CacheFound, going_on: Resume) -> None:
    assert resume(what) == going_on


def test_what_is_missing_is_told() -> None:
    with pytest.raises(
        Unrecoverable,
        match=r"epoch 7, but the cache does not have its state and there is no snapshot, .* after epoch 4\)",
    ):
        resume(found(cached=None, snapshots=frozenset()))
    with pytest.raises(Unrecoverable, match="the cache is at epoch 2 and the newest snapshot is of epoch 3"):
        resume(found(cached=Epoch(2), snapshots=frozenset({Epoch(3)})))
