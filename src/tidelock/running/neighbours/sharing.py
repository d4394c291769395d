"""The part of a running job that helps to put together a subject which several jobs produce."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from tidelock.alignment.combining import Combiner
from tidelock.alignment.directory import Directory, Subject
from tidelock.coordination import Lease, SessionExpired, Tree, open_tree
from tidelock.epochs import Epoch
from tidelock.errors import BackendUnavailable, Fenced, LogNotFound
from tidelock.home.events import Events
from tidelock.log import EpochLog

_LOOK_EVERY = 0.03
_ASK_EVERY = 1.0


class SharedSubject:
    """Combines the epochs of one subject while no other job does.

    `run` belongs into a thread of its own, which owns everything here; only `end` may be called from another one.
    """

    def __init__(
        self, subject: Subject, job: str, coordinator: str, patience: float, events: Events, *, producers: int
    ) -> None:
        self._subject = subject
        self._expected = producers
        self._job = job
        self._coordinator = coordinator
        self._patience = patience
        self._events = events
        self._ended = threading.Event()
        self._tree: Tree | None = None
        self._lease: Lease | None = None
        self._combiner: Combiner | None = None
        self._producers: dict[str, EpochLog] = {}
        self._asked = 0.0
        self._trouble: str | None = None
        """What was told last, so that it is told once."""

    def run(self) -> None:
        """Combine whenever it is this job's turn, until `end` is called."""
        try:
            while not self._ended.wait(_LOOK_EVERY):
                self._look()
        finally:
            self._let_go()

    def end(self) -> None:
        """Let `run` return; another producer goes on."""
        self._ended.set()

    def _look(self) -> None:
        try:
            if time.monotonic() - self._asked >= _ASK_EVERY:
                self._asked = time.monotonic()
                self._ask()
            while self._combiner is not None and not self._ended.is_set():
                if not self._combiner.step(self._producers):
                    self._trouble = None
                    return
        except Fenced:
            self._let_go()
        except Exception as trouble:  # whatever it is: the thread lives as long as the run, and tries again
            # Whether the newest epoch was published is in the log: begin again from what it says.
            self._combiner = None
            if str(trouble) != self._trouble:
                self._trouble = str(trouble)
                self._events.add("outage", None, f"subject {self._subject.name} waits: {trouble}")

    def _ask(self) -> None:
        """See who produces, and whether it is this job's turn; without the tree everything stays as it is."""
        try:
            if self._tree is None:
                self._tree = open_tree(self._coordinator)
                self._lease = Lease(self._tree, f"/subjects/{self._subject.name}/combiner", owner=self._job)
            self._producers = self._opened(Directory(self._tree).producers(self._subject.name))
            if len(self._producers) < self._expected or self._lease is None or self._combiner is not None:
                return
            if self._lease.try_acquire():
                self._combiner = Combiner(
                    EpochLog.open(self._subject.endpoint), patience=self._patience, recalled=self._tell_recall
                )
                if self._trouble is None:
                    self._events.add(
                        "combining", None, f"this job puts together the epochs of {self._subject.name}"
                    )
        except BackendUnavailable:
            return
        except SessionExpired:
            self._leave_tree()
        except BaseException:
            self._leave_tree()  # it may be another one by now, and is opened again
            raise

    def _tell_recall(self, epoch: Epoch) -> None:
        self._events.add(
            "subject recalled",
            None,
            f"the log of {self._subject.name} has lost its epochs behind {epoch}: they are put together again, "
            "and followers that had read them stop",
        )

    def _opened(self, producers: Mapping[str, str]) -> dict[str, EpochLog]:
        found = {}
        for job, url in producers.items():
            known = self._producers.get(job)
            try:
                found[job] = known if known is not None and known.url == url else EpochLog.open(url)
            except LogNotFound:
                continue  # its home is gone; what it had written is combined already, or lost
        return found

    def _let_go(self) -> None:
        self._combiner = None
        if self._lease is not None:
            with suppress(Exception):  # then it goes with the session; whatever it is, it ends nobody's thread
                self._lease.release()
        self._leave_tree()

    def _leave_tree(self) -> None:
        tree, self._tree, self._lease = self._tree, None, None
        if tree is not None:
            with suppress(Exception):
                tree.close()
