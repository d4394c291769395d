"""Taking what is there, and no more: when the heads of a pipeline are done, and at which epoch all of them meet.

Theory of operation
-------------------
A head *moves* in a batch if one of its sources gives something new. The first batch in which it does not, and the
end of its query, mean that it has taken what was there: it is *exhausted*. That lasts; what comes later waits for
the next run.

Heads make their epochs side by side, and whoever reads several of them needs the same epoch from all. So a head
that is exhausted goes on, with empty epochs, as far as any other has come and no further: nobody runs ahead with
epochs that the others would have to follow. When all are exhausted they meet at `last`, the newest epoch of any of
them. From there on each further epoch has to be asked for (`one_more`): an empty one lets out what the last
watermark has closed, or takes what is under way in a loop once around.

Invariants: an exhausted head never enters an epoch beyond `last`, or beyond what another head has entered; `last`
never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelock.epochs import Epoch


class Drain:
    """The drain of one run. Not thread-safe.

    >>> drain = Drain({"left": Epoch(4), "right": Epoch(4)})
    >>> drain.admits("left", Epoch(5), moves=True), drain.admits("right", Epoch(5), moves=False)
    (True, True)
    >>> drain.admits("right", Epoch(6), moves=False), drain.last is None
    (False, True)
    >>> drain.admits("left", Epoch(6), moves=False), drain.last
    (False, 5)
    >>> drain.one_more()
    >>> drain.admits("left", Epoch(6), moves=False), drain.admits("left", Epoch(7), moves=False), drain.last
    (True, False, 6)

    Args:
        heads: the heads, each with the newest epoch that it has committed.
    """

    def __init__(self, heads: Mapping[str, Epoch]) -> None:
        self._reached = dict(heads)
        self._exhausted: set[str] = set()
        self._asked: Epoch = max(heads.values())

    def admits(self, head: str, epoch: Epoch, *, moves: bool) -> bool:
        """Whether a head may make an epoch now, in which it ``moves`` or not. To be asked again later is fine."""
        if not moves and epoch > self._reached[head]:
            self._exhausted.add(head)
        if head in self._exhausted and epoch > self._newest:
            return False
        self._reached[head] = max(self._reached[head], epoch)
        return True

    def ended(self, head: str) -> None:
        """The query of a head has ended by itself: there is nothing more."""
        self._exhausted.add(head)

    @property
    def last(self) -> Epoch | None:
        """The epoch at which everybody is done, unless more is asked for; None as long as a head moves."""
        return self._newest if self._exhausted >= self._reached.keys() else None

    def one_more(self) -> None:
        """Let all heads make one more epoch behind the last."""
        self._asked = Epoch(self._newest + 1)

    @property
    def _newest(self) -> Epoch:
        return max(self._asked, *self._reached.values())
