"""Which files of a checkpoint belong to which batch, and which batches can be gone on from with what is left."""

from __future__ import annotations

import doctest

import pytest

from tidelock.epochs import Epoch
from tidelock.errors import UnsupportedFormat
from tidelock.spark.checkpoint import formats, layout, versions

COMMITTED = {batch: Epoch(batch * 10) for batch in range(4)}
LOGGED = [name for batch in COMMITTED for name in (layout.offsets_file(batch), layout.commit_file(batch))]


@pytest.mark.parametrize("module", [formats, layout, versions])
def test_the_examples_in_the_docstrings_run(module: object) -> None:
    result = doctest.testmod(module)
    assert (result.failed, result.attempted > 0) == (0, True)


def safe(*state: str, lost: str | None = None) -> dict[Epoch, int]:
    known = ["metadata", *LOGGED, *state]
    return versions.safe_batches(COMMITTED, known, [name for name in known if name != lost], "here")


def test_without_state_every_batch_that_is_in_both_logs_is_safe() -> None:
    assert safe() == {0: 0, 10: 1, 20: 2, 30: 3}
    assert safe(lost="commits/1") == {0: 0, 20: 2, 30: 3}
    assert safe(lost="offsets/3") == {0: 0, 10: 1, 20: 2}


def test_a_batch_needs_the_version_after_it_of_every_store() -> None:
    changes = [f"state/0/{store}/{version}.delta" for store in (0, 1) for version in (1, 2, 3, 4)]
    assert safe(*changes) == {0: 0, 10: 1, 20: 2, 30: 3}
    assert safe(*changes, lost="state/0/1/3.delta") == {0: 0, 10: 1}
    assert safe(*changes, "state/0/1/3.snapshot", lost="state/0/1/3.delta") == {0: 0, 10: 1, 20: 2, 30: 3}


def test_a_store_that_has_lost_everything_is_not_forgotten() -> None:
    assert safe("state/0/0/2.zip", lost="state/0/0/2.zip") == {}


def test_what_belongs_to_no_batch_is_needed_by_all() -> None:
    assert safe(lost="metadata") == {}


def test_state_of_an_unknown_format_is_refused() -> None:
    with pytest.raises(UnsupportedFormat, match=r"here: the state file state/0/0/2_1b2\.delta"):
        safe("state/0/0/2_1b2.delta")
