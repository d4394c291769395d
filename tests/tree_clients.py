"""What clients of shared trees have running in this process."""

from __future__ import annotations

import threading

# Of kazoo, and of the project's own clients.
_NAMES = ("zk_loop", "tidelock-heartbeat", "tidelock-watch", "tidelock-zookeeper-end")


def client_threads() -> set[str]:
    """The threads in which clients of this process keep up their connections and sessions, told apart."""
    return {
        f"{thread.name} {thread.ident}"
        for thread in threading.enumerate()
        if any(name in thread.name for name in _NAMES)
    }
