"""What alignment of two jobs costs in latency, beside two jobs that are not aligned, and beside one.

    python benchmarks/alignment.py [--intervals 1 4] [--throughput 500] [--parallelism 2] [--quick] [--json]

The query is the hotness of pull requests (`examples/hotness`; Epoch Alignment, section 6.1.1). Its jobs are
processes with Spark sessions of their own, started and aligned with the commands that a user has:

* one:           one job (figure 6.1);
* at-least-once: two jobs with plain files between them (`alignment_files`): the second does not wait for a commit;
* exactly-once:  two jobs with the subject `hotness.issues` between them (figure 6.2). The second takes what is
                 published, at its own interval;
* aligned:       the same two processes, after `tidelock align`: one epoch of the subject is one of the second job.

The last two take turns within one run (align, abort, align, ...), so that they are compared on the same machine in
the same state; medians are over all turns. What follows a change of mode at once is left out.

Latency is the time from a comment on an issue to the moment at which the last sink has stored the epoch that has
it: of the oldest comment of an epoch, and the mean of all. Comments arrive evenly, and a batch takes in all that
have arrived since the batch before, so the oldest has waited for one interval when its epoch begins. Told besides:
the time from the publication of an epoch by the first job to the beginning of the batch of the second job that has
it, and to its delivery. The ratio is what alignment adds to the median latency of the oldest comment, in
intervals. Unaligned, the second job's interval may end at any time of the first job's; where it does is chance,
and moves slowly. So the latency of exactly-once varies by up to an interval from run to run (figure 6.12).

On a machine that does other things besides, the numbers say little: "foreign" is the part of the processor time
that went elsewhere.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from alignment_jobs import EXAMPLES, Delivery, Place, Setting, foreign_share, publication, sleep_until
from jobs import say

VARIANTS = ("one", "at-least-once", "two")
JOB = "hot-pull-requests"
FILES = Path(__file__).with_name("alignment_files.py")
AIM = 0.1
"""Of an interval, that alignment may add to the latency."""
QUIET = 0.25
"""The part of the processor time that may go elsewhere before a number says nothing."""
SETTLED = 2.0
"""Seconds, and two intervals, that are left out after a change of mode."""


def main() -> None:
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # the processes below end, too
    results = measure(args)
    if args.json:
        print(json.dumps(results, indent=1))
    else:
        show(results)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--intervals", type=float, nargs="*", default=[1.0, 4.0], help="seconds between epochs")
    parser.add_argument(
        "--throughput", type=int, nargs="*", default=[500], help="comments per second and instance"
    )
    parser.add_argument("--parallelism", type=int, nargs="*", default=[2], help="instances of every operator")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long a turn is measured")
    parser.add_argument("--turns", type=int, default=1, help="of exactly-once and of aligned")
    parser.add_argument("--warm", type=float, default=10.0, help="seconds from the first epochs to the first turn")
    parser.add_argument("--quick", action="store_true", help="one interval, one short turn")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.intervals, args.seconds, args.turns, args.warm = [1.0], 10.0, 1, 5.0
        args.variants = [variant for variant in args.variants if variant != "at-least-once"]
    return args


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    for setting in map(Setting, *zip(*product(args.intervals, args.throughput, args.parallelism), strict=True)):
        rows: dict[str, Any] = {}
        for variant in args.variants:
            say(f"{setting}: {variant}")
            rows |= {"one": one, "at-least-once": files, "two": two}[variant](setting, args)
        if "aligned" in rows:
            rows["aligned"]["added"] = added(rows["aligned"], rows["exactly-once"], "oldest", setting.interval)
            rows["aligned"]["added_mean"] = added(rows["aligned"], rows["exactly-once"], "mean", setting.interval)
        found.append({**vars(setting), "variants": rows})
        say(json.dumps(found[-1]))
    return found


def added(aligned: dict[str, Any], other: dict[str, Any], what: str, interval: float) -> float:
    """What alignment adds to a median latency, in intervals."""
    return float((aligned[what]["median"] - other[what]["median"]) / interval)


# -- the variants


def one(setting: Setting, args: argparse.Namespace) -> dict[str, Any]:
    with Place(setting) as place:
        place.run(EXAMPLES / "one_job.py", "one")
        return {"one": turn(place, args)}


def files(setting: Setting, args: argparse.Namespace) -> dict[str, Any]:
    with Place(setting) as place:
        place.run(f"{FILES}:first", "first")
        place.run(f"{FILES}:second", "second")
        return {"at-least-once": turn(place, args)}


def turn(place: Place, args: argparse.Namespace) -> dict[str, Any]:
    """What is delivered in one long turn after the warm-up."""
    warm_up(place, args)
    began, ticks = time.time(), place.ticks()
    sleep_until(began + args.seconds * args.turns)
    share = foreign_share(ticks, place.ticks())
    return {**summary(within(place.deliveries(), [(began, time.time())])), "foreign": share}


def warm_up(place: Place, args: argparse.Namespace) -> None:
    place.wait_for_epochs(2)
    time.sleep(args.warm)


def two(setting: Setting, args: argparse.Namespace) -> dict[str, Any]:
    with Place(setting) as place:
        place.run(EXAMPLES / "hot_issues.py", "first")
        place.wait_for_subject()
        place.run(EXAMPLES / "hot_pull_requests.py", "second")
        warm_up(place, args)
        times: dict[str, list[tuple[float, float]]] = {"exactly-once": [], "aligned": []}
        ticks = place.ticks()
        for _ in range(args.turns):
            times["exactly-once"].append(pause(setting, args.seconds))
            place.ask("align", JOB)
            times["aligned"].append(pause(setting, args.seconds))
            place.ask("align", JOB, "--abort")
        share = foreign_share(ticks, place.ticks())
        deliveries, published = place.deliveries(), place.published()
    return {mode: {**in_turns(deliveries, some, published), "foreign": share} for mode, some in times.items()}


def in_turns(
    deliveries: list[Delivery], times: list[tuple[float, float]], published: list[float]
) -> dict[str, Any]:
    """The summary of all turns, with the median of each."""
    turns = [statistics.median(one.oldest for one in within(deliveries, [some])) for some in times]
    return {**summary(within(deliveries, times), published), "turns": turns}


def pause(setting: Setting, seconds: float) -> tuple[float, float]:
    """Let the jobs run; the time that counts."""
    began = time.time() + SETTLED + 2 * setting.interval
    sleep_until(began + seconds)
    return began, time.time()


def within(deliveries: Iterable[Delivery], times: Sequence[tuple[float, float]]) -> list[Delivery]:
    return [one for one in deliveries if any(begin <= one.at <= end for begin, end in times)]


# -- numbers


def summary(deliveries: Sequence[Delivery], published: list[float] | None = None) -> dict[str, Any]:
    """The latencies of some epochs, in seconds."""
    found: dict[str, Any] = {
        "epochs": len(deliveries),
        "oldest": numbers(one.oldest for one in deliveries),
        "mean": numbers(one.mean for one in deliveries),
        "batch": numbers(one.at - one.begun for one in deliveries),
    }
    if published is not None:
        known = [(one, publication(one.moments[1], published)) for one in deliveries]
        found["taken_epochs"] = statistics.mean(len(one.moments) - 1 for one in deliveries)
        found["publication_to_batch"] = numbers(one.begun - at for one, at in known if at is not None)
        found["publication_to_delivery"] = numbers(one.at - at for one, at in known if at is not None)
        found["first_job"] = numbers(at - one.moments[1] for one, at in known if at is not None)
    return found


def numbers(values: Iterable[float]) -> dict[str, float]:
    found = sorted(values)
    if len(found) < 2:
        raise SystemExit(f"{len(found)} epochs are too few: give them more time with --seconds")
    deciles = statistics.quantiles(found, n=10, method="inclusive")
    return {"median": statistics.median(found), "p10": deciles[0], "p90": deciles[-1], "max": found[-1]}


# -- the table


def show(results: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    latency = Table(title="latency in seconds: median (10 % to 90 %)")
    for column in ("interval", "comments/s", "variant", "epochs", "oldest comment", "mean", "foreign"):
        latency.add_column(column, justify="left" if column == "variant" else "right")
    parts = Table(title="where the second job's epochs spend their time, in seconds: medians")
    for column in ("interval", "variant", "taken per batch", "until published", "until the batch", "in the batch"):
        parts.add_column(column, justify="left" if column == "variant" else "right")
    for row in results:
        for variant, found in row["variants"].items():
            rate = f"{row['throughput'] * row['parallelism']:,} in {row['parallelism']}"
            spread = [cell(found[what]) for what in ("oldest", "mean")]
            foreign = "-" if found["foreign"] is None else f"{found['foreign']:.0%}"
            latency.add_row(f"{row['interval']:g}", rate, variant, str(found["epochs"]), *spread, foreign)
            if "publication_to_batch" in found:
                spent = [f"{found[what]['median']:.2f}" for what in ("first_job", "publication_to_batch", "batch")]
                parts.add_row(f"{row['interval']:g}", variant, f"{found['taken_epochs']:.1f}", *spent)
    console = Console()
    for told in (latency, parts, *(line for row in results for line in aims(row))):
        console.print(told)


def cell(found: dict[str, float]) -> str:
    return f"{found['median']:.2f} ({found['p10']:.2f} to {found['p90']:.2f})"


def aims(row: dict[str, Any]) -> Iterable[str]:
    aligned = row["variants"].get("aligned")
    if aligned is not None:
        met = "met" if aligned["added"] < AIM else "not met"
        if (aligned["foreign"] or 0.0) > QUIET:
            met = "but the machine was too busy with other things to tell"
        oldest, mean = (f"{aligned[what]:+.2f} intervals" for what in ("added", "added_mean"))
        yield (
            f"interval {row['interval']:g} s, parallelism {row['parallelism']}: alignment adds {oldest} to the "
            f"latency of the oldest comment, {mean} to the mean (aim: less than {AIM:g}; {met})"
        )


if __name__ == "__main__":
    main()
