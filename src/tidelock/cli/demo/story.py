"""The demo itself: start two queries, kill one, start it again, wait for both, compare.

The story knows the queries only by their logs and their process ids, as an operator would: no message passes
between it and them. Whatever ends it, every process that it started is gone when it returns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from tidelock.cli.demo.children import Child, ChildFailed
from tidelock.cli.demo.progress import Event, LogWatch, QueryView, State, View
from tidelock.epochs import BEFORE_FIRST

_LOOK_EVERY = 0.1
_PATIENCE = 240.0
"""Seconds without a new epoch in any log after which the demo gives up."""
_CONSUMER = "counts"


@dataclass(frozen=True)
class Settings:
    """What is run, and where."""

    home: Path
    epochs: int
    rows: int
    seed: int


class Screen(Protocol):
    """Where the story is told while it happens."""

    def show(self, view: View) -> None:
        """Show how things are now."""

    def tell(self, event: Event) -> None:
        """Show that something happened."""


class Story:
    """One run of the demo."""

    def __init__(self, settings: Settings, screen: Screen) -> None:
        self._settings = settings
        self._screen = screen
        self._began = time.monotonic()
        self._children: list[Child] = []
        self._producer: Child
        self._logs = {name: LogWatch(self._url(name)) for name in ("words", "counts")}
        self._words = QueryView("tweets to words")
        self._counts = QueryView("word count")
        self._view = View(settings.epochs, (self._words, self._counts))

    def run(self) -> dict[str, Any]:
        """Tell the whole story; the answer has what was done and whether the counts are right.

        Raises:
            ChildFailed: a process died that nobody had killed, or nothing moves any more.
        """
        try:
            victim = self._start()
            self._wait(lambda: self._counts.epochs * 3 >= self._settings.epochs, victim)
            killed = self._kill(victim)
            successor, recovered = self._restart(killed)
            proof = self._finish(successor)
        finally:
            for child in self._children:
                child.kill()
        return {
            "equal": not proof["differences"],
            **proof,
            "seed": self._settings.seed,
            "seconds": round(self._now(), 1),
            "producer": {"pid": self._producer.pid},
            "killed": killed,
            "recovered": recovered,
            "events": [asdict(event) for event in self._view.events],
        }

    # -- the acts

    def _start(self) -> Child:
        self._producer = self._spawn("words", self._words.name)
        self._words.pid = self._producer.pid
        self._tell(f"started {self._words.name} (pid {self._words.pid}), to write an epoch every second")
        victim = self._start_counts()
        self._tell(f"started {self._counts.name} (pid {victim.pid}), to read them")
        self._wait(lambda: self._words.epochs > 0, victim)
        self._words.state = State.RUNNING
        self._tell(f"{self._words.name} has published its first epoch")
        self._wait(lambda: self._counts.epochs > 0, victim)
        self._counts.state = State.RUNNING
        self._tell(f"{self._counts.name} has counted its first epoch")
        return victim

    def _kill(self, victim: Child) -> dict[str, Any]:
        at = self._now()
        victim.kill()
        self._look()
        self._counts.state = State.KILLED
        epoch = self._logs["counts"].newest
        self._tell(f"killed {self._counts.name} (pid {victim.pid}, SIGKILL) after epoch {epoch}")
        before = self._words.epochs
        self._wait(lambda: self._words.epochs >= before + 2 or self._words.state is State.DONE)
        return {"pid": victim.pid, "exit_code": victim.exit_code, "epoch": epoch, "at": round(at, 1)}

    def _restart(self, killed: dict[str, Any]) -> tuple[Child, dict[str, Any]]:
        successor = self._start_counts()
        self._counts.state = State.RESTARTING
        self._tell(f"started {self._counts.name} again (pid {successor.pid}) on the same checkpoint")
        self._wait(lambda: self._logs["counts"].newest > killed["epoch"], successor)
        self._counts.state = State.RUNNING
        epoch, down = killed["epoch"] + 1, self._now() - killed["at"]
        waited = self._logs["words"].newest - killed["epoch"]
        self._tell(f"it goes on from epoch {epoch}, {down:.1f} s after the kill; {waited} epochs had waited")
        return successor, {"pid": successor.pid, "epoch": epoch, "seconds": round(down, 1), "waited": waited}

    def _finish(self, successor: Child) -> dict[str, Any]:
        self._wait(lambda: self._words.state is State.DONE, successor)
        result = self._settings.home / "proof.json"
        checker = self._spawn("check", "the check", "--result", str(result))
        self._tell("counting the same tweets in one batch, to compare")
        last = self._logs["words"].newest
        self._wait(lambda: self._logs["words"].cursor >= last, successor, checker)
        successor.stop()
        self._counts.state = State.DONE
        self._tell(f"{self._counts.name} has finished all {self._counts.epochs} epochs")
        self._wait(checker.finished)
        proof: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return proof

    # -- the processes

    def _start_counts(self) -> Child:
        child = self._spawn("counts", self._counts.name)
        self._counts.pid = child.pid
        return child

    def _spawn(self, role: str, name: str, *more: str) -> Child:
        home, settings = self._settings.home, self._settings
        arguments = [role, "--words", self._url("words"), "--counts", self._url("counts")]
        arguments += ["--consumer", _CONSUMER]
        arguments += ["--checkpoint", str(home / "checkpoints" / role), "--scratch", str(home / "scratch")]
        arguments += ["--epochs", str(settings.epochs), "--rows", str(settings.rows)]
        arguments += [f"--seed={settings.seed}"]
        child = Child(name, [*arguments, *more], home / f"{role}.txt")
        self._children.append(child)
        return child

    def _url(self, log: str) -> str:
        return (self._settings.home / log).as_uri()

    # -- looking and telling

    def _wait(self, reached: Callable[[], bool], *alive: Child) -> None:
        """Look again and again until the condition holds, as long as the processes are well."""
        seen, since = self._look(), time.monotonic()
        while not reached():
            for child in alive:
                child.finished()
            if time.monotonic() - since > _PATIENCE:
                raise ChildFailed(f"no new epoch for {_PATIENCE:.0f} s; see the logs in {self._settings.home}")
            time.sleep(_LOOK_EVERY)
            now = self._look()
            if now != seen:
                seen, since = now, time.monotonic()

    def _look(self) -> tuple[int, ...]:
        ended = self._producer.finished()  # asked first, so that what it published last is seen
        words, counts = self._logs["words"], self._logs["counts"]
        for log in (words, counts):
            log.look()
        self._words.epochs, self._words.rows = words.newest + 1, words.rows
        self._counts.epochs, self._counts.rows = counts.newest + 1, counts.rows
        self._counts.lag = None if words.newest == BEFORE_FIRST else words.newest - counts.newest
        self._view.kept, self._view.finished = words.kept, words.cursor
        self._view.seconds = self._now()
        if ended and self._words.state is State.RUNNING:
            self._words.state = State.DONE
            self._tell(f"{self._words.name} has published all its {self._words.epochs} epochs and ended")
        self._screen.show(self._view)
        return words.newest, words.cursor, counts.newest

    def _tell(self, text: str) -> None:
        event = Event(round(self._now(), 1), text)
        self._view.events.append(event)
        self._screen.tell(event)
        self._screen.show(self._view)

    def _now(self) -> float:
        return time.monotonic() - self._began
