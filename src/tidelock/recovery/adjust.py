"""The adjusted state: where every segment restarts, so that all fit together (Segment Backup, section 3.5).

Theory of operation
-------------------
After a disaster each segment is found with some *safe versions* (epochs its checkpoint can be put back to) and
with its pending window, copied at whatever moment. `adjust` chooses one version per segment. A choice is
consistent when

* a segment's own log can end at its version: the version is a boundary of the log, or lies before the log's
  head, in which case the log is *restarted* (emptied, to begin again right after the version). A version beyond
  the log's tail is refused: entries that only the lost log held would be missing for good;
* for every link the consumer's position (its version, less the lag of a feedback edge) is a boundary of the
  upstream log as rewound or restarted, so neither is the consumer ahead of its upstream segment nor is anything
  between them missing.

For one link, the componentwise maximum of two consistent pairs is consistent too: of a kept log and a restarted
one the kept log's pair is the larger in both components, and two kept logs have the same boundaries. Hence the
consistent choices have a greatest element, and it is found by lowering alone, from the best safe versions down:

* a consumer's version that no remaining version of its upstream segment can serve is struck out;
* if an older upstream version serves it but the newest does not, the newest is struck out. It can only be that
  the log's head is beyond the consumer's position: the upstream segment goes back and its log is restarted.

Nothing that belongs to a consistent choice is ever struck out, so the result is as fresh as possible, and a
segment that is left without versions proves that there is no consistent choice (`Unrecoverable`). Every sweep but
the last strikes out a version: at most V + 1 sweeps over L links, O(V * L * v * log n) for V safe versions
in all, v of one segment, logs of n entries; in practice two or three sweeps.

Theorem 1 (the windows join without a gap along every path) and theorem 2 (a segment's operators, its log's tail
and its inputs have one version) are checked by `violations`, from the steps' orders rather than from the
reasoning above.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import InternalError, LogCorrupt


class Unrecoverable(LogCorrupt):
    """What is left of a pipeline does not fit together at any safe version."""


@dataclass(frozen=True)
class Link:
    """An input of a segment: whose log it reads, and how many epochs behind its own (1 for a feedback edge)."""

    upstream: str
    lag: int = 0

    def position(self, version: Epoch) -> Epoch:
        """How much of the log a consumer at ``version`` has taken.

        >>> Link("scores", lag=1).position(Epoch(7)), Link("scores", lag=1).position(BEFORE_FIRST)
        (6, -1)
        """
        return Epoch(max(BEFORE_FIRST, version - self.lag))


Shape = Mapping[str, tuple[Link, ...]]
"""The inputs of every segment, in topological order (feedback links excepted)."""


@dataclass(frozen=True)
class Held:
    """A pending window: everything up to ``head`` was truncated, ``ends`` are its entries' last epochs.

    >>> window = Held(Epoch(3), (Epoch(5), Epoch(8)))
    >>> window.rewound(Epoch(5))
    Held(head=3, ends=(5,))
    >>> window.rewound(Epoch(2))
    Held(head=2, ends=())
    """

    head: Epoch
    ends: tuple[Epoch, ...] = ()

    def __post_init__(self) -> None:
        _check_ascending((self.head, *self.ends), "the boundaries of a log")

    @property
    def tail(self) -> Epoch:
        """The newest epoch that the log holds, or its head when it is empty."""
        return self.ends[-1] if self.ends else self.head

    def is_boundary(self, epoch: Epoch) -> bool:
        """Whether a consumer may stand at ``epoch``: at the head, or at the end of an entry."""
        place = bisect_left(self.ends, epoch)
        return epoch == self.head or (place < len(self.ends) and self.ends[place] == epoch)

    def rewound(self, to: Epoch) -> Held:
        """The log for a producer that restarts from ``to``: without its tail, or empty if ``to`` is gone."""
        if to < self.head:
            return Held(to)
        return Held(self.head, self.ends[: bisect_right(self.ends, to)])

    def can_end_at(self, version: Epoch) -> bool:
        """Whether a producer at ``version`` finds all of its output here, or makes it anew."""
        return version < self.head or self.is_boundary(version)

    def serves(self, position: Epoch, version: Epoch) -> bool:
        """Whether a consumer goes on from ``position`` when the producer restarts from ``version``."""
        if version < self.head:
            return position == version
        return position <= version and self.is_boundary(position)


@dataclass(frozen=True)
class Found:
    """What is left of a segment: the versions it can be put back to, and its log (None: a sink without one).

    ``safe`` ascends; it holds `BEFORE_FIRST` only if the segment may start from nothing.
    """

    safe: tuple[Epoch, ...]
    window: Held | None

    def __post_init__(self) -> None:
        _check_ascending(self.safe, "safe versions")

    def after(self, step: Step) -> Found:
        """What is found once ``step`` has been carried out."""
        safe = self.safe[: bisect_right(self.safe, step.version)]
        if self.window is None or not (step.rewind or step.restart_log):
            return Found(safe, self.window)
        return Found(safe, Held(step.version) if step.restart_log else self.window.rewound(step.version))


@dataclass(frozen=True)
class Step:
    """What one segment has to do before it replays.

    Restart from ``version``; ``roll_back``: its checkpoint was newer; ``rewind``: the log's tail behind the
    version has to go; ``restart_log``: the log's head is beyond the version, so the whole window is dropped and
    begins again after it.
    """

    segment: str
    version: Epoch
    roll_back: bool
    rewind: bool
    restart_log: bool


@dataclass(frozen=True)
class Adjusted:
    """A consistent state to restart from: one step for every segment."""

    steps: Mapping[str, Step]

    def version(self, segment: str) -> Epoch:
        """The epoch that ``segment`` restarts from."""
        return self.steps[segment].version

    def replay(self, shape: Shape, segment: str) -> tuple[tuple[str, Epoch, Epoch], ...]:
        """What ``segment`` has to read again: (upstream, first epoch, last epoch), without empty ranges."""
        ranges = (
            (link.upstream, Epoch(link.position(self.version(segment)) + 1), self.version(link.upstream))
            for link in shape[segment]
        )
        return tuple((upstream, first, last) for upstream, first, last in ranges if first <= last)


def adjust(shape: Shape, found: Mapping[str, Found]) -> Adjusted:
    """The freshest consistent state that ``found`` allows: no other has a newer version of any segment.

    Pure, so it may be called again at any time; on a state that is adjusted already it changes nothing.

    Raises:
        Unrecoverable: a segment has no safe version that fits; the message says which, and what is missing.

    >>> shape = {"words": (), "counts": (Link("words"),)}
    >>> log = Held(Epoch(3), (Epoch(4), Epoch(5)))
    >>> state = adjust(shape, {"words": Found((Epoch(4),), log), "counts": Found((Epoch(3),), None)})
    >>> state.steps["words"]
    Step(segment='words', version=4, roll_back=False, rewind=True, restart_log=False)
    >>> state.replay(shape, "counts")
    (('words', 4, 4),)
    """
    candidates = {segment: _candidates(shape, segment, found) for segment in shape}
    while any(_lower(candidates, found, segment, link) for segment, link in _links(shape)):
        pass
    return Adjusted({name: _step(name, found[name], versions[-1]) for name, versions in candidates.items()})


def violations(shape: Shape, found: Mapping[str, Found], adjusted: Adjusted) -> list[str]:
    """What is wrong with a state, by theorems 1 and 2 of Segment Backup; empty if it is consistent."""
    return [*_against_theorem_1(shape, found, adjusted), *_against_theorem_2(shape, found, adjusted)]


def _links(shape: Shape) -> Iterator[tuple[str, Link]]:
    return ((segment, link) for segment, inputs in shape.items() for link in inputs)


def _log(found: Mapping[str, Found], segment: str, reader: str) -> Held:
    window = found[segment].window
    if window is None:
        raise Unrecoverable(f"segment {reader!r} reads the log of {segment!r}, and there is none")
    return window


def _candidates(shape: Shape, segment: str, found: Mapping[str, Found]) -> list[Epoch]:
    """The safe versions that fit the segment's own log, also as its own reader (a loop inside a segment)."""
    loops = [link for link in shape[segment] if link.upstream == segment]
    window = _log(found, segment, segment) if loops else found[segment].window
    safe = found[segment].safe
    if window is not None:
        held = window
        safe = tuple(
            version
            for version in safe
            if held.can_end_at(version) and all(held.serves(link.position(version), version) for link in loops)
        )
    if not safe:
        raise _unrecoverable(segment, found, _own_log_story(found[segment]))
    return list(safe)


def _lower(candidates: Mapping[str, list[Epoch]], found: Mapping[str, Found], reader: str, link: Link) -> bool:
    """Strike out newest versions until both ends of a link fit; whether there was any to strike out."""
    window = _log(found, link.upstream, reader)
    mine, theirs = candidates[reader], candidates[link.upstream]
    lowered = False
    while not window.serves(position := link.position(mine[-1]), theirs[-1]):
        lowered = True
        if any(window.serves(position, version) for version in theirs):
            theirs.pop()
        elif len(mine) > 1:
            mine.pop()
        else:
            raise _unrecoverable(reader, found, _link_story(window, link, position, theirs[-1]))
    return lowered


def _step(segment: str, found: Found, version: Epoch) -> Step:
    window = found.window
    restart = window is not None and version < window.head
    rewind = window is not None and not restart and version < window.tail
    return Step(segment, version, roll_back=version < found.safe[-1], rewind=rewind, restart_log=restart)


def _against_theorem_1(shape: Shape, found: Mapping[str, Found], adjusted: Adjusted) -> Iterator[str]:
    for segment, link in _links(shape):
        upstream, window = link.upstream, found[link.upstream].after(adjusted.steps[link.upstream]).window
        position = link.position(adjusted.version(segment))
        if window is None:
            yield f"{segment} reads the log of {upstream}, and there is none"
        elif not window.head <= position <= adjusted.version(upstream):
            yield (
                f"{segment} stands at epoch {position} of {upstream}, whose window reaches from "
                f"{window.head} to {adjusted.version(upstream)}"
            )
        elif not window.is_boundary(position):
            yield f"{segment} stands at epoch {position}, inside an entry of {upstream}"


def _against_theorem_2(shape: Shape, found: Mapping[str, Found], adjusted: Adjusted) -> Iterator[str]:
    for segment in shape:
        version, left = adjusted.version(segment), found[segment].after(adjusted.steps[segment])
        if version not in left.safe:
            yield f"{segment} has no snapshot of epoch {version}"
        if left.window is not None and left.window.tail != version:
            yield f"{segment} restarts from epoch {version}, but its log ends at epoch {left.window.tail}"


def _unrecoverable(segment: str, found: Mapping[str, Found], missing: str) -> Unrecoverable:
    safe = ", ".join(map(str, found[segment].safe)) or "none"
    return Unrecoverable(
        f"segment {segment!r} has no version left to restart from (safe versions: {safe}): {missing}; "
        "restore another copy, or start the pipeline from nothing"
    )


def _own_log_story(found: Found) -> str:
    if not found.safe or found.window is None:
        return "there is no snapshot of it"
    if found.safe[0] > found.window.tail:
        return f"its log ends at epoch {found.window.tail}, so the epochs up to {found.safe[0]} are missing"
    return f"its log (from {found.window.head} to {found.window.tail}) has a boundary at none of them"


def _link_story(window: Held, link: Link, position: Epoch, newest: Epoch) -> str:
    upstream = f"{link.upstream!r}"
    if position > newest:
        return f"it has read up to epoch {position} of {upstream}, which can only be brought to epoch {newest}"
    if position < window.head:
        return (
            f"the log of {upstream} was truncated up to epoch {window.head}, and {upstream} has no snapshot of "
            f"epoch {position} to make the epochs in between again"
        )
    return f"epoch {position} is inside an entry of the log of {upstream}"


def _check_ascending(epochs: tuple[Epoch, ...], what: str) -> None:
    if any(later <= earlier for earlier, later in pairwise(epochs)):
        raise InternalError(f"{what} have to ascend: {', '.join(map(str, epochs))}")
