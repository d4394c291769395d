"""What state in a cache gains when something fails and what it costs, in one run of this program.

    python benchmarks/cache.py [--parts recovery failures position interval throughput] [--quick] [--json]

A chain of operators, each of which removes duplicates by a key of its own, gets an epoch that brings all the keys
and then small ones at a steady pace (`cache_jobs` has the variants). In some epochs operators fail as often as
Spark tries a task, so that their queries fail. These are the experiments of DCAS, section 6:

* recovery:   the last operator fails, with more and more keys;
* failures:   several operators fail at the same moment (figure 3). A plain query fails as a whole, with however
              many of its operators. The operators of a pipeline wait for each other, each with an epoch in hand;
* position:   an operator further and further from the source fails (figure 5);
* interval:   the cache loses everything just before its next snapshot, with longer and longer intervals between
              snapshots (figure 6);
* throughput: one aggregation by key as fast as it goes, with longer and longer intervals (figures 7 and 8).

Told is the time from the failure (the last try of the operator; the loss) to the first new epoch at the sink. All
variants get the same epochs, and what comes to their sinks has to be the same, epoch by epoch.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import cache_tables
import numpy as np
import pyarrow as pa
from cache_jobs import VARIANTS, operator_names
from jobs import Job, say, wait_until
from redis_server import RedisServer

PARTS = ("recovery", "failures", "position", "interval", "throughput")
SMALL = 2_000
REPEATED = 500
"""So many of the rows of a small epoch were there before."""
PACE = "3 seconds"
BEFORE, AFTER = 2, 2
"""How many epochs go by before and after one that fails."""
NEVER = 1_000_000
QUICK: dict[str, Any] = {
    "keys": [10_000],
    "failures": 1,
    "operators": 3,
    "fixed_keys": 10_000,
    "intervals": [2, 5],
    "throughput_keys": 10_000,
    "throughput_rows": 10_000,
    "throughput_epochs": 12,
    "throughput_warm": 4,
    "throughput_intervals": [5, NEVER],
}


def main() -> None:
    args = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # the processes below end, too
    with RedisServer() as server:
        bench = Bench(args, server)
        results = {part: getattr(bench, part)() for part in args.parts}
    if args.json:
        print(json.dumps(results, indent=1))
    else:
        cache_tables.show(results)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--keys", type=int, nargs="*", default=[10_000, 100_000, 1_000_000], help="recovery")
    parser.add_argument("--failures", type=int, default=3, help="how often each thing fails")
    parser.add_argument("--operators", type=int, default=6, help="of the chain")
    parser.add_argument("--together", type=int, nargs="*", help="how many fail at once, if not 1 to all; failures")
    parser.add_argument("--places", type=int, nargs="*", help="which one fails, if not each; position")
    parser.add_argument("--fixed-keys", type=int, default=100_000, help="failures, position and interval")
    parser.add_argument("--snapshot-every", type=int, default=10, help="epochs; recovery, failures and position")
    parser.add_argument("--intervals", type=int, nargs="*", default=[2, 5, 10, 20, 40], help="epochs; interval")
    parser.add_argument("--throughput-keys", type=int, default=100_000)
    parser.add_argument("--throughput-rows", type=int, default=50_000, help="per epoch")
    parser.add_argument("--throughput-epochs", type=int, default=130)
    parser.add_argument("--throughput-warm", type=int, default=10, help="epochs that do not count")
    parser.add_argument("--throughput-intervals", type=int, nargs="*", default=[5, 20, 100, NEVER], help="epochs")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything works")
    parser.add_argument("--json", action="store_true")
    known = parser.parse_args()
    if known.quick:
        parser.set_defaults(**QUICK)
    return parser.parse_args()


class Bench:
    """The parts of the benchmark, over one server."""

    def __init__(self, args: argparse.Namespace, server: RedisServer) -> None:
        self._args = args
        self._server = server

    # -- operators that fail

    def recovery(self) -> list[dict[str, Any]]:
        names = operator_names(self._args.operators)
        found = []
        for keys in self._args.keys:
            same = Same()
            for variant in self._args.variants:
                failures = [[names[-1]]] * self._args.failures
                times = self._fail("recovery", variant, keys, names, failures, same)
                found.append({"keys": keys, **summary(variant, times)})
        return found

    def failures(self) -> list[dict[str, Any]]:
        names = operator_names(self._args.operators)
        counts = self._args.together or list(range(1, len(names) + 1))
        return self._compared("failures", [names[:count] for count in counts], counts)

    def position(self) -> list[dict[str, Any]]:
        names = operator_names(self._args.operators)
        places = self._args.places or list(range(1, len(names) + 1))
        return self._compared("position", [[names[place - 1]] for place in places], places)

    def _compared(self, part: str, wanted: list[list[str]], labels: list[int]) -> list[dict[str, Any]]:
        """Each of the wanted failures several times, in one job for each of the two ends of the comparison."""
        names, repeated = operator_names(self._args.operators), self._args.failures
        same, found = Same(), []
        for variant in (v for v in ("plain", "cache") if v in self._args.variants):
            failures = [together for together in wanted for _ in range(repeated)]
            times = self._fail(part, variant, self._args.fixed_keys, names, failures, same)
            for place, label in enumerate(labels):
                own = times[place * repeated : (place + 1) * repeated]
                found.append({part: label, **summary(variant, own)})
        return sorted(found, key=lambda row: int(row[part]))

    def _fail(
        self, part: str, variant: str, keys: int, names: list[str], wanted: list[list[str]], same: Same
    ) -> list[tuple[float, float]]:
        """Seconds until a new epoch is at the sink, and until all that failed are through, failure by failure."""
        # The operators of a pipeline fail with different epochs in hand: the last one has the oldest.
        hands = [together if variant != "plain" else together[-1:] for together in wanted]
        rounds = [BEFORE + len(together) + AFTER for together in wanted]
        stream = Stream(keys, sum(rounds))
        failures, first = [], 1
        for together, size in zip(hands, rounds, strict=True):
            behind = reversed(together)
            failures.append({name: stream.new_id(first + BEFORE + i) for i, name in enumerate(behind)})
            first += size
        settings = {"operators": names, "failures": failures, "snapshot_every": self._args.snapshot_every}
        slots = 2 + max(len(together) for together in hands) if part == "failures" else 2
        with self._chain(part, variant, stream, settings, f"local[{slots},4]") as job:
            return self._failed(job, stream, rounds, same)

    def _failed(self, job: Job, stream: Stream, rounds: list[int], same: Same) -> list[tuple[float, float]]:
        times = []
        for number, size in enumerate(rounds):
            last = job.feed(size)
            job.wait_for(last)
            at, failed = job.delivered(), job.failed_at(number)
            new = at[last - size + 1 + BEFORE]
            times.append((new - failed, max(new, job.through_at(number)) - failed))
            say(f"  {times[-1][0]:.2f} s, {times[-1][1]:.2f} s until all are through")
        job.finish()
        same.check(job, stream.epochs)
        return times

    @contextmanager
    def _chain(
        self, part: str, variant: str, stream: Stream, more: dict[str, Any], master: str, pace: str = PACE
    ) -> Iterator[Job]:
        """A chain that has all the keys."""
        say(f"{part}: {variant}, {stream.keys} keys, {len(more['operators'])} operators")
        settings = {"kind": "chain", "variant": variant, "pace": pace, "last": stream.epochs - 1, "master": master}
        with Job(PROGRAM, stream.tables(), {**settings, **more, "redis": self._server.url}) as job:
            job.start()
            job.wait_for(job.feed(1))
            yield job

    # -- a cache that is lost

    def interval(self) -> list[dict[str, Any]]:
        return [self._lost(every) for every in self._args.intervals]

    def _lost(self, every: int) -> dict[str, Any]:
        # Snapshots are of the epochs every - 1, 2 * every - 1 and so on.
        rounds = [2 * every - 2] + [every - 1] * (self._args.failures - 1)
        stream = Stream(self._args.fixed_keys, sum(rounds) + self._args.failures)
        settings = {"operators": operator_names(1), "failures": [], "snapshot_every": every}
        times = []
        with self._chain("interval", "cache", stream, settings, "local[2,4]", "1 millisecond") as job:
            for number, size in enumerate(rounds, 1):
                job.wait_for(job.feed(size))
                wait_until(partial(has_snapshot, job.home, number * every - 1), "a snapshot is taken")
                lost = time.time()
                self._server.lose_everything()
                new = job.feed(1)
                job.wait_for(new)
                times.append(job.delivered()[new] - lost)
                say(f"  {times[-1]:.2f} s")
            job.finish()
            again = taken_again(job.home)
        return {"snapshot_every": every, "seconds": statistics.median(times), "all": times, "epochs_again": again}

    # -- nothing fails

    def throughput(self) -> list[dict[str, Any]]:
        same, found = Same(), []
        for variant in self._args.variants:
            cached = variant.startswith("cache")
            for every in self._args.throughput_intervals if cached else [None]:
                speed = self._flow(variant, every, same)
                found.append({"variant": variant, "snapshot_every": every, "rows_per_second": speed})
                say(f"  {speed:.0f} rows/s")
        return found

    def _flow(self, variant: str, every: int | None, same: Same) -> float:
        args = self._args
        say(f"throughput: {variant}, snapshot every {every}")
        epochs, warm = args.throughput_epochs, args.throughput_warm
        settings = {
            "kind": "aggregation",
            "variant": variant,
            "pace": "1 millisecond",
            "last": epochs - 1,
            "master": "local[2,4]",
            "snapshot_every": every or NEVER,
            "redis": self._server.url,
        }
        with Job(PROGRAM, values(args.throughput_keys, args.throughput_rows, epochs), settings) as job:
            job.feed(epochs)
            job.start()
            job.wait_for(epochs - 1)
            at = job.delivered()
            job.finish()
            same.check(job, epochs)
        return float(args.throughput_rows * (epochs - warm) / (at[epochs - 1] - at[warm - 1]))


PROGRAM = (str(Path(__file__).parent / "cache_jobs.py"),)


class Same:
    """Sees that all jobs had the same at their sinks."""

    def __init__(self) -> None:
        self._first: dict[int, str] | None = None

    def check(self, job: Job, epochs: int) -> None:
        found = job.results()
        if sorted(found) != list(range(epochs)):
            raise SystemExit(f"of {epochs} epochs these came to the sink: {sorted(found)}")
        self._first = self._first or found
        wrong = [epoch for epoch in found if found[epoch] != self._first[epoch]]
        if wrong:
            raise SystemExit(f"the sink has other rows than in the first variant, in the epochs {wrong}")


class Stream:
    """One epoch with all the keys, then small ones that have some old ids among the new ones."""

    def __init__(self, keys: int, small: int) -> None:
        self.keys = keys
        self.epochs = 1 + small

    def new_id(self, epoch: int) -> int:
        """An id that a small epoch brings, and none before it."""
        return self.keys + (epoch - 1) * (SMALL - REPEATED)

    def tables(self) -> Iterator[pa.Table]:
        yield pa.table({"id": pa.array(range(self.keys), pa.int64())})
        for epoch in range(1, self.epochs):
            new = np.arange(self.new_id(epoch), self.new_id(epoch + 1))
            old = np.random.default_rng(epoch).integers(0, self.new_id(epoch), REPEATED)
            yield pa.table({"id": np.concatenate([new, old])})


def values(keys: int, rows: int, epochs: int) -> Iterator[pa.Table]:
    """Rows for the aggregation: keys that are drawn at random."""
    drawn = np.random.default_rng(1)
    for _ in range(epochs):
        yield pa.table({"k": drawn.integers(0, keys, rows), "value": drawn.integers(0, 1000, rows)})


def summary(variant: str, times: list[tuple[float, float]]) -> dict[str, Any]:
    seconds, through = ([pair[i] for pair in times] for i in (0, 1))
    return {
        "variant": variant,
        "seconds": statistics.median(seconds),
        "all": seconds,
        "all_through": statistics.median(through),
    }


def has_snapshot(home: Path, epoch: int) -> bool:
    from tidelock.home.home import Home
    from tidelock.log import EpochLog

    (name,) = operator_names(1)
    return any(covers.last == epoch for covers in EpochLog.open(Home(f"{home}/state").snapshots(name)).ranges())


def taken_again(home: Path) -> list[int]:
    """How many epochs were taken again after each loss of state."""
    from tidelock.home.home import Home

    lost = [event["text"] for event in Home(f"{home}/state").events() if event["kind"] == "state lost"]
    words = [text.rpartition("epochs ")[2].split() for text in lost]
    return [int(last) - int(first) + 1 for first, _, last, *_ in words]


if __name__ == "__main__":
    main()
