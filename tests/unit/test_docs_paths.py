"""Every path and every name of Tidelock that a page mentions is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tidelock import coordination
from tidelock.cache import store as caches
from tidelock.home import home
from tidelock.log import store as logs

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "tidelock"
PAGES = [*sorted((REPOSITORY / "docs").glob("*.md")), REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]
INVENTED = {"payments.py", "a/b", "DIR/spark.log", "DIR/trends.sqlite", "NAME.topology.json"}
"""What examples call things of users."""
WRITTEN = {*re.findall(r"^(\S+?)(?:<|\s)", home.__doc__ or "", flags=re.MULTILINE), "spark.log", "_manifest.json"}
"""What is in homes and in what they write."""
GROUPS = {registry._group for registry in (caches._CACHES, coordination._TREES, logs._STORES)}
"""What entry points are called."""


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def _paths(page: Path) -> Iterator[str]:
    for word in re.findall(r"`([\w./-]+)`", _prose(page)):
        if re.search(r"\w/|\.(py|md|toml|lock|sh|json|jsonl|log)$", word) and not word.startswith(("/", ".")):
            yield word


def _is_there(path: str) -> bool:
    """Whether it is in the repository or the package; below a folder, as tables of it name it, too."""
    if (REPOSITORY / path).exists() or (PACKAGE / path).exists():
        return True
    return any(found.match(path.rstrip("/")) for found in PACKAGE.rglob("*") if "__pycache__" not in found.parts)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_path_is_there(page: Path) -> None:
    known = INVENTED | WRITTEN
    assert not [path for path in _paths(page) if path not in known and not _is_there(path)]


def test_every_path_of_the_glossary_is_where_it_says() -> None:
    words = list(_paths(REPOSITORY / "docs" / "glossary.md"))
    assert len(words) > 50
    assert not [path for path in words if not (PACKAGE / path).exists() and path != "src/tidelock/"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_is_there(page: Path) -> None:
    names = set(re.findall(r"`(tidelock(?:\.\w+)+)`", _prose(page))) - GROUPS
    for name in names:
        above, _, last = name.rpartition(".")
        try:
            import_module(name)
        except ImportError:
            assert hasattr(import_module(above), last), name


def test_what_the_glossary_finds_in_a_file_is_in_that_file() -> None:
    page = _prose(REPOSITORY / "docs" / "glossary.md")
    placed = re.findall(r"`(\w+)(?:\.(\w+))?` in `([\w/]+\.py)`", page)
    assert placed
    for name, part, file in placed:
        text = (PACKAGE / file).read_text(encoding="utf-8")
        assert re.search(rf"^class {name}\b", text, flags=re.MULTILINE), name
        assert not part or re.search(rf"\b{part}\b", text), part
