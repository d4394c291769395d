"""`tidelock cut TOPIC`: epochs on a Kafka topic whose producer knows nothing of them, for jobs to share."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tidelock.alignment.cutting import Cutter
from tidelock.alignment.directory import Directory, Job, Subject
from tidelock.cli.exits import GOOD
from tidelock.cli.pictures.showing import Showing
from tidelock.coordination import open_tree
from tidelock.errors import BackendUnavailable, PipelineError
from tidelock.kafka.location import KafkaLocation, parse
from tidelock.log import EpochLog, Retention
from tidelock.log.json_records import describe_columns
from tidelock.pipeline.subscriptions import default_coordinator
from tidelock.running.signals import Signals

_LOOK_EVERY = 0.1


def cut(args: argparse.Namespace) -> int:
    """Answer `tidelock cut`.

    Raises:
        PipelineError: the topic, its columns or the log are not what they have to be.
        Fenced: another cutter has taken over.
    """
    brokers, topic = _topic(args.topic)
    described = describe_columns(args.schema)
    log = EpochLog.create(args.log, described, name=args.subject, retention=Retention(epochs=args.keep))
    if log.header.schema != described:
        raise PipelineError(f"{log.shown} has other columns: leave --schema as it was, or give another --log")
    cutter = Cutter(log, brokers, topic, starting=args.starting)
    # Signals are noted from before it is known until it has withdrawn: none of them leaves it in the tree.
    with Showing("the cutter") as showing, Signals() as signals, _known(args, log):
        _cut_epochs(args, cutter, signals, showing)
    return GOOD


def _cut_epochs(args: argparse.Namespace, cutter: Cutter, signals: Signals, showing: Showing) -> None:
    """Cut until a signal comes, or until there are as many epochs as were asked for."""
    done, due = 0, 0.0
    while done != args.epochs and not _stops(signals, due):
        due = time.monotonic() + args.every
        rows = _cut(cutter, args.json, showing)
        if rows is not None:
            done += 1
            showing.show(partial(_tell, args, cutter.epoch, rows))


def _stops(signals: Signals, due: float) -> bool:
    """Wait until then, or until a signal comes; whether one has."""
    while signals.news() is None:
        left = due - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, _LOOK_EVERY))  # in slices: a signal that was noted does not end it
    return True


def _topic(url: str) -> tuple[KafkaLocation, str]:
    location = parse(url)
    if not location.path or "/" in location.path:
        raise PipelineError(f"{location.shown} names no topic: write it like kafka://host:9092/topic")
    return location.brokers, location.path


def _cut(cutter: Cutter, as_json: bool, showing: Showing) -> int | None:
    try:
        return cutter.cut()
    except BackendUnavailable as away:
        if not as_json:
            showing.show(partial(print, f"waiting: {away}", flush=True))
        return None


def _tell(args: argparse.Namespace, epoch: int, rows: int) -> None:
    if args.json:
        print(json.dumps({"epoch": epoch, "offsets": rows}), flush=True)
    else:
        print(f"epoch {epoch}: {rows:,} offsets", flush=True)


@contextmanager
def _known(args: argparse.Namespace, log: EpochLog) -> Iterator[None]:
    """Have the subject in the shared tree, as that of a producer which runs."""
    job = f"cut-{args.subject}"
    with open_tree(args.coordinator or default_coordinator()) as tree:
        known = Directory(tree)
        known.enter(Job(job, log.shown, log.header.id, {}, (args.subject,)))
        known.publish(Subject(args.subject, log.url, log.header.schema, shared=False), job, log.url)
        yield
