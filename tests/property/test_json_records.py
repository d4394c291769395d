"""Every JSON value against every type of column: it becomes exactly what it says, or the record does not fit."""

from __future__ import annotations

import json
import math
import re
import struct
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidelock.log.json_records import NoRecord, arrow_columns, decode, describe_columns

TYPES = ["string", "boolean", "byte", "short", "integer", "long", "float", "double"]
BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
UNFIT = object()

borders = st.builds(lambda power, step: 2**power + step, st.integers(0, 70), st.integers(-2, 2))
numbers = st.one_of(
    st.from_regex(r"-?(0|[1-9][0-9]{0,22})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.builds("{}{}".format, borders, st.sampled_from(["", ".0", ".5", "e0", "e-1"])),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["1e400", "-1e400", "1e-400", "1e39", "1e-60", "1e999999999999", "0e999999999999", "-0.0"]),
)
texts = st.one_of(st.text(), st.sampled_from(["\ud800", "a\udfff", "\ud83d\ude00", "\x00"])).map(json.dumps)
scalars = st.one_of(
    st.sampled_from(["null", "true", "false", "NaN", "Infinity", "-Infinity", "{}"]), numbers, texts
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(lambda some: f"[{','.join(some)}]"))


def meant(text: str, kind: Any) -> Any:
    """What a column of this type has to show for a JSON text; written without a look at the code under test."""
    found = json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=lambda _: UNFIT)
    return _as(found, kind)


class _Number(str):
    """A number as it is written."""


def _as(found: Any, kind: Any) -> Any:
    if found is None:
        return None
    if isinstance(kind, dict):
        some = [_as(one, kind["elementType"]) for one in found] if isinstance(found, list) else UNFIT
        return UNFIT if some is UNFIT or any(one is UNFIT for one in some) else some
    if isinstance(found, _Number):
        return _number(found, kind)
    if kind == "string" and isinstance(found, str):
        return UNFIT if any("\ud800" <= letter <= "\udfff" for letter in found) else found
    return found if kind == "boolean" and isinstance(found, bool) else UNFIT


def _number(text: str, kind: str) -> Any:
    if kind not in BITS and kind not in ("float", "double"):
        return UNFIT
    written = re.fullmatch(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?", text)
    assert written is not None
    sign, whole, fraction, power = written.groups(default="")
    digits, exponent = int(whole + fraction), int(power or 0) - len(fraction)
    if digits and abs(len(str(digits)) + exponent) > 400:
        return UNFIT  # beyond every type, and too long to compute with
    exact = Fraction(digits) * Fraction(10) ** exponent if digits else Fraction(0)
    exact = -exact if sign else exact
    if kind in BITS:
        fits = exact.denominator == 1 and -(1 << BITS[kind] - 1) <= exact < 1 << BITS[kind] - 1
        return int(exact) if fits else UNFIT
    return _nearest(text, exact, kind)


def _nearest(text: str, exact: Fraction, kind: str) -> Any:
    try:
        near = float(text) if kind == "double" else struct.unpack("<f", struct.pack("<f", float(text)))[0]
    except OverflowError:
        return UNFIT
    lost = math.isinf(near) or (exact and not near) or (text.lstrip("-").isdigit() and Fraction(near) != exact)
    return UNFIT if lost else near


@settings(deadline=None, derandomize=True)
@given(text=values, kind=st.sampled_from(TYPES), depth=st.integers(0, 2))
@example(text="1.5", kind="long", depth=0)
@example(text="[1e300]", kind="float", depth=1)
@example(text="true", kind="long", depth=0)
@example(text="1.00000000000000000000001", kind="long", depth=0)
@example(text="9007199254740993", kind="double", depth=0)
def test_a_value_is_exact_or_does_not_fit(text: str, kind: str, depth: int) -> None:
    written = f"{'array<' * depth}{kind}{'>' * depth}"
    described = describe_columns(f"other long, n {written}")
    wanted = meant(text, described["fields"][1]["type"])
    records = [b'{"other": 1}', f'{{"n": {text}, "more": [{{"n": 7}}]}}'.encode()]
    if wanted is UNFIT:
        with pytest.raises(NoRecord) as wrong:
            decode(records, arrow_columns(described))
        assert wrong.value.args[0] == 1, "it says which record it is"
        return
    (_, row) = decode(records, arrow_columns(described)).to_pylist()
    assert row == {"other": None, "n": wanted}
    assert repr(row["n"]) == repr(wanted) or wanted == 0, "the type is the same too"


@settings(deadline=None, derandomize=True)
@given(record=st.one_of(st.binary(), st.text().map(str.encode), values.map(str.encode)))
def test_whatever_a_record_holds_there_is_a_row_or_a_reason(record: bytes) -> None:
    schema = arrow_columns(describe_columns("n long, text string"))
    try:
        assert decode([record], schema).num_rows == 1
    except NoRecord as wrong:
        assert wrong.args[0] == 0
        assert len(wrong.args[1]) < 200


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b'{"n":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"more":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, "nested too deeply"),
        (b'{"n": ' + b"9" * 5000 + b"}", "no JSON that can be read"),
        (b'{"n": 1e99999999999999999999999}', "no JSON that can be read"),
        (b'{"n": 1e999999}', "n is no int64: a very large number"),
        (b'{"n": 1, "n": 2}', "n stands in it twice"),
        (b'{"text": "\xed\xa0\x80"}', "half of a surrogate pair"),
        (b'{"text": "\xff"}', "no JSON that can be read"),
        (b'{"n": 1} {"n": 2}', "no JSON that can be read"),
        (b'{"text": 1}', "text is no string: 1"),
    ],
    ids=[
        "deep list",
        "deep object",
        "long number",
        "huge power",
        "large number",
        "twice",
        "surrogate",
        "bytes",
        "two",
        "number",
    ],
)
def test_records_that_break_readers(record: bytes, why: str) -> None:
    with pytest.raises(NoRecord) as wrong:
        decode([record], arrow_columns(describe_columns("n long, text string")))
    assert why in wrong.value.args[1]
