"""Commands that Arrow writes at once are the ones that a loop would write."""

from __future__ import annotations

import doctest

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelock.cache import wire
from tidelock.cache.wire import Group, command, commands

ARGUMENT = st.one_of(st.binary(max_size=12), st.sampled_from([b"", b"\r\n", b"*2\r\n$1\r\n", b"\0" * 100]))


def naive(*arguments: bytes) -> bytes:
    lines = [b"*" + str(len(arguments)).encode()]
    for argument in arguments:
        lines += [b"$" + str(len(argument)).encode(), argument]
    return b"".join(line + b"\r\n" for line in lines)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3), st.lists(st.integers(1, 4), max_size=4), st.data())
def test_commands_are_written_as_a_loop_would(columns: int, sizes: list[int], data: st.DataObject) -> None:
    count = sum(sizes)
    exactly = st.lists(ARGUMENT, min_size=count, max_size=count)
    values = [data.draw(exactly) for _ in range(columns)]
    before = data.draw(st.integers(0, 2))
    arrays = [pa.array([b"?"] * before + column, pa.binary()).slice(before) for column in values]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    groups = [Group(f"key:{i}ß", end - size, end) for i, (size, end) in enumerate(zip(sizes, ends, strict=True))]
    rows = list(zip(*values, strict=True))
    expected = [
        naive(b"HSET", group.key.encode(), *(a for row in rows[group.first : group.end] for a in row))
        for group in groups
    ]
    assert list(commands("HSET", groups, *arrays)) == expected


@given(st.lists(ARGUMENT, min_size=1, max_size=5))
def test_a_command_is_written_as_a_loop_would(arguments: list[bytes]) -> None:
    assert command(*arguments) == naive(*arguments)


def test_texts_and_numbers_are_arguments_too() -> None:
    assert command("WAIT", 1, "ß") == naive(b"WAIT", b"1", "ß".encode())


def test_doctests() -> None:
    result = doctest.testmod(wire)
    assert (result.failed, result.attempted > 0) == (0, True)
