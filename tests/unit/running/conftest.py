from __future__ import annotations

from pathlib import Path

import pytest
from tests.played_world import Begin, Play


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Makes a run in a world that is played."""
    return lambda *policy, **more: Play(tmp_path, *policy, **more)
