"""How fast plans are found, what they are worth on drawn topologies, and how true they are on Spark.

    python benchmarks/planner.py [times] [drawn] [large] [spark] [--topologies 1000] [--failures 4]
                                 [--pipelines chain tree] [--json]

times: exact against the methods of FastRecover at the sizes of the thesis, in one run (medians): as they are here,
       in arrays, and as the thesis writes them down, in loops.
drawn: random chains and trees as in FastRecover 4.1: recovery time of exact relative to 1Segment and NSegments,
       the variances, and how often NSegments has no plan.
large: a chain and a tree of 1,000 operators and a DAG of 100, with their gaps.
spark: pipelines on Spark. Each is profiled, and then run under several plans while its operators fail by chance,
       as often as their failure rates say relative to each other. Told are predicted and measured overhead (busy
       seconds per second, beyond a plain query) and recovery (from the first failure of a task to the commit of
       the epoch), and how well they rank the plans (Spearman).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tidelock.planning.choosing import Infeasible, PlanSettings, choose
from tidelock.planning.drawing import draw_chain, draw_dag, draw_tree
from tidelock.planning.model import Model
from tidelock.planning.sums import sums

CHAIN_BUDGET, TREE_BUDGET = 0.4, 0.5
SLOPES = (1.6e-6, 4e-5)
TREE_SETTINGS = PlanSettings(steps=20, frequencies=100, max_frequency=20.0)
PARTS = ("times", "drawn", "large", "spark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--topologies", type=int, default=1000)
    parser.add_argument("--failures", type=int, default=4, help="failures per plan on Spark")
    parser.add_argument("--pipelines", nargs="+", choices=list(PIPELINES), default=list(PIPELINES))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    wanted = args.parts or PARTS
    if not set(wanted) <= set(PARTS):
        parser.error(f"the parts are {', '.join(PARTS)}")
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "times": times,
        "drawn": lambda: drawn(args.topologies),
        "large": large,
        "spark": lambda: on_spark(args.failures, args.pipelines),
    }
    found = {name: parts[name]() for name in PARTS if name in wanted}
    print(json.dumps(found, indent=None if args.json else 2))


# -- times


def times(topologies: int = 20) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    chains = [draw_chain(rng) for _ in range(topologies)]
    trees = [draw_tree(rng) for _ in range(topologies)]
    return {
        "chain, n = 15, Z = 60": _race(chains, CHAIN_BUDGET, "chain-dp", PlanSettings(steps=60), _chain_loops),
        "tree, n = 15, Z = 20, F = 100": _race(trees, TREE_BUDGET, "tree-dp", TREE_SETTINGS, _tree_loops),
    }


Loops = Callable[[Model, float, PlanSettings], float]


def _race(models: list[Model], budget: float, method: str, settings: PlanSettings, loops: Loops) -> dict[str, Any]:
    slow = [_timed(model, budget, method, settings) for model in models]
    fast = [_timed(model, budget, "exact", settings) for model in models]
    looped = []
    for model, one in zip(models[:3], slow, strict=False):
        begin = time.perf_counter()
        found = loops(model, budget, settings)
        looped.append(time.perf_counter() - begin)
        assert one[1] is None or abs(found - one[1]) <= 1e-6 * found, "the loops find something else"
    worse = [f[1] / s[1] - 1 for s, f in zip(slow, fast, strict=True) if s[1] is not None and f[1] is not None]
    return {
        f"{method} ms": round(statistics.median(s[0] for s in slow) * 1e3, 3),
        "exact ms": round(statistics.median(f[0] for f in fast) * 1e3, 3),
        "times faster": round(statistics.median(s[0] / f[0] for s, f in zip(slow, fast, strict=True)), 1),
        "in loops ms": round(statistics.median(looped) * 1e3, 1),
        "times faster than loops": round(statistics.median(looped) / statistics.median(f[0] for f in fast)),
        "exact is worse at most by": max(worse, default=None),
        "exact is better on average by": -statistics.mean(worse) if worse else None,
    }


def _timed(model: Model, budget: float, method: str, settings: PlanSettings) -> tuple[float, float | None]:
    seconds, recovery = [], None
    for _ in range(5):
        fresh = Model(**{name: getattr(model, name) for name in Model.__dataclass_fields__})  # nothing remembered
        begin = time.perf_counter()
        try:
            recovery = choose(fresh, budget, method, settings).costs.recovery
        except Infeasible:
            recovery = None
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds), recovery


def _chain_loops(model: Model, budget: float, settings: PlanSettings) -> float:
    """DP_rt(Z, n) of Algorithm 1, eq. 3.3."""
    n, steps, step = len(model.operators), settings.steps, budget / settings.steps
    after = {}
    for k in range(n):
        for i in range(k, n):
            one = sums(model, range(k, i + 1), frozenset({k}))
            after[k, i] = [math.inf] + [
                one.fixed_recovery + one.replay * one.commit / (c * step - one.storing)
                if c * step > one.storing
                else math.inf
                for c in range(1, steps + 1)
            ]
    table = [[0.0] * (steps + 1)] + [[math.inf] * (steps + 1) for _ in range(n)]
    for i in range(1, n + 1):
        for c in range(1, steps + 1):
            for k in range(1, i + 1):
                for spent in range(1, c + 1):
                    table[i][c] = min(table[i][c], table[k - 1][c - spent] + after[k - 1, i - 1][spent])
    return table[n][steps]


def _tree_loops(model: Model, budget: float, settings: PlanSettings) -> float:
    """DP_rt*(CH_max, root) of Algorithm 2, eq. 3.5 and 3.6, with every split of the overhead among children."""
    steps, step = settings.steps, budget / settings.steps
    grid = [(j + 1) * settings.max_frequency / settings.frequencies for j in range(settings.frequencies)]

    @functools.cache
    def star(c: int, i: int) -> float:
        return min(dp(c, i, f, 1)[0] for f in grid)

    @functools.cache
    def dp(c: int, i: int, f: float, inp: int) -> tuple[float, float]:
        rate = model.operators[i].failure_rate
        own = inp * model.fetches[i] / f + model.loads[i] + model.works[i] / f
        left = math.floor((c * step - model.commits[i] * f - inp * model.stores[i]) / step + 1e-11)
        if left < 0 or (not inp and not model.inputs[i]):
            return math.inf, rate
        best = (math.inf, rate)
        for parts in itertools.product(range(left + 1), repeat=len(model.readers[i])):
            if sum(parts) > left:
                continue
            total, failures = own * rate, rate
            for k, part in zip(model.readers[i], parts, strict=True):
                recovering, failing = dp(part, k, f, 0)
                together = failing * own + recovering
                if star(part, k) <= together:
                    total += star(part, k)
                else:
                    total, failures = total + together, failures + failing
            if total < best[0]:
                best = (total, failures)
        return best

    return star(steps, 0)


# -- drawn topologies


def drawn(count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for slope in SLOPES:
        rng = np.random.default_rng(11)
        chains = [draw_chain(rng, storage_cost=slope) for _ in range(count)]
        trees = [draw_tree(rng, storage_cost=slope) for _ in range(count)]
        found[f"chains, slope {slope:g}"] = _against_baselines(chains, CHAIN_BUDGET)
        found[f"trees, slope {slope:g}"] = _against_baselines(trees, TREE_BUDGET)
    return found


def _against_baselines(models: list[Model], budget: float) -> dict[str, Any]:
    begin = time.perf_counter()
    rows = [
        {method: _recovery(model, budget, method) for method in ("exact", "one-segment", "each-segment")}
        for model in models
    ]
    seconds = time.perf_counter() - begin
    best = [row["exact"] for row in rows if row["exact"] is not None]
    found: dict[str, Any] = {"topologies": len(models), "seconds": round(seconds, 2), "feasible": len(best)}
    for method, name in (("one-segment", "1Segment"), ("each-segment", "NSegments")):
        both = [(r["exact"], r[method]) for r in rows if r["exact"] is not None and r[method] is not None]
        found[f"{name} infeasible"] = round(1 - len(both) / max(1, len(best)), 4)
        if len(both) > 1:
            ours, theirs = [a for a, _ in both], [b for _, b in both]
            found[f"recovery relative to {name}"] = round(statistics.mean(ours) / statistics.mean(theirs), 4)
            ratio = statistics.variance(theirs) / statistics.variance(ours)
            found[f"variance of {name} relative to exact"] = round(ratio, 2)
    return found


def _recovery(model: Model, budget: float, method: str) -> float | None:
    try:
        return choose(model, budget, method).costs.recovery
    except Infeasible:
        return None


# -- large topologies


def large() -> dict[str, Any]:
    """The budget is what the source stores and a part of what all others would store: the smaller, the harder."""
    rng = np.random.default_rng(3)
    found = {}
    for name, model in (
        ("chain of 1000", draw_chain(rng, 1000)),
        ("tree of 1000", draw_tree(rng, 1000)),
        ("DAG of 100", draw_dag(rng, 100)),
    ):
        for part in (0.5, 1.5):
            source, everything = model.stores[0], sum(model.stores)
            begin = time.perf_counter()
            choice = choose(model, source + part * (everything - source))
            found[f"{name}, {part} of the others"] = {
                "seconds": round(time.perf_counter() - begin, 2),
                "gap": choice.gap,
                "anchors": len(choice.configuration.anchors),
            }
    return found


# -- on Spark


def on_spark(failures: int, names: list[str]) -> dict[str, Any]:
    import tidelock

    settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", "spark.driver.memory": "3g"}
    spark = tidelock.session("planner", settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    folder = Path(tempfile.mkdtemp(prefix="tidelock-bench-"))
    try:
        found = {name: _pipeline(spark, folder / name, PIPELINES[name], failures) for name in names}
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    points = [point for one in found.values() for point in one["plans"].values()]
    return {
        "pipelines": found,
        "rank correlation, overhead": _spearman(points, "overhead"),
        "rank correlation, recovery": _spearman(points, "recovery"),
        "measured / predicted overhead, median": _ratio(points, "overhead"),
        "measured / predicted recovery, median": _ratio(points, "recovery"),
    }


def _spearman(points: list[dict[str, Any]], what: str) -> float | None:
    pairs = [(p["predicted"][what], p["measured"][what]) for p in points if p["measured"][what] is not None]
    if len(pairs) < 3:
        return None
    ranks = np.array([np.argsort(np.argsort(column)) for column in zip(*pairs, strict=True)])
    return round(float(np.corrcoef(ranks)[0, 1]), 3)


def _ratio(points: list[dict[str, Any]], what: str) -> float | None:
    ratios = [
        p["measured"][what] / p["predicted"][what]
        for p in points
        if p["measured"][what] is not None and p["predicted"][what]
    ]
    return round(statistics.median(ratios), 2) if ratios else None


def _pipeline(spark: Any, folder: Path, make: Callable[[Path], Any], failures: int) -> dict[str, Any]:
    from tidelock.measuring.profiling import profile
    from tidelock.planning.document import read_model
    from tidelock.planning.pipelines import costs_of
    from tidelock.preparing.planner import Planner
    from tidelock.topology import Plan

    switches = folder / "switches"
    pipeline = make(switches)
    document = profile(pipeline, spark, folder / "profile", epochs=6, failures={}, tell=lambda what: None)
    planner = Planner.of(pipeline, spark)
    model = planner.constrained(read_model(document))
    assert model.head_frequency is not None
    plans = {"one": Plan.one(), "each": Plan.each(pipeline.topology())}
    for budget in (0.1, 0.3, 0.6):
        try:
            planned = planner.plan(read_model(document), budget)
            plans[f"budget {budget}"] = Plan.from_document(Plan.to_document(planned.cutting), pipeline.topology())
        except Infeasible:
            continue
    plain = model.baseline
    rates = {o.name: o.failure_rate for o in model.operators if o.name in _fragile(pipeline)}
    victims = _victims(rates, failures)
    found: dict[str, Any] = {}
    for name, plan in plans.items():
        cutting = planner.cut(plan)
        costs = costs_of(model, cutting)
        measured = _measure(spark, pipeline, folder / name.replace(" ", "-"), plan, victims, switches)
        predicted = statistics.mean(costs.recoveries[model.index[victim]] for victim in victims)
        busy = costs.overhead + sum(model.works)
        found[name] = {
            "segments": len(cutting.segments),
            "epochs per batch": [segment.epochs_per_batch for segment in cutting.segments],
            "predicted": {"overhead": round(costs.overhead - plain, 4), "recovery": round(predicted, 2)},
            "measured": {
                "overhead": round(measured["busy"] - (busy - costs.overhead) - plain, 4),
                "recovery": measured["recovery"],
                "recoveries": measured["recoveries"],
            },
        }
    return {
        "victims": victims,
        "machine": {k: document[k] for k in ("segment_cost", "restart_cost", "baseline")},
        "plans": found,
    }


def _victims(rates: dict[str, float], failures: int) -> list[str]:
    """So many operators, each as often as its failure rate says: a systematic draw, the same for every plan."""
    edges = np.cumsum(list(rates.values()))
    start = np.random.default_rng(5).random()
    points = (np.arange(failures) + start) / failures * edges[-1]
    return [list(rates)[int(place)] for place in np.searchsorted(edges, points)]


def _fragile(pipeline: Any) -> list[str]:
    return [name for name in pipeline.functions if name.startswith("op")]


def _measure(
    spark: Any, pipeline: Any, home: Path, plan: Any, victims: list[str], switches: Path
) -> dict[str, Any]:
    """Run under a plan: first in quiet, for how busy it is, and then with failures."""
    run = pipeline.start(spark, home, plan=plan)
    try:
        _wait(lambda: run.status().epoch >= 8)
        busy = _busy(run)
        recoveries = [_fail(run, home, switches / victim) for victim in victims]
        return {
            "busy": busy,
            "recovery": round(statistics.mean(recoveries), 2),
            "recoveries": [round(one, 2) for one in recoveries],
        }
    finally:
        run.stop(drain=False)
        run.wait(120)


def _busy(run: Any) -> float:
    """Busy seconds of all segments per second, over half a minute without failures."""
    gauges = run._supervisor.gauges
    seen: dict[str, float] = dict.fromkeys(gauges, 0.0)
    last = {name: gauge.at for name, gauge in gauges.items()}
    begin = time.monotonic()
    while time.monotonic() - begin < 30:
        for name, gauge in run._supervisor.gauges.items():
            if gauge.at != last[name]:
                last[name] = gauge.at
                seen[name] += gauge.batch_seconds
        time.sleep(0.02)
    return sum(seen.values()) / (time.monotonic() - begin)


def _fail(run: Any, home: Path, switch: Path) -> float:
    """Make an operator fail as often as Spark tries a task; the time until its segment has recovered."""
    first = switch.parent / f"{switch.name} first"
    first.unlink(missing_ok=True)
    before = len(_recoveries(home))
    for number in range(4):
        (switch / str(number)).touch()
    _wait(lambda: len(_recoveries(home)) > before)
    seconds = float(_recoveries(home)[-1]["at"]) - first.stat().st_mtime
    time.sleep(6)
    return seconds


def _recoveries(home: Path) -> list[dict[str, Any]]:
    lines = (home / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == "segment recovered"]


def _wait(done: Callable[[], bool], patience: float = 300.0) -> None:
    deadline = time.monotonic() + patience
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit("the pipeline does not get on")
        time.sleep(0.05)


def _through(rows: Any, switch: Path) -> Any:
    """The rows through Python; every file in ``switch`` makes one attempt of the first task fail."""
    from pyspark import TaskContext

    switch.mkdir(parents=True, exist_ok=True)
    first = switch.parent / f"{switch.name} first"

    def pass_on(batches: Any) -> Any:
        for token in sorted(switch.glob("*")) if TaskContext.get().partitionId() == 0 else ():
            token.unlink()
            if not first.exists():
                first.touch()
            raise RuntimeError("a failure that was asked for")
        yield from batches

    return rows.mapInArrow(pass_on, rows.schema)


def _events(spark: Any, rows: int) -> Any:
    from pyspark.sql import functions as F

    made = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
    loaded = made.option("startTimestamp", 0).load()
    return loaded.select("value", F.sha2(F.col("value").cast("string"), 256).alias("text"))


def _chain(switches: Path) -> Any:
    """Four operators in a line: two stateless, one that keeps 100,000 keys, one that keeps few."""
    from pyspark.sql import functions as F

    import tidelock

    pipeline = tidelock.Pipeline("chain", epoch="3 seconds")

    def events(spark: Any) -> Any:
        return _events(spark, 30_000)

    def op_parse(events: Any) -> Any:
        return _through(events.withColumn("key", F.col("value") % 100_000), switches / "op_parse")

    def op_known(op_parse: Any) -> Any:
        return _through(op_parse, switches / "op_known").groupBy("key").agg(F.count("*").alias("times"))

    def op_loud(op_known: Any) -> Any:
        return _through(op_known.where("key % 10 = 0"), switches / "op_loud")

    def store(op_loud: Any, epoch: int) -> None:
        op_loud.write.format("noop").mode("overwrite").save()

    pipeline.source(events)
    pipeline.operator(failure_rate=2)(op_parse)
    pipeline.operator(mode="update", failure_rate=4)(op_known)
    pipeline.operator(failure_rate=6)(op_loud)
    pipeline.sink(store)
    return pipeline


def _tree(switches: Path) -> Any:
    """One operator with two readers, one of which keeps state."""
    from pyspark.sql import functions as F

    import tidelock

    pipeline = tidelock.Pipeline("tree", epoch="3 seconds")

    def events(spark: Any) -> Any:
        return _events(spark, 10_000)

    def op_parse(events: Any) -> Any:
        return _through(events.withColumn("key", F.col("value") % 5_000), switches / "op_parse")

    def op_count(op_parse: Any) -> Any:
        return _through(op_parse, switches / "op_count").groupBy("key").count()

    def op_few(op_parse: Any) -> Any:
        return _through(op_parse.where("key < 50"), switches / "op_few")

    def op_text(op_few: Any) -> Any:
        return _through(op_few.withColumn("text", F.upper("text")), switches / "op_text")

    def counted(op_count: Any, epoch: int) -> None:
        op_count.write.format("noop").mode("overwrite").save()

    def texts(op_text: Any, epoch: int) -> None:
        op_text.write.format("noop").mode("overwrite").save()

    pipeline.source(events)
    pipeline.operator(failure_rate=2)(op_parse)
    pipeline.operator(mode="update", failure_rate=4)(op_count)
    pipeline.operator(failure_rate=2)(op_few)
    pipeline.operator(failure_rate=6)(op_text)
    pipeline.sink(counted)
    pipeline.sink(texts)
    return pipeline


PIPELINES = {"chain": _chain, "tree": _tree}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
