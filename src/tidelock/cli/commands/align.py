"""`tidelock align JOB`: lead a running job to the epochs of its subjects, or let it go its own way again."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from tidelock.alignment.leading import Leader
from tidelock.alignment.machine import AlignmentState, Source
from tidelock.cli.exits import BAD, GOOD
from tidelock.pipeline.subscriptions import directory


def align(args: argparse.Namespace) -> int:
    """Answer `tidelock align`.

    Raises:
        PipelineError: there is no such job, or it does not follow what it is to be aligned with.
    """
    began = time.monotonic()
    with directory(args.coordinator) as known:
        leader = Leader(known, args.job, _Screen(quiet=args.json).look)
        if args.abort:
            source = leader.abort(args.timeout)
            done = source.state is AlignmentState.UNALIGNED
        else:
            source = leader.align(args.subjects or (), args.timeout)
            done = source.state is AlignmentState.ALIGNED
        alive = known.is_alive(args.job)
    answer = {
        "job": args.job,
        "state": source.state.value,
        "done": done,
        "runs": alive,
        "subjects": {name: _consumer(c) for name, c in source.to_document()["consumers"].items()},
        "seconds": round(time.monotonic() - began, 3),
    }
    if args.json:
        print(json.dumps(answer))
    elif not done:
        print(f"tidelock: {_not_done(args, answer)}", file=sys.stderr)
    return GOOD if done else BAD


def _consumer(fields: dict[str, Any]) -> dict[str, Any]:
    return {"state": fields["state"], "from_epoch": fields["start"], "epoch": fields["position"]}


def _not_done(args: argparse.Namespace, answer: dict[str, Any]) -> str:
    if not answer["runs"]:
        return (
            f"job {args.job} does not run, so it is still {answer['state']}: start it; it has the command, and "
            "this one can be repeated"
        )
    return (
        f"job {args.job} is still {answer['state']} after {args.timeout:g} s; repeat this command to go on waiting"
    )


class _Screen:
    """Says every change of state once."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._said = ""

    def look(self, source: Source) -> None:
        words = source.state.value
        if source.state is AlignmentState.ALIGNED:
            starts = ", ".join(f"{name} from epoch {max(0, start)}" for name, start in source.aligned.items())
            words = f"aligned: {starts}"
        if words != self._said and not self._quiet:
            print(words, flush=True)
        self._said = words
