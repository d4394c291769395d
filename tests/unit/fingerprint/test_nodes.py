"""What a change of a node means."""

import json
from dataclasses import replace

import pytest

from tidelock.fingerprint.nodes import Layout, Meaning, NodePrint, PlanPrint, judge
from tidelock.fingerprint.parts import SOURCE, FingerprintPart

CODE = (FingerprintPart("sums", SOURCE, "1", "return rows.sum()"), FingerprintPart("LIMIT", "value", "2", "3"))
OTHER_CODE = (FingerprintPart("sums", SOURCE, "7", "return rows.max()"), CODE[1])
PLAN = PlanPrint("4.3", "p", ("Aggregate [k], [sum(n) AS n]",), whole=True)
OTHER_PLAN = replace(PLAN, digest="q", shown=("Aggregate [k], [max(n) AS n]",))
STATE = Layout("Aggregate", (("k", "string"), ("sum of sum(n)", "bigint")))
SUMS = NodePrint(CODE, keeps_state=True, plan=PLAN, layouts=(STATE,))


def meaning(old: NodePrint, new: NodePrint) -> Meaning | None:
    change = judge("sums", old, new)
    return None if change is None else change.meaning


def test_the_same_is_no_change() -> None:
    assert judge("sums", SUMS, SUMS) is None
    assert judge("sums", SUMS, NodePrint.decode(json.loads(json.dumps(SUMS.encode())))) is None


def test_a_plan_that_says_everything_decides() -> None:
    assert meaning(SUMS, replace(SUMS, code=OTHER_CODE)) is Meaning.NOTHING
    assert meaning(SUMS, replace(SUMS, plan=OTHER_PLAN)) is Meaning.STATE
    stateless = replace(SUMS, keeps_state=False, layouts=())
    assert meaning(stateless, replace(stateless, plan=OTHER_PLAN)) is Meaning.RESULTS


def test_how_cached_state_changes_always_counts() -> None:
    summed, largest = (
        replace(SUMS, settings=(FingerprintPart("tidelock.keyed", "value", what, "_Simple"),))
        for what in ("sum", "max")
    )
    assert meaning(summed, largest) is Meaning.STATE
    assert NodePrint.decode(json.loads(json.dumps(summed.encode()))) == summed


def test_where_the_plan_has_holes_the_code_decides() -> None:
    opaque = replace(SUMS, plan=replace(PLAN, whole=False))
    assert meaning(opaque, replace(opaque, code=OTHER_CODE)) is Meaning.STATE
    assert meaning(opaque, SUMS) is None


def test_plans_of_two_sparks_are_not_compared() -> None:
    newer = replace(SUMS, plan=replace(OTHER_PLAN, spark="4.4"))
    assert meaning(SUMS, newer) is None
    assert meaning(SUMS, replace(newer, code=OTHER_CODE)) is Meaning.STATE


def test_code_that_cannot_be_compared_is_told_and_not_refused() -> None:
    before = replace(SUMS, code=(FingerprintPart("sums", "bytecode of Python 3.11", "1", ""),), plan=None)
    after = replace(before, code=(FingerprintPart("sums", SOURCE, "5", "return 1"),))
    change = judge("sums", before, after)
    assert change is not None
    assert (change.meaning, change.told) == (
        Meaning.UNKNOWN,
        "function sums cannot be compared, because its source is not known and Python is another one",
    )
    assert meaning(replace(before, plan=PLAN), replace(after, plan=PLAN)) is Meaning.NOTHING
    assert meaning(replace(before, plan=PLAN), replace(after, plan=OTHER_PLAN)) is Meaning.STATE


def test_what_is_told() -> None:
    change = judge("sums", SUMS, replace(SUMS, code=OTHER_CODE, plan=OTHER_PLAN))
    assert change is not None
    assert change.told == (
        "in Spark's plan `Aggregate [k], [sum(n) AS n]` is now `Aggregate [k], [max(n) AS n]`; "
        "function sums: `return rows.sum()` is now `return rows.max()`"
    )
    limit = replace(
        SUMS,
        code=(CODE[0], FingerprintPart("LIMIT", "value", "9", "5"), FingerprintPart("new", "name", "1", "x")),
        plan=None,
    )
    change = judge("sums", replace(SUMS, plan=None), limit)
    assert change is not None and change.told == "LIMIT was 3, is 5; new is used now"


COLUMNS = (("k", "string"), ("sum of sum(n)", "bigint"), ("count of count(1)", "bigint"))


@pytest.mark.parametrize(
    ("layouts", "told", "acceptable"),
    [
        ((replace(STATE, columns=COLUMNS),), "the state of Aggregate is now with count of count(1) bigint", False),
        ((), "it had these parts with state: Aggregate; now: none", False),
        ((replace(STATE, columns=COLUMNS, certain=False),), "with count of count(1) bigint", True),
        ((replace(STATE, operator="Join"),), "(k string, sum of sum(n) bigint) is now one of Join", False),
    ],
)
def test_another_layout(layouts: tuple[Layout, ...], told: str, acceptable: bool) -> None:
    change = judge("sums", SUMS, replace(SUMS, layouts=layouts))
    assert change is not None
    assert (change.meaning, change.acceptable) == (Meaning.LAYOUT, acceptable)
    assert told in change.told


def test_names_of_columns_count_only_where_they_are_kept() -> None:
    renamed = replace(STATE, columns=(("k", "string"), ("max of max(n)", "bigint")))
    assert meaning(SUMS, replace(SUMS, layouts=(renamed,))) is None
    by_name = replace(SUMS, layouts=(replace(STATE, by_name=True),))
    assert meaning(by_name, replace(SUMS, layouts=(replace(renamed, by_name=True),))) is Meaning.LAYOUT
