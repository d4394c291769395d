"""Setting an epoch aside: copied first, hidden then, and the same when it is done again."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.contract.log_store_contract")

from tests.contract.log_store_contract import SCHEMA, covers, publish  # noqa: E402

from tidelock.log import EpochLog  # noqa: E402
from tidelock.runtime.dead_letters import set_aside  # noqa: E402


def test_an_epoch_is_copied_once_and_hidden_from_one_consumer(tmp_path: Path) -> None:
    log = EpochLog.create(f"file:{tmp_path}/words", SCHEMA)
    writer = log.take_over("test")
    for epoch in range(4):
        publish(writer, covers(epoch), [epoch * 10, epoch * 10 + 1])
    dead = f"file:{tmp_path}/dead"
    for _ in range(2):  # a crash after it, before the segment went on
        assert set_aside(log, "counts", covers(2), dead) == 2
    set_aside(log, "counts", covers(3), dead)
    found = list(EpochLog.open(dead).verify())
    assert [entry[0] for entry in found] == [covers(0), covers(1)], "dead letters have a count of their own"
    assert [entry[1].inputs[0].covers for entry in found] == [covers(2), covers(3)]
    assert [entry[1].rows for entry in found] == [2, 2]
    assert log.is_set_aside("counts", covers(2))
    assert not log.is_set_aside("counts", covers(1))
    assert not log.is_set_aside("others", covers(2)), "the others still see it"
