"""However rows are cut into epochs and partitions: aggregations tell what one pass over all rows tells."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelock.cache import aggregates
from tidelock.cache.aggregates import Aggregation, Groups
from tidelock.cache.changes import Aggregate
from tidelock.cache.rows import RowCodec

Row = dict[str, Any]
Rule = Callable[[list[Row]], Any]

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("i", pa.int32()),
        ("big", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("us", "UTC")),
        ("b", pa.bool_()),
    ]
)
ROW = st.fixed_dictionaries(
    {
        "k": st.integers(0, 3),
        "i": st.none() | st.integers(-3, 3),
        "big": st.none() | st.integers(-(2**60), 2**60),
        "f": st.none() | st.sampled_from([0.5, -2.0, 4.0, math.nan]),
        "d": st.none() | st.floats(-10, 10) | st.just(math.nan),
        "s": st.none() | st.text(max_size=2),
        "t": st.none() | st.integers(0, 4).map(lambda second: datetime.fromtimestamp(second, UTC)),
        "b": st.none() | st.booleans(),
    }
)
EPOCHS = st.lists(st.lists(ROW, max_size=6), max_size=5)

# -- the same in plain Python


def there(rows: list[Row], column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def rank(value: Any) -> tuple[bool, Any]:
    """Values in order: a NaN comes before all numbers."""
    return (False, 0) if is_nan(value) else (True, value)


def total(rows: list[Row], column: str) -> Any:
    values = there(rows, column)
    return (math.fsum(values) if isinstance(values[0], float) else sum(values)) if values else None


def mean(rows: list[Row], column: str) -> float | None:
    values = there(rows, column)
    return math.fsum(values) / len(values) if values else None


def rounding(rows: list[Row], name: str) -> float:
    """What adding up doubles may lose: sums are as exact as the largest of them on the way."""
    values = (
        [abs(v) for v in there(rows, name.split()[-1]) if not is_nan(v)]
        if name.startswith(("sum", "mean"))
        else []
    )
    return math.fsum(values) * len(values) * 2**-52


def smallest(rows: list[Row], column: str) -> Any:
    values = there(rows, column)
    return min([v for v in values if not is_nan(v)], default=math.nan) if values else None


def largest(rows: list[Row], column: str) -> Any:
    return max(there(rows, column), key=rank, default=None)


def last(rows: list[Row], column: str, by: str) -> Any:
    found = [row for row in rows if row[by] is not None and row[column] is not None]
    return max(((rank(row[by]), rank(row[column]), row[column]) for row in found), default=(None,))[-1]


def best(rows: list[Row], column: str, k: int) -> list[Any]:
    return sorted(there(rows, column), key=rank, reverse=True)[:k]


def rules() -> dict[str, tuple[Aggregation, Rule]]:
    found: dict[str, tuple[Aggregation, Rule]] = {
        "rows": (aggregates.count(), len),
        "count s": (aggregates.count("s"), lambda rows: len(there(rows, "s"))),
        "last s": (aggregates.last("s", by="t"), lambda rows: last(rows, "s", "t")),
        "last b": (aggregates.last("b", by="i"), lambda rows: last(rows, "b", "i")),
        "last d": (aggregates.last("d", by="d"), lambda rows: last(rows, "d", "d")),
        "last t": (aggregates.last("t", by="f"), lambda rows: last(rows, "t", "f")),
        "best i": (aggregates.top_k("i", 3), lambda rows: best(rows, "i", 3)),
        "best d": (aggregates.top_k("d", 2), lambda rows: best(rows, "d", 2)),
        "best of all": (aggregates.top_k("big", 1000), lambda rows: best(rows, "big", 1000)),
    }
    for column in ("i", "f", "d"):
        found[f"sum {column}"] = aggregates.sum(column), lambda rows, c=column: total(rows, c)
    for column in ("i", "big", "f", "d"):
        found[f"mean {column}"] = aggregates.mean(column), lambda rows, c=column: mean(rows, c)
    for column in ("i", "big", "f", "d", "s", "t", "b"):
        found[f"min {column}"] = aggregates.min(column), lambda rows, c=column: smallest(rows, c)
        found[f"max {column}"] = aggregates.max(column), lambda rows, c=column: largest(rows, c)
    return found


RULES = rules()


class Running:
    """State of all aggregations per key, kept as bytes from epoch to epoch."""

    def __init__(self) -> None:
        self.change = Aggregate(("k",), {name: one for name, (one, _) in RULES.items()})
        self.codec = RowCodec(self.change.state(SCHEMA), "the state")
        self.stored: dict[int, bytes] = {}
        self.told: dict[int, Row] = {}

    def add(self, rows: list[Row]) -> None:
        keys = sorted({row["k"] for row in rows})
        if not keys:
            return
        groups = Groups(np.array([keys.index(row["k"]) for row in rows]), len(keys))
        stored = self.codec.decode(pa.array([self.stored.get(key) for key in keys], pa.binary()))
        state = stored.add_column(0, "k", pa.array(keys))
        output, changed, kept = self.change(pa.Table.from_pylist(rows, SCHEMA), groups, state)
        assert kept.all()
        assert output.schema.equals(self.change.output(SCHEMA))
        self.stored |= dict(zip(keys, self.codec.encode(changed).to_pylist(), strict=True))
        self.told |= {row.pop("k"): row for row in output.to_pylist()}


@settings(max_examples=40, deadline=None)
@given(EPOCHS, st.data())
def test_epochs_add_up_to_the_whole(epochs: list[list[Row]], data: st.DataObject) -> None:
    running = Running()
    for epoch in epochs:
        partition = {key: data.draw(st.integers(0, 1)) for key in range(4)}
        for number in (0, 1):
            running.add([row for row in epoch if partition[row["k"]] == number])
    everything = [row for epoch in epochs for row in epoch]
    keys = {row["k"] for row in everything}
    expected = {
        key: {name: rule([row for row in everything if row["k"] == key]) for name, (_, rule) in RULES.items()}
        for key in keys
    }
    assert running.told.keys() == expected.keys()
    for key, told in running.told.items():
        for name, value in told.items():
            wanted = expected[key][name]
            exact = not isinstance(wanted, float | list)
            bound = rounding([row for row in everything if row["k"] == key], name)
            assert value == (wanted if exact else pytest.approx(wanted, abs=bound, nan_ok=True)), name


@settings(max_examples=20, deadline=None)
@given(st.lists(ROW, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows: list[Row], random: Any) -> None:
    one, other = Running(), Running()
    one.add(rows)
    mixed = random.sample(rows, len(rows))
    other.add(mixed)
    for key, told in one.told.items():
        for name, value in told.items():
            if name.startswith(("sum", "mean")):
                bound = rounding([row for row in rows if row["k"] == key], name)
                assert other.told[key][name] == pytest.approx(value, abs=bound, nan_ok=True)
            else:
                assert repr(other.told[key][name]) == repr(value)


@settings(max_examples=20, deadline=None)
@given(EPOCHS)
def test_epochs_that_are_run_again_give_the_same_to_the_last_bit(epochs: list[list[Row]]) -> None:
    one, again = Running(), Running()
    for epoch in epochs:
        one.add(epoch)
        again.add(epoch)
    assert again.stored == one.stored
