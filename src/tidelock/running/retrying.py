"""Asking a store that is away again and again, for as long as a policy has patience."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from tidelock.errors import BackendUnavailable
from tidelock.recovery import Policy

Answer = TypeVar("Answer")


def patiently(what: Callable[[], Answer], policy: Policy, over: threading.Event) -> Answer | None:
    """What ``what`` returns when its store answers; None if ``over`` is set before that.

    Raises:
        BackendUnavailable: the store was away for longer than the policy has patience.
    """
    began = time.monotonic()
    for failures in count(1):
        try:
            return what()
        except BackendUnavailable:
            if time.monotonic() - began > policy.patience:
                raise
        if over.wait(policy.delay(failures)):
            break
    return None
