"""Threads that do something again and again, with the interpreter changing between them all the time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SWITCH = 1e-5


@contextmanager
def hasty() -> Iterator[None]:
    """Let the interpreter change to another thread as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def hammer(*blows: Callable[[], object], seconds: float = 1.0) -> None:
    """Do each of these in a thread of its own, for so long; whatever one of them raises is raised here."""
    deadline = time.monotonic() + seconds
    raised: list[BaseException] = []

    def strike(blow: Callable[[], object]) -> None:
        try:
            while not raised and time.monotonic() < deadline:
                blow()
        except BaseException as failure:
            raised.append(failure)

    threads = [threading.Thread(target=strike, args=(blow,)) for blow in blows]
    with hasty():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if raised:
        raise raised[0]
