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

A log that has lost some of its entries is found in pieces (`Pieces`). Which of them is kept is no choice of its
own: the version of its segment decides it, see there. Some versions are safe only if a segment can read again
what it had read: a batch that was begun and not committed, or a segment that makes its lost state anew. Such a
version has *needs*, epochs whose positions must be boundaries of what is kept of the upstream logs, too.

For one link, the componentwise maximum of two consistent pairs is consistent too. Let (u, c) and (u', c') be the
upstream version and the consumer's, with u < u' and c > c' (otherwise there is nothing to show), and let p and p'
be their positions, p > p' (if a lag makes them equal, so are those of the needs). If no piece of the log has the
boundary u', only p' = u' is served, but p' < p <= u < u'. So u' is in a piece that has p' as well, and p' < p <=
u < u' lies in the span of that piece, of which u is a boundary, since no version inside an entry counts. So the
same piece serves p to u, with all needs of c, and it serves them to u'. Of several ways to have one version the
greater needs win by the same argument. Hence the consistent choices have a greatest element, and it is found by
lowering alone, from the best safe versions down:

* a consumer's version that no remaining version of its upstream segment can serve is struck out;
* if an older upstream version serves it but the newest does not, the newest is struck out. It can only be that
  the log's head is beyond the consumer's position: the upstream segment goes back and its log is restarted.

Nothing that belongs to a consistent choice is ever struck out, so the result is as fresh as possible, and a
segment that is left without versions proves that there is no consistent choice (`Unrecoverable`). Every sweep but
the last strikes out a version: at most V + 1 sweeps over L links, O(V * L * v * log n) for V safe versions
in all, v of one segment, logs of n entries, whatever number of logs is in pieces; in practice two or three sweeps.

Theorem 1 (the windows join without a gap along every path) and theorem 2 (a segment's operators, its log's tail
and its inputs have one version) are checked by `violations`, from the steps' orders rather than from the
reasoning above.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidelock.epochs import BEFORE_FIRST, Epoch
from tidelock.errors import LogCorrupt
from tidelock.recovery.held import Held, Pieces, check_ascending

Needs = tuple[Epoch, ...]
"""Epochs behind which a segment reads again what it had read."""
Way = tuple[Epoch, Needs]
"""A version to restart from, and what has to be held for it."""


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
class Remains:
    """What is left of a segment: the versions it can be put back to, and its log (None: a sink without one).

    ``safe`` ascends; it holds `BEFORE_FIRST` only if the segment may start from nothing. ``needs``: for the
    versions that are safe only if input can be read again, the ways to have them, each the epochs that it needs.
    """

    safe: tuple[Epoch, ...]
    window: Held | Pieces | None
    needs: Mapping[Epoch, tuple[Needs, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_ascending(self.safe, "safe versions")

    @property
    def ways(self) -> list[Way]:
        """All ways to restart the segment, the best one last."""
        return [(version, needs) for version in self.safe for needs in sorted(self.needs.get(version, ((),)))]

    def after(self, step: Step) -> Remains:
        """What is found once ``step`` has been carried out."""
        safe = self.safe[: bisect_right(self.safe, step.version)]
        window = None if self.window is None else self.window.at(step.version)
        if window is None or not (step.rewind or step.restart_log):
            return Remains(safe, window)
        return Remains(safe, Held(step.version) if step.restart_log else window.rewound(step.version))


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


def adjust(shape: Shape, found: Mapping[str, Remains]) -> Adjusted:
    """The freshest consistent state that ``found`` allows: no other has a newer version of any segment.

    Pure, so it may be called again at any time; on a state that is adjusted already it changes nothing.

    Raises:
        Unrecoverable: a segment has no safe version that fits; the message says which, and what is missing.

    >>> shape = {"words": (), "counts": (Link("words"),)}
    >>> log = Held(Epoch(3), (Epoch(4), Epoch(5)))
    >>> state = adjust(shape, {"words": Remains((Epoch(4),), log), "counts": Remains((Epoch(3),), None)})
    >>> state.steps["words"]
    Step(segment='words', version=4, roll_back=False, rewind=True, restart_log=False)
    >>> state.replay(shape, "counts")
    (('words', 4, 4),)
    """
    candidates = {segment: _candidates(shape, segment, found) for segment in shape}
    while any(_lower(candidates, found, segment, link) for segment, link in _links(shape)):
        pass
    return Adjusted({name: _step(name, found[name], ways[-1][0]) for name, ways in candidates.items()})


def violations(shape: Shape, found: Mapping[str, Remains], adjusted: Adjusted) -> list[str]:
    """What is wrong with a state, by theorems 1 and 2 of Segment Backup; empty if it is consistent."""
    return [*_against_theorem_1(shape, found, adjusted), *_against_theorem_2(shape, found, adjusted)]


def _links(shape: Shape) -> Iterator[tuple[str, Link]]:
    return ((segment, link) for segment, inputs in shape.items() for link in inputs)


def _log(found: Mapping[str, Remains], segment: str, reader: str) -> Held | Pieces:
    window = found[segment].window
    if window is None:
        raise Unrecoverable(f"segment {reader!r} reads the log of {segment!r}, and there is none")
    return window


def _candidates(shape: Shape, segment: str, found: Mapping[str, Remains]) -> list[Way]:
    """The safe versions that fit the segment's own log, also as its own reader (a loop inside a segment)."""
    loops = [link for link in shape[segment] if link.upstream == segment]
    window = _log(found, segment, segment) if loops else found[segment].window
    ways = found[segment].ways
    if window is not None:
        held = window
        ways = [
            (version, needs)
            for version, needs in ways
            if held.can_end_at(version) and all(_serves(held, link, version, (version, needs)) for link in loops)
        ]
    if not ways:
        raise _unrecoverable(segment, found, _own_log_story(found[segment]))
    return ways


def _serves(window: Held | Pieces, link: Link, upstream: Epoch, way: Way) -> bool:
    """Whether a reader restarts in this way when the segment that it reads from restarts from ``upstream``."""
    version, needs = way
    return window.serves(link.position(version), upstream, tuple(link.position(need) for need in needs))


def _lower(candidates: Mapping[str, list[Way]], found: Mapping[str, Remains], reader: str, link: Link) -> bool:
    """Strike out newest versions until both ends of a link fit; whether there was any to strike out."""
    window = _log(found, link.upstream, reader)
    mine, theirs = candidates[reader], candidates[link.upstream]
    lowered = False
    while not _serves(window, link, theirs[-1][0], mine[-1]):
        lowered = True
        if any(_serves(window, link, version, mine[-1]) for version, _ in theirs):
            theirs.pop()
        elif len(mine) > 1:
            mine.pop()
        else:
            position, kept = link.position(mine[-1][0]), window.at(theirs[-1][0])
            raise _unrecoverable(reader, found, _link_story(kept, link, position, theirs[-1][0]))
    return lowered


def _step(segment: str, found: Remains, version: Epoch) -> Step:
    window = None if found.window is None else found.window.at(version)
    restart = window is not None and version < window.head
    rewind = window is not None and not restart and version < window.tail
    return Step(segment, version, roll_back=version < found.safe[-1], rewind=rewind, restart_log=restart)


def _against_theorem_1(shape: Shape, found: Mapping[str, Remains], adjusted: Adjusted) -> Iterator[str]:
    for segment, link in _links(shape):
        upstream = link.upstream
        kept, version = found[upstream].after(adjusted.steps[upstream]).window, adjusted.version(upstream)
        window = None if kept is None else kept.at(version)
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


def _against_theorem_2(shape: Shape, found: Mapping[str, Remains], adjusted: Adjusted) -> Iterator[str]:
    for segment in shape:
        version, left = adjusted.version(segment), found[segment].after(adjusted.steps[segment])
        if version not in left.safe:
            yield f"{segment} has no snapshot of epoch {version}"
        if left.window is not None and left.window.tail != version:
            yield f"{segment} restarts from epoch {version}, but its log ends at epoch {left.window.tail}"


def _unrecoverable(segment: str, found: Mapping[str, Remains], missing: str) -> Unrecoverable:
    safe = ", ".join(map(str, found[segment].safe)) or "none"
    return Unrecoverable(
        f"segment {segment!r} has no version left to restart from (safe versions: {safe}): {missing}; "
        "restore another copy, or start the pipeline from nothing"
    )


def _own_log_story(found: Remains) -> str:
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
