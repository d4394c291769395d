"""Looking at cells behind the back of their store."""

from __future__ import annotations

from typing import Any

from tidelock.cache.store import BUCKETS


def cells_held(client: Any, path: str) -> int:
    """How many cells a server holds of a state, of whatever kind."""
    fields = [client.hkeys(f"{path}:b{number}") for number in range(BUCKETS)]
    return sum(field != b"" for some in fields for field in some)
