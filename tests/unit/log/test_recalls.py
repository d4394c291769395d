"""A log that was put back says so, and whoever is beyond stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelock.epochs import Epoch
from tidelock.errors import LogCorrupt, PipelineError
from tidelock.log import EpochLog

COLUMNS = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}


@pytest.fixture
def log(tmp_path: Path) -> EpochLog:
    return EpochLog.create(f"file:{tmp_path}/numbers", COLUMNS)


def test_a_log_that_was_never_put_back(log: EpochLog) -> None:
    assert log.recalls() == ()
    assert log.check_stands(Epoch(7), 0) == 0


def test_who_is_not_beyond_goes_on_and_knows_it_from_then_on(log: EpochLog) -> None:
    log.tell_recalls([Epoch(5)])
    assert log.check_stands(Epoch(5), 0) == 1
    assert log.check_stands(Epoch(9), 1) == 1, "it came there on what was published again"


def test_who_is_beyond_stops_with_a_story(log: EpochLog) -> None:
    log.tell_recalls([Epoch(5)])
    with pytest.raises(PipelineError, match=r"the epochs behind 5 were lost .* up to 6 already.*tidelock restore"):
        log.check_stands(Epoch(6), 0)


def test_every_recall_since_counts(log: EpochLog) -> None:
    log.tell_recalls([Epoch(5), Epoch(9)])
    with pytest.raises(PipelineError, match="behind 5"):
        log.check_stands(Epoch(7), 0)
    assert log.check_stands(Epoch(7), 1) == 2
    with pytest.raises(PipelineError, match="behind 9"):
        log.check_stands(Epoch(10), 1)


def test_a_log_that_has_forgotten_a_recall_is_not_trusted(log: EpochLog) -> None:
    log.tell_recalls([Epoch(5)])
    with pytest.raises(PipelineError, match="behind 5"):
        log.check_stands(Epoch(7), 2)
    assert log.check_stands(Epoch(4), 2) == 1


def test_a_damaged_document_is_told(log: EpochLog) -> None:
    log.store.put("recalls", b"{}")
    with pytest.raises(LogCorrupt, match="recalls"):
        log.check_stands(Epoch(1), 0)
