"""What this machine takes for the things that a plan is made of: commits, restarts, bytes of logs and of state."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tidelock.errors import BatchFailed
from tidelock.home.home import Home
from tidelock.log import EpochLog
from tidelock.measuring.rehearsing import Played, Stage
from tidelock.pipeline.declaration import Declaration
from tidelock.recovery import Policy
from tidelock.spark.frames import DataFrame, SparkSession
from tidelock.spark.query import calibration
from tidelock.spark.query.listening import BatchProgress, recent

_LAST_LARGE = calibration.LARGE_EPOCHS[-1]
_RESTARTS = range(_LAST_LARGE + 2, _LAST_LARGE + 5)
_EPOCHS = _LAST_LARGE + 8
_TASK_ATTEMPTS = 4
_PLAIN_BATCHES = 8


@dataclass(frozen=True)
class MachineTimes:
    """Measured times, in seconds and per byte.

    Attributes:
        log_write: Writing a byte into a log.
        log_read: Reading it again.
        state_load: Loading a byte of state.
        commit: A batch of a segment with almost nothing in it.
        plain_commit: The same of a query without logs.
        restart: From the first failure of a batch with almost nothing in it to its commit.
    """

    log_write: float
    log_read: float
    state_load: float
    commit: float
    plain_commit: float
    restart: float


def calibrate(spark: SparkSession, folder: Path, tell: Callable[[str], None]) -> MachineTimes:
    """Measure this machine with a pipeline that is made for it; ``tell`` is told what is being done."""
    switch = folder / "switch"
    switch.mkdir(parents=True)
    stage = Stage(_pipeline(switch), spark, Home(folder / "home"), "each")
    last = _EPOCHS - 1
    tell("epochs of known sizes")
    stage.play(["numbers"], last)
    tell("writing and reading logs")
    passed = stage.play(["passed"], last)["passed"]
    reading = stage.play(["read"], last)["read"]
    size = _sizes(stage.home.log("numbers"))
    read = max(0.0, _large(reading) - _small(reading)) / size
    write = max(0.0, _large(passed) - _small(passed) - read * size) / size
    tell("loading state")
    with calibration.few_partitions(spark):
        load = _load(stage)
    tell("failing and restarting")
    restart = _restart(stage, switch)
    tell("a plain query")
    return MachineTimes(
        log_write=write,
        log_read=read,
        state_load=load,
        commit=_small(passed),
        plain_commit=_plain(spark, folder / "plain"),
        restart=restart,
    )


def _pipeline(switch: Path) -> Declaration:
    pipeline = Declaration("calibration", epoch="1 millisecond")
    pipeline.source(calibration.numbers)

    @pipeline.operator
    def passed(numbers: DataFrame) -> DataFrame:
        return numbers

    @pipeline.operator
    def fragile(passed: DataFrame) -> DataFrame:
        return calibration.fragile(passed, switch)

    @pipeline.operator(mode="update")
    def counts(passed: DataFrame) -> DataFrame:
        return calibration.counts(passed)

    for node, name in (("passed", "read"), ("fragile", "taken"), ("counts", "counted")):
        pipeline.console(node, name=name)
    return pipeline.rehearsal()


def _sizes(log: str) -> float:
    """The bytes of a large epoch."""
    found = EpochLog.open(log)
    return median(found.manifest(covers).size for covers in found.ranges() if _is_large(covers.last))


def _is_large(epoch: int) -> bool:
    return epoch in calibration.LARGE_EPOCHS


def _large(played: Played) -> float:
    """A large batch; the first one has to warm up."""
    return median(one.seconds for one in _ordered(played) if one.rows >= calibration.ROWS)


def _small(played: Played) -> float:
    return median(one.seconds for one in _ordered(played) if 0 < one.rows < calibration.ROWS)


def _ordered(played: Played) -> list[BatchProgress]:
    return [one for one in played.batches if one.rows][1:]


def _load(stage: Stage) -> float:
    """The time to load a byte of state: restarts with state against restarts without."""
    counted = stage.play(["counts"], _LAST_LARGE + 1)["counts"]
    with_state = [stage.play(["counts"], epoch)["counts"].first_commit for epoch in _RESTARTS]
    stage.play(["fragile"], _LAST_LARGE + 1)
    without = [stage.play(["fragile"], epoch)["fragile"].first_commit for epoch in _RESTARTS]
    size = max(one.state_bytes for one in counted.batches)
    return max(0.0, median(with_state) - _small(counted) - median(without)) / size


def _restart(stage: Stage, switch: Path) -> float:
    """From the first failure on, with the delay of the supervisor; the batch itself does not count."""
    for number in range(_TASK_ATTEMPTS):
        (switch / str(number)).touch()
    try:
        stage.play(["fragile"], _RESTARTS[-1] + 1)
    except BatchFailed:
        if any(switch.iterdir()):
            raise
    else:
        raise BatchFailed("a failure that was asked for did not happen: the machine cannot be measured")
    failed = _since_first(switch)
    again = stage.play(["fragile"], _EPOCHS - 1)["fragile"]
    return failed + Policy().delay(1) + again.first_commit - _small(again)


def _since_first(switch: Path) -> float:
    """How long ago the first attempt failed."""
    return time.time() - calibration.first_failure(switch).stat().st_mtime


def _plain(spark: SparkSession, folder: Path) -> float:
    query = calibration.plain_query(spark, str(folder))
    try:
        while query.isActive and len(recent(query)) < _PLAIN_BATCHES:
            time.sleep(0.05)
        return median(one.seconds for one in recent(query)[2:])
    finally:
        query.stop()
