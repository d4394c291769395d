"""Back ends that other packages bring, found by the schemes of URLs in any process."""

import subprocess
import sys
from pathlib import Path

import pytest

from tidelock.backends import Registry
from tidelock.cache.store import open_cells
from tidelock.errors import PipelineError

STORE = """
from tidelock.log.stores.files import FileStore

def shelf(url):
    return FileStore("file:" + url.partition(":")[2])
"""


def install(place: Path, group: str, line: str) -> None:
    """A package with an entry point, as an installer leaves it."""
    (place / "shelves.py").write_text(STORE)
    facts = place / "shelves-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: shelves\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[{group}]\n{line}\n")


def test_a_store_of_another_package_is_found_by_its_scheme(tmp_path: Path) -> None:
    install(tmp_path, "tidelock.logs", "shelf = shelves:shelf")
    code = "import tidelock.log as log; print(log.open_store('shelf:/some/where').shown)"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2] / 'src'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == "file:/some/where"


CACHE = """
from tidelock.cache.redis_cells import RedisCells

class Attic(RedisCells):
    def __init__(self, url):
        super().__init__("redis" + url.removeprefix("attic"))
        self.url = url

    def under(self, name):
        return Attic(f"{self.url}/{name}")
"""


def test_a_cache_of_another_package_is_found_by_its_scheme(tmp_path: Path) -> None:
    install(tmp_path, "tidelock.caches", "attic = attics:Attic")
    (tmp_path / "attics.py").write_text(CACHE)
    code = """
from tidelock.cache.store import open_cells
from tidelock.home.home import Home
url = Home("home", cache="attic://host:1/0/x").state("sums")
print(url, type(open_cells(url)).__name__)
"""
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2] / 'src'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == ["attic://host:1/0/x/state/sums", "Attic"]


def test_a_cache_that_nobody_knows_is_named_without_its_password() -> None:
    with pytest.raises(PipelineError, match=r"no cache for .*: the scheme must be one of redis:, rediss:") as told:
        open_cells("memcached://me:secret@host")
    assert "secret" not in str(told.value)


def test_ours_come_first_and_what_is_registered_before_them() -> None:
    registry: Registry[str] = Registry("tidelock.nothing", {"words": "builtins:str"})
    assert registry.schemes() == ["words"] and registry.find("other:x") is None
    found = registry.find("words:x")
    assert found is not None and found("words:x") == "words:x"
    registry.register("words", str.upper)
    found = registry.find("words:x")
    assert found is not None and found("words:x") == "WORDS:X"


@pytest.mark.parametrize("where", ["no_such_module:Store", "builtins:Store"])
def test_a_back_end_that_cannot_be_loaded_is_named(where: str) -> None:
    registry: Registry[str] = Registry("tidelock.nothing", {"words": where})
    with pytest.raises(PipelineError, match=f"for URLs of words: cannot be loaded .{where}"):
        registry.find("words:x")
