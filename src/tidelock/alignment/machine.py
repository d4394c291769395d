"""The alignment machine: how a job changes from unaligned to aligned and back. Pure.

Epoch Alignment, section 5.6.

Theory of operation
-------------------
A job's *source* is everything that it follows; it has a *consumer* for each subject. Every consumer is in one of
four states, and the source is in the least advanced of its consumers' states (figure 5.13):

    unaligned ──CatchUp──▶ catching up ──is near──▶ ready ──Align(epochs)──▶ (still ready) ──there──▶ aligned
        ▲                       ◀──fell behind──────┘                                                    │
        └──────────────────────────────── Abort, at any time ◀──────────────────────────────────────────┘

Commands come from a leader outside of the job, through a node of the shared tree that holds the newest one.
They are numbered, so a command that is read again, or an older one, changes nothing; a command that was
overwritten before it was read is as good as never given. Nothing here waits: a job goes on in every state, and no
state needs another job, or the leader, to be alive. Whoever crashes finds the machine's document in its home
again.

Consumers move together. `Align` takes effect only when all of them are ready, and names the epoch of each subject
from which on it is taken epoch by epoch; up to there a consumer goes on as before. So all of them change over
between two batches of one query, and exactly once in either mode: the mode only decides where batches end.

Invariants, checked in `tests/property/test_alignment.py`:

* a consumer is aligned only behind an `Align` that no `Abort` or `CatchUp` has followed;
* it is aligned only at or behind the epoch that was named for it;
* repeating the newest command, or giving an older one, changes nothing;
* after `Abort` everything is as it was before the first command, but for the number;
* a command that cannot be made out changes nothing, and neither does it keep a later one from being obeyed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from tidelock.epochs import BEFORE_FIRST, Epoch


class AlignmentState(Enum):
    """How far a consumer, or a whole source, is on the way to being aligned."""

    UNALIGNED = "unaligned"
    CATCHING_UP = "catching up"
    READY = "ready"
    ALIGNED = "aligned"

    @property
    def rank(self) -> int:
        """Its place on the way."""
        return list(AlignmentState).index(self)


# -- commands


@dataclass(frozen=True)
class CatchUp:
    """Get near the end of these subjects, and say when you are."""

    number: int
    subjects: tuple[str, ...]


@dataclass(frozen=True)
class Align:
    """Take each of these subjects epoch by epoch, from the given epoch on."""

    number: int
    start: Mapping[str, Epoch]


@dataclass(frozen=True)
class Abort:
    """Go back to your own interval, at once."""

    number: int


@dataclass(frozen=True)
class Unknown:
    """What cannot be made out: a command of a newer release, or a damaged one. Nobody guesses: nothing changes."""

    number: int
    why: str


Command = CatchUp | Align | Abort
Heard = Command | Unknown
"""What may be found where commands are given."""


# -- facts


@dataclass(frozen=True)
class Commanded:
    """The leader's newest command was read."""

    command: Heard


@dataclass(frozen=True)
class Progressed:
    """A consumer has durably finished ``position``; ``completed`` has its subject's newest epochs, ascending."""

    subject: str
    position: Epoch
    completed: Sequence[Epoch]


Fact = Commanded | Progressed


@dataclass(frozen=True)
class Consumer:
    """One followed subject: its state, and from which epoch on it is taken epoch by epoch."""

    state: AlignmentState = AlignmentState.UNALIGNED
    start: Epoch | None = None
    position: Epoch = BEFORE_FIRST


@dataclass(frozen=True)
class Source:
    """The machine of one job. Every method returns a new one."""

    consumers: Mapping[str, Consumer] = field(default_factory=dict)
    number: int = 0
    """The newest command that was taken."""

    @classmethod
    def of(cls, subjects: Sequence[str], aligned: Sequence[str] = ()) -> Source:
        """A source that follows these subjects; those of ``aligned`` epoch by epoch from their first one."""
        at_once = Consumer(AlignmentState.ALIGNED, BEFORE_FIRST)
        return cls({name: at_once if name in aligned else Consumer() for name in subjects})

    @property
    def state(self) -> AlignmentState:
        """The least advanced state of those consumers that are to be aligned; unaligned if none is."""
        wanted = [c.state for c in self.consumers.values() if c.state is not AlignmentState.UNALIGNED]
        return min(wanted, key=lambda state: state.rank, default=AlignmentState.UNALIGNED)

    @property
    def aligned(self) -> dict[str, Epoch]:
        """The subjects that are taken epoch by epoch, each with the epoch from which on."""
        return {name: c.start for name, c in self.consumers.items() if c.start is not None}

    def handle(self, fact: Fact) -> Source:
        """The source after ``fact``."""
        match fact:
            case Commanded(command):
                if isinstance(command, Unknown) or command.number <= self.number:
                    return self
                return self._obey(command)
            case Progressed(subject, position, completed):
                return self._progress(subject, position, completed)

    def _obey(self, command: Command) -> Source:
        match command:
            case CatchUp(number, subjects):
                wanted = {name: AlignmentState.CATCHING_UP for name in subjects if name in self.consumers}
                return self._with(
                    {name: wanted.get(name, AlignmentState.UNALIGNED) for name in self.consumers}, number
                )
            case Align(number, start):
                return self._align(number, start)
            case Abort(number):
                return self._with(dict.fromkeys(self.consumers, AlignmentState.UNALIGNED), number)

    def _with(self, states: Mapping[str, AlignmentState], number: int) -> Source:
        """All consumers in these states, none of them taken epoch by epoch."""
        consumers = {name: replace(c, state=states[name], start=None) for name, c in self.consumers.items()}
        return Source(consumers, number)

    def _align(self, number: int, start: Mapping[str, Epoch]) -> Source:
        """All together or none: a source that is not ready takes note of the command and stays as it is."""
        if self.state is not AlignmentState.READY or not self._fits(start):
            return replace(self, number=number)
        consumers = {
            name: replace(c, start=start[name]) if c.state is AlignmentState.READY else c
            for name, c in self.consumers.items()
        }
        return Source({name: _arrived(c) for name, c in consumers.items()}, number)

    def _fits(self, start: Mapping[str, Epoch]) -> bool:
        return {n for n, c in self.consumers.items() if c.state is AlignmentState.READY} == start.keys()

    def _progress(self, subject: str, position: Epoch, completed: Sequence[Epoch]) -> Source:
        consumer = self.consumers.get(subject)
        if consumer is None:
            return self
        consumer = replace(consumer, position=position)
        if consumer.start is None and consumer.state in (AlignmentState.CATCHING_UP, AlignmentState.READY):
            near = AlignmentState.READY if is_near(position, completed) else AlignmentState.CATCHING_UP
            consumer = replace(consumer, state=near)
        return replace(self, consumers={**self.consumers, subject: _arrived(consumer)})

    # -- the document that a home keeps

    def to_document(self) -> dict[str, Any]:
        """The fields that `from_document` reads."""
        return {
            "number": self.number,
            "consumers": {
                name: {"state": c.state.value, "start": c.start, "position": c.position}
                for name, c in self.consumers.items()
            },
        }

    @classmethod
    def from_document(cls, fields: Mapping[str, Any], subjects: Sequence[str]) -> Source:
        """What was kept, for a job that follows ``subjects`` now."""
        kept = fields["consumers"]
        return cls(
            {name: _consumer(kept[name]) if name in kept else Consumer() for name in subjects}, fields["number"]
        )


def is_near(position: Epoch, completed: Sequence[Epoch]) -> bool:
    """Whether a consumer is at least at the second last completed epoch (section 5.6)."""
    return position >= (completed[-2] if len(completed) > 1 else BEFORE_FIRST)


def _arrived(consumer: Consumer) -> Consumer:
    """As far as its position says: a job that goes back to an older snapshot has yet to arrive again."""
    if consumer.start is None:
        return consumer
    return replace(
        consumer, state=AlignmentState.ALIGNED if consumer.position >= consumer.start else AlignmentState.READY
    )


def _consumer(fields: Mapping[str, Any]) -> Consumer:
    start = None if fields["start"] is None else Epoch(fields["start"])
    return Consumer(AlignmentState(fields["state"]), start, Epoch(fields["position"]))


# -- the leader's side


def next_command(wanted: Sequence[str], source: Source, tails: Mapping[str, Epoch]) -> Command | None:
    """What a leader says next to a job that is to be aligned with ``wanted``; None if it has to wait.

    It depends on nothing but what the job has reported and the newest epochs of the subjects, so a leader may
    die after any command, and another one goes on from there.

    >>> source = Source.of(["a", "b"])
    >>> next_command(["a"], source, {"a": 7})
    CatchUp(number=1, subjects=('a',))
    >>> source = source.handle(Commanded(CatchUp(1, ("a",)))).handle(Progressed("a", 7, [6, 7]))
    >>> next_command(["a"], source, {"a": 7})
    Align(number=2, start={'a': 8})
    """
    concerned = {name for name, c in source.consumers.items() if c.state is not AlignmentState.UNALIGNED}
    number = source.number + 1
    if concerned != set(wanted):
        return CatchUp(number, tuple(wanted))
    if source.state is AlignmentState.READY and not source.aligned:
        return Align(number, {name: Epoch(tails[name] + 1) for name in wanted})
    return None


def to_fields(command: Command) -> dict[str, Any]:
    """A command as a document."""
    match command:
        case CatchUp(number, subjects):
            return {"command": "catch up", "number": number, "subjects": list(subjects)}
        case Align(number, start):
            return {"command": "align", "number": number, "start": dict(start)}
        case Abort(number):
            return {"command": "abort", "number": number}


def from_fields(fields: Mapping[str, Any]) -> Heard:
    """The command of a document, or what is known of one that cannot be made out."""
    number = fields.get("number")
    if not isinstance(number, int):
        return Unknown(0, "the command is damaged: it has no number")
    try:
        return _command(number, fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return Unknown(number, f"command {number} is damaged ({type(error).__name__}: {error})")


def _command(number: int, fields: Mapping[str, Any]) -> Heard:
    match fields["command"]:
        case "catch up":
            return CatchUp(number, tuple(fields["subjects"]))
        case "align":
            return Align(number, {name: Epoch(start) for name, start in fields["start"].items()})
        case "abort":
            return Abort(number)
        case other:
            return Unknown(number, f"command {number} is {other!r}, which this release does not know")
