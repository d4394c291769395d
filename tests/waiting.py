"""How the tests wait: as those of other packages may, and as long as a slow machine needs."""

from tidelock.testing.waiting import PATIENCE, eventually

__all__ = ["PATIENCE", "eventually"]
