"""What is taken from Spark's events. That they look like this is seen on Spark in the integration tests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tidelock.spark.query.listening import BatchProgress, Listener

DOCUMENT: dict[str, Any] = {
    "id": "11111111-1111-1111-1111-111111111111",
    "runId": "22222222-2222-2222-2222-222222222222",
    "name": "job.words",
    "batchId": 7,
    "batchDuration": 250,
    "numInputRows": 40,
    "processedRowsPerSecond": 160.0,
    "stateOperators": [
        {"numRowsTotal": 3, "memoryUsedBytes": 100},
        {"numRowsTotal": 4, "memoryUsedBytes": 1000},
    ],
}


@dataclass
class Counted:
    """An object in Java: whatever it is called by gives ``answer``, and every call is counted."""

    answer: Any
    calls: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        def call() -> Any:
            self.calls.append(name)
            return self.answer

        return call


def test_an_event_is_two_calls_however_much_it_says() -> None:
    """Events wait for each other, and keep the plans of their batches in Java for as long."""
    found: list[BatchProgress] = []
    progress = Counted(json.dumps(DOCUMENT))
    event = Counted(progress)
    Listener(found.append, lambda run: None).onQueryProgress(event)
    assert found == [BatchProgress("22222222-2222-2222-2222-222222222222", 7, 40, 160.0, 0.25, 7, 1100)]
    assert (event.calls, progress.calls) == (["progress"], ["json"])


def test_a_batch_that_took_no_time_has_no_rate() -> None:
    found: list[BatchProgress] = []
    document = {name: value for name, value in DOCUMENT.items() if name != "processedRowsPerSecond"}
    Listener(found.append, lambda run: None).onQueryProgress(Counted(Counted(json.dumps(document))))
    assert found[0].rows_per_second == 0.0


def test_the_end_of_a_query_is_told_with_its_run() -> None:
    found: list[str] = []
    Listener(lambda progress: None, found.append).onQueryTerminated(Counted(Counted("a run")))
    assert found == ["a run"]
