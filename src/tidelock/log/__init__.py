"""The epoch log: rules (`window`), format (`entry`, `parts`, `sealed`), stores, and the log itself."""

from tidelock.log.log import EpochLog, LogWriter
from tidelock.log.store import open_store, register_store
from tidelock.log.window import Retention, Window, WindowError

__all__ = [
    "EpochLog",
    "LogWriter",
    "Retention",
    "Window",
    "WindowError",
    "open_store",
    "register_store",
]
