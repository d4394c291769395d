"""`tidelock run FILE.py`: a pipeline in this process, under supervision, until it is stopped."""

from __future__ import annotations

import argparse
import queue
import sys
import time
from collections.abc import Callable
from functools import partial

from tidelock.cli.commands.plan_pipeline import attributes, check_attributes, remember
from tidelock.cli.exits import BAD, GOOD
from tidelock.cli.options import asked_logs, check_one_plan
from tidelock.cli.pictures.progress import Goal
from tidelock.cli.pictures.run_screens import Screen, Volume, screen_for
from tidelock.cli.pictures.showing import Showing
from tidelock.cli.sessions import command_session
from tidelock.errors import BatchFailed
from tidelock.home.events import RunEvent
from tidelock.home.home import Home
from tidelock.pipeline.declaration import Declaration
from tidelock.pipeline.loading import load
from tidelock.preparing.checks import check_before_spark
from tidelock.preparing.planner import Planner
from tidelock.preparing.preparation import PlanLike
from tidelock.running.run import Run
from tidelock.running.signals import Signals
from tidelock.spark.frames import SparkSession
from tidelock.topology import Plan

Told = queue.SimpleQueue[RunEvent]

_LOOK_EVERY = 0.25


def run(args: argparse.Namespace) -> int:
    """Answer `tidelock run`.

    Raises:
        TidelockError: it cannot be started, or ended by something else than a segment's failure.
    """
    check_one_plan(args)
    pipeline = load(args.file)
    home = Home(args.home or f"{pipeline.name}.tidelock", asked_logs(args), args.cache, args.coordinator)
    check_before_spark(pipeline, home, plan=args.plan, backup=args.backup)
    if args.topology is not None or home.record() is None:  # a home that has a plan keeps it
        check_attributes(args, pipeline)
    with home.held():
        pass  # a home that is in use, or cannot be one, is told before Spark is started
    with Showing() as showing:
        return _run(args, pipeline, home, showing)


def _run(args: argparse.Namespace, pipeline: Declaration, home: Home, showing: Showing) -> int:
    volume = Volume.QUIET if args.quiet else Volume.VERBOSE if args.verbose else Volume.USUAL
    log = home.root / "spark.log"
    if volume is not Volume.QUIET and not args.json:
        showing.show(lambda: print(f"starting Spark, whose own messages go to {log}", flush=True))
    with (
        Signals(running=False) as signals,
        command_session(pipeline.name, args.conf, master=args.master, log=log) as spark,
        screen_for(as_json=args.json, goal=_goal(args), volume=volume) as screen,
    ):
        failure = _watched(lambda told: _started(args, pipeline, spark, home, told), screen, signals, showing)
    if failure is None:
        return GOOD
    showing.show(lambda: print(f"tidelock: {failure}", file=sys.stderr))
    return BAD


def _goal(args: argparse.Namespace) -> Goal:
    return Goal(None if args.epochs is None else args.epochs - 1, args.drain)


def _started(args: argparse.Namespace, pipeline: Declaration, spark: SparkSession, home: Home, told: Told) -> Run:
    plan = args.plan if args.budget is None else _planned(args, pipeline, spark, home)
    return Run(
        pipeline,
        spark,
        home,
        plan=plan,
        backup=args.backup,
        last_epoch=_goal(args).last_epoch,
        available_now=args.drain,
        accept_changes=args.accept_changes,
        listener=told.put,
    )


def _planned(args: argparse.Namespace, pipeline: Declaration, spark: SparkSession, home: Home) -> PlanLike:
    """The plan within the budget; a home that has a plan keeps it."""
    if home.record() is not None:
        print(f"tidelock: {home.root} keeps its plan; `tidelock plan --apply` changes it", file=sys.stderr)
        return None
    model = attributes(args, pipeline, spark, quiet=args.quiet)
    planned = Planner.of(pipeline, spark, home.coordinator).plan(model, args.budget, max_batch=args.max_batch)
    remember(home, planned.model, args.budget, args.max_batch)
    return Plan.to_document(planned.cutting)


def _watched(
    start: Callable[[Told], Run], screen: Screen, signals: Signals, showing: Showing
) -> BatchFailed | None:
    """Show a run until it has ended; returns the failure for which it was given up."""
    told: Told = queue.SimpleQueue()
    running = start(told)
    signals.begun()
    shown = time.monotonic()
    try:
        while not running.wait(_LOOK_EVERY):
            _tell(told, screen, showing)
            if screen.every is not None and time.monotonic() - shown >= screen.every:
                shown = time.monotonic()
                showing.show(lambda: screen.show(running.status().to_json()))
            drain = signals.news()
            if drain is not None:
                running.stop(drain=drain)
    except BatchFailed as failure:
        return failure
    finally:
        _tell(told, screen, showing)
        showing.show(lambda: screen.end(running.status().to_json()))
    return None


def _tell(told: Told, screen: Screen, showing: Showing) -> None:
    while not told.empty():
        showing.show(partial(screen.tell, told.get()))
