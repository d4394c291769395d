"""The fingerprint of a node of a pipeline, and what a change of it means. Pure.

Theory of operation
-------------------
An operator builds a plan for Spark. Where that plan says everything, it decides: code that builds the same plan
computes the same, however it is written, and another plan is another operator, also if its code looks the same (a
captured value, a helper, a library has changed). Where a plan has holes, because it calls Python functions or
reads tables, the code decides too, and the functions that the plan calls, of which the code may know only the
names. A plan is compared only with one of the same Spark, because others write it differently.

State adds its layout: the columns that are kept. Spark takes up state whose columns have the same types, whatever
was kept in them, and refuses other types when the query starts; a cache looks at the names, too. So another layout
can never be accepted, and the same layout says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from tidelock.fingerprint.calls import Call, compare_calls
from tidelock.fingerprint.comparing import Difference, compare, first_change
from tidelock.fingerprint.parts import RULES, FingerprintPart, seen_by


@dataclass(frozen=True)
class Layout:
    """The columns that one of Spark's stateful operators, or a cache, keeps."""

    operator: str
    columns: tuple[tuple[str, str], ...]
    """Their names and types."""
    certain: bool = True
    """Whether nothing that comes later can leave out some of them, as it can for joins."""
    by_name: bool = False
    """Whether names count, too."""

    @property
    def required(self) -> tuple[str, ...]:
        """What has to stay the same."""
        return (self.operator, *(f"{name} {kind}" if self.by_name else kind for name, kind in self.columns))


@dataclass(frozen=True)
class PlanPrint:
    """The plan of an operator on its inputs, without what differs from run to run."""

    spark: str
    digest: str
    shown: tuple[str, ...]
    whole: bool
    """It says everything."""
    functions: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)
    """The Python functions that it calls, with their names; they are kept as fingerprints only."""


@dataclass(frozen=True)
class NodePrint:
    """The fingerprint of a source, an operator or a sink."""

    code: tuple[FingerprintPart, ...]
    keeps_state: bool = False
    plan: PlanPrint | None = None
    layouts: tuple[Layout, ...] = ()
    settings: tuple[FingerprintPart, ...] = ()
    """How state that is in a cache changes, which no plan says."""
    calls: tuple[Call, ...] = ()
    """The Python functions that the plan calls."""
    rules: int = RULES
    """The rules that have made it."""

    def encode(self) -> dict[str, Any]:
        """The fields that `decode` reads."""
        plan = self.plan
        return {
            "code": [part.encode() for part in seen_by(1, self.code)],
            "keeps_state": self.keeps_state,
            "plan": None if plan is None else [plan.spark, plan.digest, list(plan.shown), plan.whole],
            "layouts": [asdict(one) for one in self.layouts],
            "settings": [part.encode() for part in seen_by(1, self.settings)],
            "rules": self.rules,
            "later": [[[one.since, *one.encode()] for one in _later(some)] for some in (self.code, self.settings)],
            "calls": [call.encode() for call in self.calls],
        }

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> NodePrint:
        """Read a fingerprint, also one of an earlier release."""
        plan = fields["plan"]
        code, settings = (
            tuple(FingerprintPart.decode(one, since) for since, *one in some)
            for some in fields.get("later", ([], []))
        )
        return cls(
            (*map(FingerprintPart.decode, fields["code"]), *code),
            fields["keeps_state"],
            None if plan is None else PlanPrint(plan[0], plan[1], tuple(plan[2]), plan[3]),
            tuple(Layout(**{**one, "columns": _pairs(one["columns"])}) for one in fields["layouts"]),
            (*map(FingerprintPart.decode, fields["settings"]), *settings),
            tuple(map(Call.decode, fields.get("calls", ()))),
            fields.get("rules", 1),
        )


def _later(parts: Iterable[FingerprintPart]) -> list[FingerprintPart]:
    """The parts that earlier releases neither make nor read."""
    return [part for part in parts if part.since > 1]


def _pairs(columns: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name, kind in columns)


class Meaning(Enum):
    """What a change means for what a home holds."""

    NOTHING = "computes the same as before"
    UNKNOWN = "may compute something else from now on"
    RESULTS = "computes something else from now on"
    STATE = "goes on with state that something else has made"
    LAYOUT = "keeps other columns of state"


@dataclass(frozen=True)
class NodeChange:
    """A node that is not what it was."""

    node: str
    meaning: Meaning
    told: str
    acceptable: bool = True
    """Whether Spark would run it."""


def judge(node: str, old: NodePrint, new: NodePrint) -> NodeChange | None:
    """What has changed in a node; None if nothing has."""
    layout = _layout_change(old, new)
    if layout is not None:
        told, certain = layout
        return NodeChange(node, Meaning.LAYOUT, told, not certain)
    phrases = [*_plan_change(old, new), *_code_change(old, new)]
    if not phrases:
        return None
    return NodeChange(node, _meaning(old, new), "; ".join(phrases))


def _meaning(old: NodePrint, new: NodePrint) -> Meaning:
    """What a change means that leaves the columns of state as they are."""
    plans = _plans(old, new)
    settings = _compared(old, new, old.settings, new.settings)
    if not settings and plans and _is_the_same(*plans) and all(plan.whole for plan in plans):
        return Meaning.NOTHING
    changed = settings.changed or _compared(old, new, old.code, new.code).changed
    if not changed and not compare_calls(old.calls, new.calls).changed and (plans is None or _is_the_same(*plans)):
        return Meaning.UNKNOWN
    return Meaning.STATE if old.keeps_state or new.keeps_state else Meaning.RESULTS


def _compared(
    old: NodePrint, new: NodePrint, before: Iterable[FingerprintPart], after: Iterable[FingerprintPart]
) -> Difference:
    """Compare parts of two fingerprints, as far as the rules of both see them."""
    rules = min(old.rules, new.rules)
    return compare(seen_by(rules, before), seen_by(rules, after))


def _plans(old: NodePrint, new: NodePrint) -> tuple[PlanPrint, PlanPrint] | None:
    """Both plans; None if they cannot be compared."""
    if old.plan is None or new.plan is None or old.plan.spark != new.plan.spark:
        return None
    return old.plan, new.plan


def _is_the_same(old: PlanPrint, new: PlanPrint) -> bool:
    return old.digest == new.digest


def _plan_change(old: NodePrint, new: NodePrint) -> list[str]:
    plans = _plans(old, new)
    if plans is None or _is_the_same(*plans):
        return []
    was, is_now = plans
    if was.shown == is_now.shown:
        return ["in Spark's plan a constant, a type or the time zone has changed"]
    return [f"in Spark's plan {first_change(was.shown, is_now.shown)}"]


def _code_change(old: NodePrint, new: NodePrint) -> list[str]:
    found = _compared(old, new, (*old.settings, *old.code), (*new.settings, *new.code))
    calls = compare_calls(old.calls, new.calls)
    unknown = [
        f"function {name} cannot be compared, because its source is not known and Python is another one"
        for name in dict.fromkeys((*found.unknown, *calls.unknown))
    ]
    # What the code says already need not be said of the plan again.
    more = [text for text in (*calls.changed, *calls.made) if text.partition(": ")[2] not in found.changed]
    return [*found.changed, *dict.fromkeys(more), *unknown]


def _layout_change(old: NodePrint, new: NodePrint) -> tuple[str, bool] | None:
    """How the state's columns differ, and whether Spark is sure to refuse them."""
    if [one.required for one in old.layouts] == [one.required for one in new.layouts]:
        return None
    if len(old.layouts) != len(new.layouts):
        was, now = (", ".join(one.operator for one in side.layouts) or "none" for side in (old, new))
        return f"it had these parts with state: {was}; now: {now}", True
    pairs = [(a, b) for a, b in zip(old.layouts, new.layouts, strict=True) if a.required != b.required]
    certain = all(a.certain and b.certain for a, b in pairs)
    return "; ".join(_columns_told(a, b) for a, b in pairs), certain


def _columns_told(old: Layout, new: Layout) -> str:
    before, after = ([f"{name} {kind}" for name, kind in one.columns] for one in (old, new))
    gone, come = [c for c in before if c not in after], [c for c in after if c not in before]
    parts = [f"without {', '.join(gone)}"] if gone else []
    parts += [f"with {', '.join(come)}"] if come else []
    if old.operator != new.operator:
        return f"the state of {old.operator} ({', '.join(before)}) is now one of {new.operator}"
    return f"the state of {old.operator} is now " + (" and ".join(parts) or f"in the order {', '.join(after)}")
