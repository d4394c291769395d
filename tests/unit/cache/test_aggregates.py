"""What aggregations take, and what they tell of nothing; the sums are in `tests/property`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelock.cache import aggregates
from tidelock.cache.aggregates import Aggregation, Groups, hash_name
from tidelock.errors import PipelineError, SchemaMismatch


def told(aggregation: Aggregation, **columns: pa.Array) -> Any:
    """What is told of rows that all have the same key."""
    rows = pa.table(columns)
    groups = Groups(np.zeros(rows.num_rows, np.int64), 1)
    return aggregation.result(aggregation.merge(groups, aggregation.lift(rows)))[0].as_py()


NULLS = pa.array([None, None], pa.int64())


@pytest.mark.parametrize(
    ("aggregation", "nothing"),
    [
        (aggregates.count(), 2),
        (aggregates.count("v"), 0),
        (aggregates.sum("v"), None),
        (aggregates.min("v"), None),
        (aggregates.max("v"), None),
        (aggregates.mean("v"), None),
        (aggregates.last("v", by="v"), None),
        (aggregates.top_k("v", 2), []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nulls_do_not_count(aggregation: Aggregation, nothing: Any) -> None:
    assert told(aggregation, v=NULLS) == nothing


def test_a_row_without_a_moment_is_not_the_last() -> None:
    assert told(aggregates.last("v", by="t"), v=pa.array([1, 2]), t=NULLS) is None
    assert told(aggregates.last("v", by="t"), v=pa.array([1, 2]), t=pa.array([5, None])) == 1


def test_of_several_last_rows_the_largest_value_is_told() -> None:
    moments = pa.array([5, 5, 4])
    assert told(aggregates.last("v", by="t"), v=pa.array(["a", "b", "c"]), t=moments) == "b"
    assert told(aggregates.last("v", by="t"), v=pa.array(["a", None, "c"]), t=moments) == "a"


def test_whole_numbers_stay_whole_and_exact() -> None:
    assert told(aggregates.sum("v"), v=pa.array([2**62, 2**62 - 1])) == 2**63 - 1
    assert told(aggregates.sum("v"), v=pa.array([100, 100], pa.int8())) == 200
    assert told(aggregates.mean("v"), v=pa.array([2**53 + 1, 2**53 + 3])) == pytest.approx(2**53 + 2)


@pytest.mark.parametrize(
    "make",
    [aggregates.sum, aggregates.mean, lambda column: aggregates.top_k(column, 1)],
    ids=["sum", "mean", "top_k"],
)
@pytest.mark.parametrize("kind", [pa.string(), pa.bool_(), pa.timestamp("us"), pa.decimal128(5, 2)], ids=str)
def test_what_is_no_number_cannot_be_added(make: Any, kind: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"v has the type .*: this aggregation takes whole and floating numb"):
        make("v").state(pa.schema([("v", kind)]))


@pytest.mark.parametrize(
    "make",
    [aggregates.min, aggregates.max, lambda column: aggregates.last("w", by=column)],
    ids=["min", "max", "by"],
)
@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.list_(pa.string()), pa.struct([("a", pa.int8())]), pa.null()], ids=str
)
def test_what_has_no_order_cannot_be_compared(make: Any, kind: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"v has the type .*, which has no order: cast it"):
        make("v").state(pa.schema([("v", kind), ("w", pa.int64())]))


def test_the_last_of_lists_cannot_be_told() -> None:
    schema = pa.schema([("v", pa.list_(pa.int64())), ("t", pa.int64())])
    with pytest.raises(SchemaMismatch, match=r"v has the type .*, which has no order: cast it"):
        aggregates.last("v", by="t").state(schema)


@pytest.mark.parametrize("k", [0, -1])
def test_top_k_wants_at_least_one(k: int) -> None:
    with pytest.raises(PipelineError, match=rf"top_k wants the {k} largest values: ask for 1 or more"):
        aggregates.top_k("v", k)


def test_different_values_are_told_from_their_hashes() -> None:
    aggregation = aggregates.approx_distinct("v")
    assert (aggregation.inputs, aggregation.hashed) == ((), ("v",))
    hashes = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 50, np.int64)
    columns = {hash_name("v"): pa.array([None, *hashes, *hashes])}
    assert told(aggregation, **columns) == pytest.approx(50, abs=4)
    assert told(aggregation, **{hash_name("v"): NULLS}) == 0
