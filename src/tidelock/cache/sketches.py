"""HyperLogLog sketches of many keys at once: about how many different values each of them has seen.

A sketch has 1024 registers (Flajolet and others, 2007); each keeps the largest number of leading zeros, plus one,
among the hashes that fall to it. Merging two sketches takes the larger registers, so a value that comes again
changes nothing, in whatever order. Small numbers are told from the empty registers. Few values are kept as a list
of (register, rank) pairs, three bytes each, until that is as long as the registers themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.cache.bytes import Octets, content, cut

_BITS = 10
REGISTERS = 1 << _BITS
_PAIR = 3
_ALPHA = 0.7213 / (1 + 1.079 / REGISTERS)
_SPARSE = REGISTERS // _PAIR - 1
"""How many pairs a sketch may have and still be shorter than its registers."""

Ranks = npt.NDArray[np.int64]


def lifted(hashes: pa.Array) -> pa.BinaryArray:
    """For each hash the sketch of that value alone; nothing for a null."""
    there = hashes.is_valid().to_numpy(zero_copy_only=False)
    numbers = hashes.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    register = numbers >> np.uint64(64 - _BITS)
    rest = (numbers << np.uint64(_BITS)) | np.uint64(1 << (_BITS - 1))  # a one behind the bits that are left
    rank = _leading_zeros(rest) + 1
    pairs = np.empty((len(numbers), _PAIR), np.uint8)
    pairs[:, 0], pairs[:, 1], pairs[:, 2] = register & np.uint64(255), register >> np.uint64(8), rank
    starts = np.arange(len(numbers), dtype=np.int64) * _PAIR
    return cut(pairs.reshape(-1), starts, np.where(there, _PAIR, 0).astype(np.int64))


def merged(codes: Any, size: int, sketches: pa.BinaryArray) -> pa.BinaryArray:
    """One sketch for each group of sketches."""
    group, register, rank = _entries(np.asarray(codes, np.int64), sketches)
    order = np.lexsort((rank, register, group))
    group, register, rank = group[order], register[order], rank[order]
    place = group * REGISTERS + register
    best = np.flatnonzero(np.append(np.diff(place) != 0, True)) if len(place) else np.empty(0, np.int64)
    return _packed(size, group[best], register[best], rank[best])


def estimates(sketches: pa.BinaryArray) -> pa.Array:
    """The estimated numbers, as long; 0 for an empty sketch."""
    group, _, rank = _entries(np.arange(len(sketches)), sketches)
    used = np.bincount(group, minlength=len(sketches))
    empty = REGISTERS - used
    harmonic = empty + np.bincount(group, weights=np.exp2(-rank.astype(np.float64)), minlength=len(sketches))
    raw = _ALPHA * REGISTERS * REGISTERS / harmonic
    with np.errstate(divide="ignore"):
        few = REGISTERS * np.log(REGISTERS / np.maximum(empty, 1))
    small = (raw <= 2.5 * REGISTERS) & (empty > 0)
    return pa.array(np.rint(np.where(small, few, raw)).astype(np.int64))


def _entries(codes: Ranks, sketches: pa.BinaryArray) -> tuple[Ranks, Ranks, Ranks]:
    """All registers that are used: whose they are, which, and their ranks."""
    data, starts, lengths = content(sketches)
    dense = lengths == REGISTERS
    sparse = _pairs(codes, data, starts, np.where(dense, 0, lengths))
    full = data[starts[dense][:, None] + np.arange(REGISTERS)].astype(np.int64)
    which, register = np.nonzero(full)
    found = (codes[dense][which], register.astype(np.int64), full[which, register])
    return (
        np.concatenate([sparse[0], found[0]]),
        np.concatenate([sparse[1], found[1]]),
        np.concatenate([sparse[2], found[2]]),
    )


def _pairs(codes: Ranks, data: Octets, starts: Ranks, lengths: Ranks) -> tuple[Ranks, Ranks, Ranks]:
    flat = cut(data, starts, lengths)
    octets, _, _ = content(flat)
    pairs = octets[: int(lengths.sum())].reshape(-1, _PAIR).astype(np.int64)
    return np.repeat(codes, lengths // _PAIR), pairs[:, 0] | (pairs[:, 1] << 8), pairs[:, 2]


def _packed(size: int, group: Ranks, register: Ranks, rank: Ranks) -> pa.BinaryArray:
    counts = np.bincount(group, minlength=size)
    dense = counts > _SPARSE
    lengths = np.where(dense, REGISTERS, counts * _PAIR).astype(np.int64)
    ends = np.cumsum(lengths)
    out = np.zeros(int(ends[-1]) if size else 0, np.uint8)
    begins = ends - lengths
    within = np.arange(len(group)) - (np.cumsum(counts) - counts)[group]
    is_dense = dense[group]
    out[begins[group[is_dense]] + register[is_dense]] = rank[is_dense]
    at = begins[group[~is_dense]] + within[~is_dense] * _PAIR
    out[at], out[at + 1], out[at + 2] = register[~is_dense] & 255, register[~is_dense] >> 8, rank[~is_dense]
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), size, [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def _leading_zeros(numbers: npt.NDArray[np.uint64]) -> Ranks:
    """How many zeros each 64-bit number begins with."""
    zeros = np.zeros(len(numbers), np.int64)
    for width in (32, 16, 8, 4, 2, 1):
        empty = numbers < (np.uint64(1) << np.uint64(64 - width))
        zeros += np.where(empty, width, 0)
        numbers = np.where(empty, numbers << np.uint64(width), numbers)
    return zeros
