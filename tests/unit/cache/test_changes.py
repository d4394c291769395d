"""A function of the user changes state as it says, and what it returns wrongly is told in plain words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidelock.cache.aggregates import Groups
from tidelock.cache.changes import Custom
from tidelock.errors import SchemaMismatch

KEYS = pa.schema([("k", pa.string()), ("n", pa.int64())])
VALUES = pa.schema([("total", pa.int64()), ("seen", pa.timestamp("us", "UTC"))])
OUTPUT = pa.schema([("k", pa.string()), ("total", pa.int64())])
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)

ROWS = pa.table({"k": ["a", "b", "a", "c"], "n": [1, 1, 1, 1], "v#1": [5, 6, 7, 8]})
GROUPS = Groups(np.array([0, 1, 0, 2]), 3)
STATE = pa.table(
    {"k": ["a", "b", "c"], "n": [1, 1, 1], "total": [100, None, 300], "seen": [NOON, None, None]}
).cast(pa.schema([*KEYS, *VALUES]))


def change(
    function: Callable[[Any, Any], Any], *, pandas: bool = False
) -> tuple[list[Any], list[Any], list[bool]]:
    made = Custom(function, KEYS, VALUES, OUTPUT, pandas=pandas)
    output, changed, kept = made(ROWS, GROUPS, STATE)
    assert output.schema == OUTPUT
    assert changed.schema == VALUES
    assert changed.num_rows == GROUPS.size
    return output.to_pylist(), changed.to_pylist(), kept.tolist()


def arrow_sums(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    sums = rows.group_by("k").aggregate([("v#1", "sum")])
    joined = state.join(sums, "k").sort_by("k")
    total = pc.add(pc.fill_null(joined.column("total"), 0), joined.column("v#1_sum"))
    new = joined.set_column(joined.column_names.index("total"), "total", total)
    return new.select(["k", "total"]), new.select(["seen", "total", "n", "k"])


def pandas_sums(rows: pd.DataFrame, state: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    new = state.set_index("k")
    new["total"] = new["total"].fillna(0) + rows.groupby("k")["v#1"].sum()
    new = new.reset_index()
    return new[["total", "k"]], new


@pytest.mark.parametrize("pandas", [False, True], ids=["arrow", "pandas"])
def test_a_function_adds_up(pandas: bool) -> None:
    output, changed, kept = change(pandas_sums if pandas else arrow_sums, pandas=pandas)
    assert output == [{"k": "a", "total": 112}, {"k": "b", "total": 6}, {"k": "c", "total": 308}]
    assert [row["total"] for row in changed] == [112, 6, 308]
    assert [row["seen"] for row in changed] == [NOON, None, None]
    assert kept == [True, True, True]


@pytest.mark.parametrize("pandas", [False, True], ids=["arrow", "pandas"])
def test_a_function_is_given_its_rows_and_the_state_of_their_keys(pandas: bool) -> None:
    given = []

    def look(rows: Any, state: Any) -> Any:
        given.extend([list(rows.columns if pandas else rows.column_names), len(state)])
        return state, state

    change(look, pandas=pandas)
    assert given == [["k", "n", "v#1"], 3]


def test_a_key_that_is_left_out_loses_its_state() -> None:
    _, changed, kept = change(lambda rows, state: (state.slice(0, 0), state.take(pa.array([2, 0]))))
    assert kept == [True, False, True]
    assert [row["total"] for row, is_kept in zip(changed, kept, strict=True) if is_kept] == [100, 300]
    _, _, kept = change(lambda rows, state: (state, state.slice(0, 0)))
    assert kept == [False, False, False]


def test_empty_frames_are_fine() -> None:
    output, _, kept = change(lambda rows, state: (pd.DataFrame(columns=["k", "total"]), state[:0]), pandas=True)
    assert (output, kept) == ([], [False] * 3)


WRONG: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "nothing": (lambda rows, state: None, "has to return two tables: the output and the new state"),
    "one table": (lambda rows, state: state, "has to return two tables"),
    "three": (lambda rows, state: (state, state, state), "has to return two tables"),
    "no table": (lambda rows, state: (state, 5), "the new state is of the type int: return an Arrow table or"),
    "no output": (lambda rows, state: (None, state), "the output is of the type NoneType: return an Arrow table"),
    "columns": (
        lambda rows, state: (state, state.drop(columns=["n", "seen"])),
        "the new state lacks n, seen; the",
    ),
    "twice": (lambda rows, state: (pd.concat([state, state[["k"]]], axis=1), state), "does not have the declared"),
    "texts": (
        lambda rows, state: (state.assign(total="many"), state),
        "the output does not have the declared typ",
    ),
    "mixed": (
        lambda rows, state: (state, state.assign(total=[1, "x", b"y"])),
        "the new state does not have the d",
    ),
    "halves": (lambda rows, state: (state, state.assign(total=0.5)), "the new state does not have the declared"),
    "keys": (lambda rows, state: (state, state.assign(k="z")), "returned state of keys that it was not given"),
    "a key twice": (lambda rows, state: (state, pd.concat([state, state[:1]])), "returned state of a key twice"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_returned_wrongly_is_told(wrong: str) -> None:
    function, told = WRONG[wrong]
    with pytest.raises(SchemaMismatch, match=told):
        change(function, pandas=True)


def test_arrow_tables_are_checked_as_well() -> None:
    twice = STATE.append_column("k", STATE.column("k"))
    with pytest.raises(SchemaMismatch, match="the output does not have the declared types"):
        change(lambda rows, state: (twice, state))
    with pytest.raises(SchemaMismatch, match="the new state does not have the declared types"):
        change(lambda rows, state: (state, state.set_column(2, "total", pa.array([[1], [2], [3]]))))


def test_what_a_function_raises_itself_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        change(lambda rows, state: 1 // 0)


def test_a_state_has_columns() -> None:
    with pytest.raises(SchemaMismatch, match="the state has no columns: declare at least one"):
        Custom(arrow_sums, KEYS, pa.schema([]), OUTPUT, pandas=False)
