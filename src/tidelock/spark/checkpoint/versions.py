"""Which batches a query can go on behind, told by the files that are left of its checkpoint. Pure.

A batch has to be in both logs, and all state stores have to reach the version that it has left. A version can be
loaded from a full file, which is not newer, and all changes since; without a full file, from all changes since the
first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tidelock.epochs import Epoch
from tidelock.spark.checkpoint.formats import check_state_files
from tidelock.spark.checkpoint.layout import commit_file, is_numbered, offsets_file, state_file, version_after


def safe_batches(
    committed: Mapping[int, Epoch], known: Collection[str], intact: Collection[str], where: str
) -> dict[Epoch, int]:
    """The epochs that can be gone on from, each with the batch that goes before.

    Args:
        committed: the batches to choose from, with the epochs at which they end.
        known: the files that belong to them.
        intact: those of them that are whole.
        where: names the checkpoint in errors.

    Raises:
        UnsupportedFormat: a file of state has a name that is not known, so that nobody can say.
    """
    check_state_files(known, where)
    if any(path not in intact for path in known if not is_numbered(path)):
        return {}
    stores = _stores(known, intact)
    logged = [b for b in sorted(committed) if offsets_file(b) in intact and commit_file(b) in intact]
    return {committed[b]: b for b in logged if all(store.reaches(version_after(b)) for store in stores)}


@dataclass(frozen=True)
class StateStore:
    """The versions of one state store: those with a full file, and those whose changes are there.

    >>> StateStore({2}, {3}).reaches(3), StateStore({1}, {3}).reaches(3), StateStore(set(), {1, 2, 3}).reaches(3)
    (True, False, True)
    """

    full: set[int] = field(default_factory=set)
    changes: set[int] = field(default_factory=set)

    def reaches(self, version: int) -> bool:
        """Whether ``version`` can be loaded."""
        start = max((one for one in self.full if one <= version), default=0)
        return all(one in self.changes for one in range(start + 1, version + 1))


def _stores(known: Iterable[str], intact: Collection[str]) -> list[StateStore]:
    """The state stores of a checkpoint, with what is intact of them; one that lost everything is among them."""
    stores: dict[str, StateStore] = defaultdict(StateStore)
    for path in known:
        if (state := state_file(path)) is not None:
            store = stores[state.store]
            if path in intact:
                (store.full if state.is_full else store.changes).add(state.version)
    return list(stores.values())
