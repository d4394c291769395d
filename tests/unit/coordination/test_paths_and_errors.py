"""The pure parts: paths, path_states, errors and the choice of a backend."""

import doctest
import pickle
from pathlib import Path

import pytest

import tidelock.coordination as coordination
from tidelock.coordination import BadVersion, LeaseHeld, NoNode, SessionExpired, open_tree, path_states, paths
from tidelock.errors import PipelineError, TidelockError


@pytest.mark.parametrize("module", [paths, path_states])
def test_doctests(module: object) -> None:
    outcome = doctest.testmod(module)  # type: ignore[arg-type]
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_a_child_of_the_root() -> None:
    assert paths.join("/", "a") == "/a"
    assert paths.parent("/") == "/"
    assert paths.ancestors("/a") == []


@pytest.mark.parametrize("letter", ["\ue000", "\ufff0", "\uffff", "\U00010000", "\U0001f600", "\U0010ffff"])
def test_what_zookeeper_cannot_have_in_a_path_no_backend_has(letter: str) -> None:
    with pytest.raises(PipelineError, match=r"private character, or one beyond U\+FFFF"):
        paths.check_path(f"/a{letter}b")


@pytest.mark.parametrize(
    "error",
    [NoNode("/n"), BadVersion("/n", 3), SessionExpired("tree.db"), LeaseHeld("/x", "run-1")],
)
def test_errors_survive_pickling(error: TidelockError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_a_lease_has_an_owner_of_one_line(tmp_path: Path) -> None:
    with (
        open_tree(f"embedded:{tmp_path}/tree.db") as tree,
        pytest.raises(PipelineError, match="one line"),
    ):
        coordination.Lease(tree, "/x", owner="a\nb")


@pytest.mark.parametrize("slashes", ["", "//"])
def test_embedded_urls(tmp_path: Path, slashes: str) -> None:
    file = tmp_path / "new folder" / "tree.db"
    with open_tree(f"embedded:{slashes}{file}") as tree:
        tree.create("/n")
    assert file.exists()


@pytest.mark.parametrize(
    "rest", ["", "tree.db", "~/tree.db", "//host/tree.db", "////x", "/", "/x/", "/x?a=1", "/x#y"]
)
def test_malformed_embedded_urls(rest: str) -> None:
    with pytest.raises(PipelineError, match="malformed URL"):
        open_tree(f"embedded:{rest}")


@pytest.mark.parametrize("url", ["", "tree.db", "/x", "etcd:/x", "EMBEDDED:/x"])
def test_unknown_schemes_name_the_known_ones(url: str) -> None:
    with pytest.raises(PipelineError, match="use one of embedded:, zookeeper:"):
        open_tree(url)


def test_a_password_is_not_told_of_an_unknown_scheme_either() -> None:
    with pytest.raises(PipelineError, match=r"no coordination backend for 'zookeper://...'"):
        open_tree("zookeper://me:s3cret@host")


def test_a_session_needs_a_time_out(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="positive"):
        open_tree(f"embedded:{tmp_path}/tree.db", session_timeout=0)


def test_the_public_names_are_sorted_and_exist() -> None:
    assert sorted(coordination.__all__) == coordination.__all__
    assert all(hasattr(coordination, name) for name in coordination.__all__)
