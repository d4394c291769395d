"""`tidelock run FILE.py`: a pipeline in this process, under supervision, until it is stopped."""

from __future__ import annotations

import argparse
import queue
import sys
from collections.abc import Callable

from tidelock.cli.exits import BAD, GOOD
from tidelock.cli.options import asked_logs, check_one_plan
from tidelock.cli.plan_pipeline import attributes, remember
from tidelock.cli.run_screens import Screen, screen_for
from tidelock.cli.sessions import command_session
from tidelock.cli.signals import Signals
from tidelock.errors import BatchFailed
from tidelock.runtime.events import Event
from tidelock.runtime.home import Home
from tidelock.runtime.loading import load
from tidelock.runtime.pipeline import Pipeline
from tidelock.runtime.planning import Planner
from tidelock.runtime.preparing import PlanLike
from tidelock.runtime.run import Run
from tidelock.spark.frames import SparkSession
from tidelock.topology import Plan

Told = queue.SimpleQueue[Event]

_LOOK_EVERY = 0.25


def run(args: argparse.Namespace) -> int:
    """Answer `tidelock run`.

    Raises:
        TidelockError: it cannot be started, or ended by something else than a segment's failure.
    """
    check_one_plan(args)
    pipeline = load(args.file)
    pipeline.topology()
    home = Home(args.home or f"{pipeline.name}.tidelock", asked_logs(args), args.cache, args.coordinator)
    with home.held():
        pass  # a home that is in use is told before Spark is started
    with (
        command_session(pipeline.name, args.conf, master=args.master, log=home.root / "spark.log") as spark,
        Signals() as signals,
        screen_for(as_json=args.json) as screen,
    ):
        failure = _watched(lambda told: _started(args, pipeline, spark, home, told), screen, signals)
    if failure is None:
        return GOOD
    print(f"tidelock: {failure}", file=sys.stderr)
    return BAD


def _started(args: argparse.Namespace, pipeline: Pipeline, spark: SparkSession, home: Home, told: Told) -> Run:
    last = None if args.epochs is None else args.epochs - 1
    plan = args.plan if args.budget is None else _planned(args, pipeline, spark, home)
    return Run(pipeline, spark, home, plan=plan, backup=args.backup, last_epoch=last, listener=told.put)


def _planned(args: argparse.Namespace, pipeline: Pipeline, spark: SparkSession, home: Home) -> PlanLike:
    """The plan within the budget; a home that has a plan keeps it."""
    if home.record() is not None:
        print(f"tidelock: {home.root} keeps its plan; `tidelock plan --apply` changes it", file=sys.stderr)
        return None
    model = attributes(args, pipeline, spark)
    planned = Planner.of(pipeline, spark).plan(model, args.budget, max_batch=args.max_batch)
    remember(home, planned.model, args.budget, args.max_batch)
    return Plan.to_document(planned.cutting)


def _watched(start: Callable[[Told], Run], screen: Screen, signals: Signals) -> BatchFailed | None:
    """Show a run until it has ended; returns the failure for which it was given up."""
    told: Told = queue.SimpleQueue()
    running = start(told)
    try:
        while not running.wait(_LOOK_EVERY):
            _look(running, told, screen)
            drain = signals.news()
            if drain is not None:
                running.stop(drain=drain)
    except BatchFailed as failure:
        return failure
    finally:
        _tell(told, screen)
        screen.end(running.home.document("status") or running.status())
    return None


def _look(running: Run, told: Told, screen: Screen) -> None:
    _tell(told, screen)
    if screen.moves:
        screen.show(running.status())


def _tell(told: Told, screen: Screen) -> None:
    while not told.empty():
        screen.tell(told.get())
