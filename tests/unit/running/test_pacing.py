from __future__ import annotations

from tidelock.measuring.profiling import Flow, silent_operators
from tidelock.running.pacing import BatchPace


def told(pace: BatchPace, seconds: list[float]) -> list[str]:
    said = [pace.look("counts", 1.0 + place, one) for place, one in enumerate(seconds)]
    return [one for one in said if one is not None]


def test_batches_that_keep_taking_too_long_are_told_once() -> None:
    (said,) = told(BatchPace({"counts": 0.2}), [0.223] * 50)
    assert said.startswith("the last 20 batches of counts took 0.223 s each, and one is due every 0.2 s")
    assert "at least 0.27 s" in said


def test_a_slow_batch_now_and_then_is_no_matter() -> None:
    assert told(BatchPace({"counts": 0.2}), ([0.3] * 19 + [0.1]) * 5) == []


def test_a_batch_that_is_looked_at_twice_counts_once() -> None:
    pace = BatchPace({"counts": 0.2})
    assert [pace.look("counts", 1.0, 0.3) for _ in range(50)] == [None] * 50


def test_an_operator_with_event_time_that_passed_on_nothing_is_warned_of() -> None:
    flows = {"windows": Flow(0.0, 0.0, 0.2, counted=6), "late": Flow(2.5, 40.0, 0.2, counted=6)}
    (said,) = silent_operators(flows)
    assert said.startswith("windows follows event time and passed on no row in the 6 epochs that were counted")


def test_batches_that_wait_for_room_are_not_too_slow() -> None:
    pace = BatchPace({"counts": 0.2})
    for batch in range(100):
        assert pace.look("counts", 1.0 + batch, 0.3) is None
        if batch % 10 == 0:
            assert pace.look("counts", 1.0 + batch, 0.3, waits=True) is None
