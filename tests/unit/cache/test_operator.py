"""What a task of an operator with cached state does with rows that are none, or broken, or without a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tidelock.cache import aggregates
from tidelock.cache.changes import Aggregate, Custom, StateChange
from tidelock.cache.operator import BUCKET, CachedOperator, Expiry, StateShape
from tidelock.cache.store import open_cells
from tidelock.epochs import BEFORE_FIRST
from tidelock.errors import Fenced
from tidelock.redis.conversation import Conversation

ROWS = pa.schema([("a", pa.int64()), ("b", pa.string()), ("t", pa.timestamp("us")), (BUCKET, pa.int32())])
KEYS = pa.schema([ROWS.field("a"), ROWS.field("b")])
COUNT = Aggregate(("a", "b"), {"n": aggregates.count()})


class Task:
    """A task of the only batch of a new state."""

    def __init__(
        self, url: str, change: StateChange, values: pa.Schema, expiry: Expiry | None = None, watermark: int = 0
    ) -> None:
        self.store = open_cells(url)
        self.store.create(b"header", BEFORE_FIRST)
        fence = replace(self.store.take_over("a run"), batch=0, begun=0, watermark=watermark)
        self.store.begin(fence, BEFORE_FIRST)
        self.operator = CachedOperator(url, fence.claim, StateShape(KEYS, values, expiry), change)

    def process(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
        given = pa.Table.from_pylist([{BUCKET: 7, **row} for row in rows], ROWS)
        made = self.operator.process(0, given)
        return None if made is None else made.to_pylist()


def counting(url: str, expiry: Expiry | None = None, watermark: int = 0) -> Task:
    return Task(url, COUNT, COUNT.state(ROWS), expiry, watermark)


def test_keys_of_several_columns_and_nulls_are_told_apart(redis_url: str) -> None:
    keys = [(1, "x"), (1, None), (None, "x"), (None, None), (1, "x"), (None, None), (0, "")]
    told = counting(redis_url).process([{"a": a, "b": b} for a, b in keys])
    assert told is not None
    counted = {(row["a"], row["b"]): row["n"] for row in told}
    assert counted == {key: keys.count(key) for key in keys}
    assert len(told) == len(counted)


def test_no_rows_ask_for_nothing(redis_url: str) -> None:
    task = counting(redis_url)
    task.store.take_over("another run")
    assert task.process([]) is None
    with pytest.raises(Fenced):
        task.process([{"a": 1}])


def test_a_row_without_a_time_is_late_as_soon_as_there_is_a_watermark(redis_url: str) -> None:
    rows = [{"a": 1, "t": None}, {"a": 2, "t": 5_000_001}, {"a": 3, "t": 5_000_000}]
    early = counting(f"{redis_url}/early", Expiry("t", 1)).process(rows)
    late = counting(f"{redis_url}/late", Expiry("t", 1), watermark=5000).process(rows)
    assert [row["a"] for row in early or []] == [1, 2, 3]
    assert [row["a"] for row in late or []] == [2]
    assert counting(f"{redis_url}/later", Expiry("t", 1), watermark=6000).process(rows) is None


def test_a_function_that_fails_changes_nothing(redis_url: str) -> None:
    def fail(rows: pa.Table, state: pa.Table) -> Any:
        raise ZeroDivisionError

    values = pa.schema([("n", pa.int64())])
    task = Task(redis_url, Custom(fail, KEYS, values, KEYS, pandas=False), values)
    with pytest.raises(ZeroDivisionError):
        task.process([{"a": 1}])
    assert counting(redis_url).process([{"a": 1}]) == [{"a": 1, "b": None, "n": 1}]


def test_a_function_sees_the_columns_of_the_stream_only(redis_url: str) -> None:
    seen = []

    def look(rows: pa.Table, state: pa.Table) -> Any:
        seen.extend([rows.column_names, state.column_names, state.to_pylist()])
        return state.select(["a", "b"]), state

    values = pa.schema([("n", pa.int64())])
    task = Task(redis_url, Custom(look, KEYS, values, KEYS, pandas=False), values)
    assert task.process([{"a": 1, "b": "x"}]) == [{"a": 1, "b": "x"}]
    assert seen == [["a", "b", "t"], ["a", "b", "n"], [{"a": 1, "b": "x", "n": None}]]


@pytest.mark.parametrize(("expiry", "questions"), [(None, 2), (Expiry("t", 1), 3)], ids=["lasting", "expiring"])
def test_a_task_asks_few_questions(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, expiry: Expiry | None, questions: int
) -> None:
    """One to read and one to write; with event time one more for the watermark, before the keys are known."""
    task = counting(redis_url, expiry)
    asked = []
    ask = Conversation.ask

    def counted(talk: Conversation, *commands: bytes) -> list[Any]:
        asked.append(commands)
        return ask(talk, *commands)

    monkeypatch.setattr(Conversation, "ask", counted)
    task.process([{"a": number, "t": 1, BUCKET: number} for number in range(200)])
    assert len(asked) == questions
