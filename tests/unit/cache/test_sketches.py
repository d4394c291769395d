"""Sketches count about right from none to many values, and neither order nor repetition matters to them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tidelock.cache.sketches import REGISTERS, estimates, lifted, merged

STANDARD_ERROR = 1.04 / REGISTERS**0.5


def hashes(count: int, seed: int = 7) -> pa.Array:
    """64-bit numbers as a good hash function would give them: so few are all different."""
    return pa.array(np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, count, np.int64))


def sketched(values: pa.Array, pieces: int = 1) -> pa.BinaryArray:
    """One sketch of all values, merged piece by piece."""
    sketch = pa.array([b""], pa.binary())
    for piece in np.array_split(np.arange(len(values)), pieces):
        both = pa.concat_arrays([sketch, lifted(values.take(pa.array(piece)))])
        sketch = merged(np.zeros(len(both), np.int64), 1, both)
    return sketch


@pytest.mark.parametrize("count", [0, 1, 2, 10, 100, 340, 341, 1000, 2500, 3000, 10_000, 100_000])
def test_the_estimate_is_within_its_error(count: int) -> None:
    errors = []
    for seed in range(5):
        (estimate,) = estimates(sketched(hashes(count, seed))).to_pylist()
        errors.append(estimate - count)
        assert abs(estimate - count) <= 4 * STANDARD_ERROR * count
    assert abs(np.mean(errors)) <= 2.5 * STANDARD_ERROR * count


@pytest.mark.parametrize("count", [5, 400, 5000])
def test_neither_order_nor_repetition_nor_pieces_matter(count: int) -> None:
    values = hashes(count)
    mixed = np.random.default_rng(1).permutation(np.concatenate([np.arange(count), np.arange(0, count, 3)]))
    once = sketched(values)
    assert sketched(values.take(pa.array(mixed))) == once
    assert sketched(values.take(pa.array(mixed)), pieces=7) == once


def test_groups_do_not_mix() -> None:
    values, codes = hashes(6000), np.arange(6000) % 4
    codes[codes == 3] = 0  # groups of different sizes, sparse and dense
    codes[:100] = 3
    apart = merged(codes, 4, lifted(values))
    for group in range(4):
        alone = sketched(values.filter(pa.array(codes == group)))
        assert apart[group].as_py() == alone[0].as_py()


def test_nulls_do_not_count() -> None:
    sketch = merged(np.array([0, 0, 1]), 2, lifted(pa.array([None, 5, None], pa.int64())))
    assert estimates(sketch).to_pylist() == [1, 0]


def test_the_registers_are_those_of_a_loop() -> None:
    values = [0, -1, 1, 2**53, *hashes(2000).to_pylist()]
    registers = [0] * REGISTERS
    for value in values:
        bits = f"{value % 2**64:064b}"
        rest = bits[10:] + "1"
        register = int(bits[:10], 2)
        registers[register] = max(registers[register], rest.index("1") + 1)
    (sketch,) = sketched(pa.array(values)).to_pylist()
    assert list(sketch) == registers


def test_few_values_take_few_bytes() -> None:
    sizes = [len(sketched(hashes(count))[0].as_py()) for count in (0, 1, 50, 100_000)]
    assert sizes[:2] == [0, 3]
    assert sizes[2] <= 150
    assert sizes[3] == REGISTERS
