"""`tidelock cut TOPIC`: epochs on a Kafka topic whose producer knows nothing of them, for jobs to share."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tidelock.alignment.cutting import Cutter
from tidelock.alignment.directory import Directory, Job, Subject
from tidelock.cli.exits import GOOD
from tidelock.coordination import open_tree
from tidelock.errors import BackendUnavailable, PipelineError
from tidelock.kafka.location import Location, parse
from tidelock.log import EpochLog, Retention
from tidelock.log.json_records import describe_columns
from tidelock.runtime.signals import Signals
from tidelock.runtime.subscriptions import default_coordinator


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
    with _known(args, log), Signals() as signals:
        done = 0
        while signals.news() is None and done != args.epochs:
            began = time.monotonic()
            rows = _cut(cutter, args.json)
            if rows is not None:
                done += 1
                _tell(args, cutter.epoch, rows)
            threading.Event().wait(max(0.0, args.every - (time.monotonic() - began)))
    return GOOD


def _topic(url: str) -> tuple[Location, str]:
    location = parse(url)
    if not location.path or "/" in location.path:
        raise PipelineError(f"{location.shown} names no topic: write it like kafka://host:9092/topic")
    return location.brokers, location.path


def _cut(cutter: Cutter, as_json: bool) -> int | None:
    try:
        return cutter.cut()
    except BackendUnavailable as away:
        if not as_json:
            print(f"waiting: {away}", flush=True)
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
