"""Plans, reasons and comparisons as tables for people."""

from __future__ import annotations

import math

from rich.table import Table
from rich.text import Text

from tidelock.planning.answers import Compared, Reason
from tidelock.planning.choosing import PlanChoice
from tidelock.planning.costs import Costs
from tidelock.planning.model import Model
from tidelock.planning.pipelines import Planned
from tidelock.topology import Segment


def segments_table(model: Model, choice: PlanChoice) -> Table:
    """The segments of a choice, with what each of them costs and how long it recovers."""
    table = _table("segment", "anchors", "operators", right=("commits", "overhead", "recovery"))
    anchors, costs = choice.configuration.anchors, choice.costs
    for number, (members, frequency) in enumerate(
        zip(model.segments(anchors), choice.configuration.frequencies, strict=True), start=1
    ):
        names = [model.operators[place].name for place in members]
        stored = [model.operators[place].name for place in members if place in anchors]
        commits = f"{frequency:.4g}" if math.isfinite(frequency) else "any"
        table.add_row(str(number), ", ".join(stored), ", ".join(names), commits, *_numbers(costs, members, model))
    return table


def _numbers(costs: Costs, members: tuple[int, ...], model: Model) -> tuple[str, str]:
    overhead = sum(costs.overheads[place] for place in members)
    recovery = sum(model.operators[place].failure_rate * costs.recoveries[place] for place in members)
    return f"{overhead:.4g}", f"{recovery:.4g}"


def told(model: Model, budget: float, choice: PlanChoice) -> Text:
    """The choice in two lines."""
    gap = (
        "" if choice.gap is None else ", proven optimal" if choice.gap == 0 else f", at most {choice.gap:.2%} off"
    )
    return Text(
        f"overhead {choice.costs.overhead - model.baseline:.4g} of a budget of {budget:g}; "
        f"expected recovery time {choice.costs.recovery:.4g} ({choice.method}{gap})"
    )


def reasons_table(reasons: list[Reason]) -> Table:
    """Why each operator is an anchor or not."""
    table = _table("operator", "anchor", "why")
    for reason in reasons:
        table.add_row(reason.operator, "yes" if reason.anchor else "no", reason.why)
    return table


def compared_table(model: Model, rivals: list[Compared]) -> Table:
    """What every method finds."""
    table = _table("method", right=("segments", "overhead", "recovery"))
    for rival in rivals:
        if rival.choice is None:
            table.add_row(rival.method, "-", "-", "no plan")
        else:
            costs = rival.choice.costs
            segments = len(model.segments(rival.choice.configuration.anchors))
            overhead = costs.overhead - model.baseline
            table.add_row(rival.method, str(segments), f"{overhead:.4g}", f"{costs.recovery:.4g}")
    return table


def planned_table(planned: Planned) -> Table:
    """The segments of a pipeline's plan: how often each commits, what that costs, what a failure costs."""
    table = _table("segment", "operators", right=("a batch every", "overhead", "a failure takes"))
    for segment in planned.cutting.segments:
        table.add_row(segment.name, ", ".join(segment.operators), *_cells(planned, segment))
    return table


def _cells(planned: Planned, segment: Segment) -> tuple[str, str, str]:
    model, costs = planned.model, planned.costs
    assert model.head_frequency is not None
    places = [model.index[name] for name in segment.operators]
    seconds = segment.epochs_per_batch / model.head_frequency
    overhead = sum(costs.overheads[place] for place in places)
    longest = max(costs.recoveries[place] for place in places)
    return f"{seconds:.3g} s", f"{overhead:.1%}", f"{longest:.2g} s"


def planned_text(planned: Planned, budget: float) -> Text:
    """A pipeline's plan in two lines."""
    daily = planned.costs.recovery * 86_400
    gap = planned.choice.gap
    proof = "" if gap is None else ", the best there is" if gap == 0 else f", at most {gap:.2%} from the best"
    return Text(
        f"{planned.overhead:+.1%} of the time more than one plain query (budget {budget:.1%}); "
        f"{daily:.3g} s of recovery a day to be expected{proof}"
    )


def _table(*left: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in left:
        table.add_column(name, overflow="fold")
    for name in right:
        table.add_column(name, justify="right", overflow="fold")
    return table
