"""Where the next batch of a job ends in each of the subjects that it follows. Pure: no I/O, no clock.

Theory of operation
-------------------
A job stands at a *position*: one epoch of every subject. A *step* takes it
to another position, forward in at least one subject and back in none. Steps of a job that is not aligned take
whatever is there, whenever the job's own interval is over. Aligned subjects are taken epoch by epoch: one entry of
each of them makes one step (the merged marker of Epoch Alignment, section 4.4.1), as soon as all of them have one.

Two rules keep an aligned job from falling behind for ever, or waiting for ever (sections 5.8 and 8.2.5):

* subjects of different rates: what a fast one has published since is shared out among the epochs of the slow one,
  so a step takes several of its entries and ends on an epoch all the same;
* a subject that was waited for longer than the job's patience is given up: a *local* step takes what the others
  have, and so does every further one until that subject has something again. Then it is waited for as before
  (`Waiting`). The next step that all take part in is aligned again.

A job that has fallen behind by `BEHIND` steps or more takes several at once, up to `MOST`, and ends on an epoch
too.

Whatever the mode, a step ends on boundaries of entries only, so a batch never holds half an entry.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tidelock.epochs import Epoch

Position = Mapping[str, Epoch]
"""By the identities of logs, the newest epoch that was taken of each."""

BEHIND = 10
MOST = 100


@dataclass(frozen=True)
class Pace:
    """How a job goes through the subjects that it follows.

    Attributes:
        aligned: By the identities of the aligned logs, the epoch from which on each is taken epoch by epoch.
        due: The job's own interval is over, so that an unaligned step may be made.
        impatient: The job has waited long enough for the subjects that are silent.
    """

    aligned: Mapping[str, Epoch]
    due: bool = True
    impatient: bool = False


@dataclass
class Waiting:
    """For how long a job waits for subjects that are silent. Time is an argument.

    Waiting begins when something is there that cannot be taken alone, not when a subject falls silent: of two
    subjects that publish rarely, the first one to do so is no reason to go on without the other.
    """

    _since: float | None = None
    _given_up: AbstractSet[str] = field(default_factory=frozenset)

    def is_over(self, silent: AbstractSet[str], *, pending: bool, now: float, patience: float) -> bool:
        """Whether to go on without those that are ``silent``; ``pending``: there is something to go on with."""
        self._given_up &= silent
        if not pending:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        return bool(silent and silent <= self._given_up) or now - self._since >= patience

    def went_without(self, silent: AbstractSet[str]) -> None:
        """A local step was made: these are given up until they have something again."""
        self._since, self._given_up = None, self._given_up | silent

    def all_went(self) -> None:
        """A step was made that had something of everybody."""
        self._since, self._given_up = None, frozenset()


def next_position(position: Position, ends: Mapping[str, Sequence[Epoch]], pace: Pace) -> Position | None:
    """Where the next step ends; None if there is none yet.

    ``ends`` has the boundaries of what each log holds, ascending. The answer has every log of ``position``.

    >>> next_position({"a": 3, "b": 3}, {"a": [4, 5], "b": [4]}, Pace({}))
    {'a': 5, 'b': 4}
    >>> aligned = {"a": 0, "b": 0}
    >>> next_position({"a": 3, "b": 3}, {"a": [4, 5], "b": [4, 5]}, Pace(aligned))
    {'a': 4, 'b': 4}
    >>> next_position({"a": 3, "b": 3}, {"a": [4, 5], "b": []}, Pace(aligned)) is None
    True
    >>> next_position({"a": 3, "b": 3}, {"a": [4, 5], "b": []}, Pace(aligned, impatient=True))
    {'a': 5, 'b': 3}
    """
    news = {log: _behind(at, ends[log]) for log, at in position.items()}
    stepped = [log for log in position if log in pace.aligned and position[log] >= pace.aligned[log]]
    limits = {log: at for log, at in pace.aligned.items() if log in position and log not in stepped}
    if not stepped:
        return _loose(position, news, limits) if pace.due else None
    if all(news[log] for log in stepped):
        return {**_loose_or_stay(position, news, limits), **_shared_out({log: news[log] for log in stepped})}
    return _loose(position, news, limits) if pace.impatient else None


def is_full(before: Position, after: Position, aligned: Iterable[str]) -> bool:
    """Whether a step has taken something of every aligned subject: it ends on a position that others agree on."""
    return all(after[log] > before[log] for log in aligned if log in before)


def ahead(position: Position, agreed: Iterable[Position]) -> Position | None:
    """Which of the agreed positions, which ascend, to go to: the first that lies ahead in every subject.

    Whoever is behind by many of them goes further.
    """
    open_ = [one for one in agreed if all(one[log] > at for log, at in position.items())]
    if not open_:
        return None
    return open_[0] if len(open_) < BEHIND else open_[min(len(open_), MOST) - 1]


def silent(position: Position, ends: Mapping[str, Sequence[Epoch]], logs: Iterable[str]) -> frozenset[str]:
    """Those of ``logs`` that hold nothing behind ``position``."""
    return frozenset(log for log in logs if log in position and not _behind(position[log], ends[log]))


def newer(one: Position, other: Position) -> dict[str, Epoch]:
    """The smallest position that is not before either of two over the same logs."""
    return {log: max(at, other[log]) for log, at in one.items()}


def _behind(at: Epoch, ends: Sequence[Epoch]) -> Sequence[Epoch]:
    return ends[bisect_right(ends, at) :]


def _loose(position: Position, news: Mapping[str, Sequence[Epoch]], limits: Position) -> Position | None:
    """Everything that is there; None if that is nothing."""
    after = _loose_or_stay(position, news, limits)
    return after if after != position else None


def _loose_or_stay(position: Position, news: Mapping[str, Sequence[Epoch]], limits: Position) -> dict[str, Epoch]:
    """Everything that is there, but nothing behind the epoch from which on a log is taken epoch by epoch."""
    after = {}
    for log, at in position.items():
        there = [end for end in news[log] if log not in limits or end <= limits[log]] or news[log][:1]
        after[log] = there[-1] if there else at
    return after


def _shared_out(news: Mapping[str, Sequence[Epoch]]) -> dict[str, Epoch]:
    """One entry of the slowest, and of the others as many as there are for each entry of the slowest."""
    steps = min(len(ends) for ends in news.values())
    taken = min(steps, MOST) if steps >= BEHIND else 1
    return {log: ends[len(ends) * taken // steps - 1] for log, ends in news.items()}
