"""What a sink has to do so that every epoch arrives exactly once.

A class of yours derives from `TakingBackContract`, or from `SinkContract` if the sink takes nothing back. It gives
two fixtures: ``opened`` makes a sink object on one and the same place, a new one for every run, and ``found``
reads what has arrived there. The fixture ``spark`` is a session, which a ``conftest.py`` may have for all tests.
What is delivered has one column of numbers, ``n``::

    class TestTable(TakingBackContract):
        @pytest.fixture
        def opened(self, tmp_path):
            return lambda: Table(tmp_path / "table")

        @pytest.fixture
        def found(self, tmp_path):
            return lambda: read_numbers(tmp_path / "table")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tidelock.epochs import Epoch, EpochRange
from tidelock.spark.frames import DataFrame, SparkSession
from tidelock.spark.query.batches import Work
from tidelock.spark.sinks.sink import Sink, kept

Opened = Callable[[], Sink]
Found = Callable[[], Iterable[int]]


def work(first: int, last: int | None = None, *, offset: int = 0) -> Work:
    """The work of the batch that takes these epochs; another one of them if its input has another offset."""
    covers = EpochRange(Epoch(first), Epoch(first if last is None else last))
    return Work(covers, (), ({"offset": offset},), "the query", covers.last)


def numbers(spark: SparkSession, first: int, last: int, *, breaks_at: int | None = None) -> DataFrame:
    """The numbers from ``first`` to ``last``, in several tasks; computing them fails where ``breaks_at`` says."""
    number = "id"
    if breaks_at is not None:
        number = f"CASE WHEN id = {breaks_at} THEN CAST(raise_error('a task fails') AS BIGINT) ELSE id END"
    return spark.range(first, last + 1, numPartitions=2).selectExpr(f"{number} AS n")


def deliver(sink: Sink, rows: DataFrame, done: Work) -> None:
    """Hand rows over as a run does."""
    if not sink.keeps_rows:
        sink.deliver(rows, done)
        return
    held = kept(rows)
    try:
        sink.deliver(held, done)
    finally:
        held.unpersist()


class SinkContract:
    """The contract of every sink, also of one that leaves `Sink.take_back` as it is."""

    @pytest.fixture
    def opened(self) -> Opened:
        raise NotImplementedError("the sink's test class gives what opens it")

    @pytest.fixture
    def found(self) -> Found:
        raise NotImplementedError("the sink's test class gives what reads what has arrived")

    def test_every_epoch_arrives(self, spark: SparkSession, opened: Opened, found: Found) -> None:
        sink = opened()
        for epoch in range(3):
            deliver(sink, numbers(spark, epoch * 10, epoch * 10 + 9), work(epoch))
        assert sorted(found()) == list(range(30))

    def test_a_batch_without_rows_is_one(self, spark: SparkSession, opened: Opened, found: Found) -> None:
        sink = opened()
        deliver(sink, numbers(spark, 0, -1), work(0))
        deliver(sink, numbers(spark, 0, -1), work(0))
        deliver(sink, numbers(spark, 5, 9), work(1))
        assert sorted(found()) == list(range(5, 10))

    @pytest.mark.parametrize("who", ["the same run", "a later run"])
    def test_a_work_that_is_done_again_arrives_once(
        self, spark: SparkSession, opened: Opened, found: Found, who: str
    ) -> None:
        sink = opened()
        deliver(sink, numbers(spark, 0, 9), work(0))
        deliver(sink, numbers(spark, 10, 19), work(1))
        again = sink if who == "the same run" else opened()
        deliver(again, numbers(spark, 10, 19), work(1))
        deliver(again, numbers(spark, 20, 29), work(2))
        assert sorted(found()) == list(range(30))

    def test_several_epochs_of_one_batch_arrive_once(
        self, spark: SparkSession, opened: Opened, found: Found
    ) -> None:
        for _ in range(2):
            deliver(opened(), numbers(spark, 0, 29), work(0, 2))
        deliver(opened(), numbers(spark, 30, 39), work(3, 5))
        assert sorted(found()) == list(range(40))

    def test_a_delivery_that_failed_is_done_again(self, spark: SparkSession, opened: Opened, found: Found) -> None:
        sink = opened()
        deliver(sink, numbers(spark, 0, 9), work(0))
        with pytest.raises(Exception, match="a task fails"):
            deliver(sink, numbers(spark, 10, 19, breaks_at=19), work(1))
        deliver(opened(), numbers(spark, 10, 19), work(1))
        assert sorted(found()) == list(range(20))

    def test_there_may_be_nothing_to_take_back(self, spark: SparkSession, opened: Opened, found: Found) -> None:
        sink = opened()
        sink.take_back(Epoch(-1))
        deliver(sink, numbers(spark, 0, 9), work(0))
        sink.take_back(Epoch(0))
        assert sorted(found()) == list(range(10))


class TakingBackContract(SinkContract):
    """The contract of a sink that takes back what it has: epochs that are made anew arrive once there, too."""

    @pytest.mark.parametrize("times", [1, 2])
    def test_what_is_taken_back_is_made_anew(
        self, spark: SparkSession, opened: Opened, found: Found, times: int
    ) -> None:
        sink = opened()
        for epoch in range(4):
            deliver(sink, numbers(spark, epoch * 10, epoch * 10 + 9), work(epoch))
        again = opened()
        for _ in range(times):
            again.take_back(Epoch(1))
        assert sorted(found()) == list(range(20))
        deliver(again, numbers(spark, 100, 104), work(2, offset=7))
        deliver(again, numbers(spark, 200, 204), work(3, offset=7))
        assert sorted(found()) == [*range(20), *range(100, 105), *range(200, 205)]
