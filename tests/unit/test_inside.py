"""Stored names never lead outside of where they belong."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tidelock import stored_names as module
from tidelock.errors import LogCorrupt
from tidelock.inside import inside
from tidelock.stored_names import plain_name

HOSTILE = ["../x", "/etc/x", "a/../../x", "a/./x", "", "a\0b", "a\\..\\x", "a//x", "..", ".", "a/"]


def test_doctests() -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LogCorrupt):
        inside(tmp_path, name)
    with pytest.raises(LogCorrupt):
        plain_name(name)


def test_a_link_does_not_lead_outside(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path / "outside")
    with pytest.raises(LogCorrupt, match="through a link"):
        inside(tmp_path / "root", "link/file")
    assert inside(tmp_path / "root", "folder/file") == tmp_path / "root/folder/file"
