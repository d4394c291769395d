"""A package of somebody else that brings a store, and tests it with the contract that it imports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.foreign_package import install

SOURCE = Path(__file__).parents[2] / "src"
STORES = """
from tidelock.log.stores.files import FileStore


class Shelf(FileStore):
    '''A store of other URLs, which reaches other processes by its entry point alone.'''

    def __init__(self, url):
        super().__init__("file:" + url.partition(":")[2])
        self.url = url


class Forgetful(Shelf):
    '''It tells everybody that the document is theirs.'''

    def create(self, name, data):
        super().create(name, data)
        return True
"""
TESTS = """
import pytest

from tidelock.testing.contracts.logs import LogStoreContract


class TestShelf(LogStoreContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"shelf:{tmp_path}/log"


class TestForgetful(LogStoreContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"forgetful:{tmp_path}/log"
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package as an installer leaves it, and its tests beside it."""
    install(tmp_path, "shelves", STORES, {"tidelock.logs": {"shelf": "Shelf", "forgetful": "Forgetful"}})
    (tmp_path / "test_shelves.py").write_text(TESTS)
    return tmp_path


def play(package: Path, name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shelves.py", "-k", name]
    return subprocess.run(
        command,
        cwd=package,
        env={**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{SOURCE}"},
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_a_store_that_does_what_it_must_keeps_the_contract(package: Path) -> None:
    answer = play(package, "TestShelf")
    assert answer.returncode == 0, answer.stdout
    passed = re.search(r"^(\d+) passed", answer.stdout, flags=re.MULTILINE)
    assert passed is not None and int(passed[1]) > 40, "the whole contract was played"


def test_a_store_that_does_not_is_told_where_with_values(package: Path) -> None:
    answer = play(package, "TestForgetful and test_a_document_is_created_once")
    assert answer.returncode == 1
    assert "assert not True" in answer.stdout, "assertions of the kit are explained as those of any test"
