"""Jobs that follow subjects, without Spark: each asks its sources in rounds and keeps its position.

Logs have their names as identities, so that positions are readable: ``{"a": 3, "b": 5}``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tidelock.following.follower import Follower, Instruction
from tidelock.log import EpochLog, LogWriter, Retention
from tidelock.testing.logs import SCHEMA, back, covers, publish


class Clock:
    """Time that stands still until it is moved; with ``tick`` every look at it takes a moment."""

    def __init__(self, tick: float = 0.0) -> None:
        self.now = 0.0
        self.tick = tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


class Subjects:
    """Some logs in a folder, each with a writer."""

    def __init__(self, folder: Any, names: str, retention: Retention | None = None) -> None:
        urls = {name: f"file:{folder}/{name}" for name in names}
        made = {n: EpochLog.create(url, SCHEMA, retention=retention, identity=n) for n, url in urls.items()}
        self.logs: dict[str, EpochLog] = made
        self.writers: dict[str, LogWriter] = {name: log.take_over("test") for name, log in made.items()}

    def publish(self, names: str, times: int = 1) -> None:
        """One entry for each letter, so often."""
        for _ in range(times):
            for name in names:
                writer = self.writers[name]
                publish(writer, covers(writer.window.tail + 1), [writer.window.tail + 1])

    def put_back(self, name: str, to: int) -> None:
        """Drop what is behind an epoch; another writer goes on from there."""
        back(self.logs[name], to)
        self.writers[name] = self.logs[name].take_over("a run after that")

    def tails(self) -> dict[str, int]:
        return {name: writer.window.tail for name, writer in self.writers.items()}


class FollowingJob:
    """One query with a source per log. What is in ``position`` survives a `restart`."""

    def __init__(
        self,
        logs: Sequence[EpochLog],
        clock: Callable[[], float],
        name: str = "job",
        *,
        mixed: bool = False,
        **instruction: Any,
    ) -> None:
        self.logs = list(logs)
        self.name = name
        self.clock = clock
        self.mixed = mixed
        self.instruction = Instruction(**instruction)
        self.position: dict[str, int] = {log.header.id: -1 for log in logs}
        self.steps: list[dict[str, int]] = []
        self.restart()

    def tell(self, **changes: Any) -> None:
        self.instruction = replace(self.instruction, **changes)

    def align(self, *names: str, start: int = -1) -> None:
        self.tell(aligned=dict.fromkeys(names or self.position, start))

    def restart(self) -> None:
        """New sources, which know nothing but what is kept."""
        self.sources = [
            Follower(self.logs, self.name, lambda: self.instruction, mixed=self.mixed, clock=self.clock)
            for _ in self.logs
        ]

    def ask(self, source: Follower) -> tuple[dict[str, int], dict[str, int]]:
        start, end = source.decide(dict(self.position), lambda: dict(self.position))
        return dict(start), dict(end)

    def round(self, between: Callable[[], None] = lambda: None) -> dict[str, int] | None:
        """Ask every source, then process and commit; where it went, None if nowhere."""
        first = self.ask(self.sources[0])
        for source in self.sources[1:]:
            between()
            assert self.ask(source) == first, "all sources of a query take the same"
        start, end = first
        if start == end:
            return None
        for name, at in end.items():
            assert at >= start[name]
        self.position = end
        self.steps.append(end)
        return end

    def run(self) -> list[tuple[int, ...]]:
        """Rounds until there is nothing more to do now; the positions, in the order of the names of the logs."""
        taken = len(self.steps)
        while self.round() is not None:
            pass
        return [tuple(step[name] for name in sorted(step)) for step in self.steps[taken:]]

    def keep_cursors(self) -> None:
        """Let the logs know what is finished."""
        for log in self.logs:
            log.move_cursor(self.name, self.position[log.header.id])
