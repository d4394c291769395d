"""Keyed state in a cache.

`rows` and `cells` are the bytes, `fence` and `store` where they are kept, `aggregates` and `operator` what changes
them, `snapshots` their durable copies.
"""

from tidelock.cache import aggregates

__all__ = ["aggregates"]
