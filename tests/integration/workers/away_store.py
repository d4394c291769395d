"""A log store that can be away: `away:` URLs are directories as `file:` ones are, and answer only while they may.

While there is a file `AWAY` beside the logs, every call fails as with a server that does not answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidelock.errors import BackendUnavailable
from tidelock.log.store import LogStore, register_store
from tidelock.log.stores.files import FileStore


def _answering(name: str) -> Any:
    """The method of that name, when the store is there."""
    method = getattr(FileStore, name)

    def call(self: AwayStore, *given: Any, **named: Any) -> Any:
        if self.switch.exists():
            raise BackendUnavailable(f"{self.url}: it does not answer")
        return method(self, *given, **named)

    return call


class AwayStore(FileStore):
    """A `FileStore` that fails while its switch is there."""

    def __init__(self, url: str) -> None:
        super().__init__(f"file:{url.removeprefix('away:')}")
        self.url = f"away:{self.root}"
        self.switch = Path(self.root.parent, "AWAY")


for _name in LogStore.__abstractmethods__:
    setattr(AwayStore, _name, _answering(_name))
register_store("away", AwayStore)
