"""Where the next batch of a job ends in each of the subjects that it follows. Pure: no I/O, no clock.

Theory of operation
-------------------
A job stands at a *position*: one epoch of every subject. A *step* takes it
to another position, forward in at least one subject and back in none. Steps of a job that is not aligned take
whatever is there, whenever the job's own interval is over. Aligned subjects are taken epoch by epoch: one entry of
each of them makes one step (the merged marker of Epoch Alignment, section 4.4.1), as soon as all of them have one.

Two rules keep an aligned job from falling behind for ever, or waiting for ever (sections 5.8 and 8.2.5):

* subjects of different rates: a step takes of a fast one all that had been published by the moment at which the
  slow one published its epoch, several entries perhaps, and ends on an epoch all the same. What counts is when
  entries say that they were published, not who looks when: a job that comes late makes the steps that it would
  have made in time;
* a subject that was waited for longer than the job's patience is given up: a *local* step takes what the others
  have, and so does every further one until that subject has something again. Then it is waited for as before
  (`SilenceClock`). The next step that all take part in is aligned again.

Aligned means one step at a time, however far behind a job is: what is late, and what a function with state is
called with, is judged batch by batch, so results would depend on when the job was slow. Only a job for which that
cannot make a difference (`Pace.merges`) takes several steps at once, up to `MOST`, when it has fallen behind by
`BEHIND` or more; it ends on an epoch too.

Whatever the mode, a step ends on boundaries of entries only, so a batch never holds half an entry.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice

from tidelock.epochs import Epoch

Position = Mapping[str, Epoch]
"""By the identities of logs, the newest epoch that was taken of each."""

Times = Callable[[str, Epoch], float]
"""When an entry was published, by the identity of its log and its last epoch."""

BEHIND = 10
MOST = 100


@dataclass(frozen=True)
class Pace:
    """How a job goes through the subjects that it follows.

    Attributes:
        aligned: By the identities of the aligned logs, the epoch from which on each is taken epoch by epoch.
        due: The job's own interval is over, so that an unaligned step may be made.
        impatient: The job has waited long enough for the subjects that are silent.
        merges: Several steps in one change nothing that the job computes.
    """

    aligned: Mapping[str, Epoch]
    due: bool = True
    impatient: bool = False
    merges: bool = False


@dataclass
class SilenceClock:
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


def next_position(
    position: Position, ends: Mapping[str, Sequence[Epoch]], pace: Pace, times: Times
) -> Position | None:
    """Where the next step ends; None if there is none yet.

    ``ends`` has the boundaries of what each log holds, ascending. The answer has every log of ``position``.

    >>> each_second = lambda log, end: end
    >>> next_position({"a": 3, "b": 3}, {"a": [4, 5], "b": [4]}, Pace({}), each_second)
    {'a': 5, 'b': 4}
    >>> aligned = {"a": 0, "b": 0}
    >>> next_position({"a": 3, "b": 3}, {"a": [4, 5], "b": [4, 5]}, Pace(aligned), each_second)
    {'a': 4, 'b': 4}
    >>> b_is_slow = lambda log, end: end if log == "a" else 2 * end
    >>> next_position({"a": 3, "b": 3}, {"a": [4, 6, 8, 9], "b": [4]}, Pace(aligned), b_is_slow)
    {'a': 8, 'b': 4}
    >>> next_position({"a": 3, "b": 3}, {"a": [4, 5], "b": []}, Pace(aligned), each_second) is None
    True
    >>> next_position({"a": 3, "b": 3}, {"a": [4, 5], "b": []}, Pace(aligned, impatient=True), each_second)
    {'a': 4, 'b': 3}
    """
    news = {log: _behind(at, ends[log]) for log, at in position.items()}
    stepped = [log for log in position if log in pace.aligned and position[log] >= pace.aligned[log]]
    limits = {log: at for log, at in pace.aligned.items() if log in position and log not in stepped}
    if not stepped:
        return _loose(position, news, limits) if pace.due else None
    if all(news[log] for log in stepped):
        taken = _at_once(_steps({log: news[log] for log in stepped}, times), merges=pace.merges)
        return {**_loose_or_stay(position, news, limits), **taken[-1]}
    if not pace.merges:
        news = {log: ends[:1] if log in stepped else ends for log, ends in news.items()}
    return _loose(position, news, limits) if pace.impatient else None


def steps_ahead(
    position: Position, ends: Mapping[str, Sequence[Epoch]], times: Times, *, merges: bool
) -> list[Position]:
    """The steps to propose to others who are aligned with the same logs, all of which go forward with each.

    One, or as many as whoever ``merges`` would take at once: others may have to go through them one by one.
    """
    return _at_once(_steps({log: _behind(at, ends[log]) for log, at in position.items()}, times), merges=merges)


def ahead(position: Position, agreed: Iterable[Position], *, merges: bool) -> Position | None:
    """Which of the agreed positions, which ascend, to go to: the first that lies ahead in every subject.

    Whoever ``merges`` and is behind by many of them goes further.
    """
    open_ = _at_once((one for one in agreed if all(one[log] > at for log, at in position.items())), merges=merges)
    return open_[-1] if open_ else None


def on_the_way(position: Position, to: Position, ends: Mapping[str, Sequence[Epoch]], times: Times) -> Position:
    """The first step to an agreed position, which may be several away because those in between are forgotten.

    What entries say decides again where they were, so whoever comes late makes the steps of those who were in
    time.

    >>> each_second = lambda log, end: end
    >>> on_the_way({"a": 3, "b": 3}, {"a": 6, "b": 6}, {"a": [4, 5, 6], "b": [4, 5, 6]}, each_second)
    {'a': 4, 'b': 4}
    """
    between = {log: [end for end in _behind(at, ends[log]) if end <= to[log]] for log, at in position.items()}
    steps = list(islice(_steps(between, times), 2))
    return steps[0] if len(steps) > 1 else to


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


def _steps(news: Mapping[str, Sequence[Epoch]], times: Times) -> Iterator[Position]:
    """The steps that all logs take part in: of each what was published by the time at which all had something."""
    while all(news.values()):
        by = max(times(log, ends[0]) for log, ends in news.items()) if len(news) > 1 else -math.inf
        step = {log: _published_by(by, log, ends, times) for log, ends in news.items()}
        yield step
        news = {log: _behind(step[log], ends) for log, ends in news.items()}


def _published_by(by: float, log: str, ends: Sequence[Epoch], times: Times) -> Epoch:
    """The last of a log's entries, of which the first is taken in any case, that were published by some time."""
    later = (n for n, end in enumerate(ends) if n and times(log, end) > by)
    return ends[next(later, len(ends)) - 1]


def _at_once(steps: Iterable[Position], *, merges: bool) -> list[Position]:
    """Those of the steps that are there which a job takes in one."""
    there = list(islice(steps, MOST if merges else 1))
    return there if len(there) >= BEHIND else there[:1]
