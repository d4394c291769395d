"""Declaring a pipeline: what is remembered, and what is refused with a sentence that helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidelock
from tidelock.alignment.directory import Directory, Subject
from tidelock.coordination import open_tree
from tidelock.errors import LogNotFound, PipelineError
from tidelock.home.home import Home, Record, SegmentRecord


def declared() -> tidelock.Pipeline:
    pipeline = tidelock.Pipeline("job")

    @pipeline.source
    def lines(spark: Any) -> Any: ...

    @pipeline.operator
    def words(lines: Any, spark: Any) -> Any: ...

    @pipeline.operator(mode="update", anchor=True, failure_rate=0.1)
    def counts(words: Any) -> Any: ...

    @pipeline.sink
    def store(counts: Any, epoch: int) -> None: ...

    return pipeline


def test_parameters_wire_the_graph() -> None:
    topology = declared().topology()
    assert [(node.name, node.inputs) for node in topology.nodes] == [
        ("lines", ()),
        ("words", ("lines",)),
        ("counts", ("words",)),
        ("store", ("counts",)),
    ]
    counts = topology.node("counts")
    assert (counts.mode, counts.anchor, counts.failure_rate) == ("update", True, 0.1)


def test_decorators_leave_functions_as_they_are() -> None:
    pipeline = tidelock.Pipeline("job")

    def lines(spark: Any) -> Any: ...

    assert pipeline.source(lines) is lines


def test_a_typing_error_is_answered_with_the_nearest_name() -> None:
    pipeline = declared()

    @pipeline.operator
    def top(count: Any) -> Any: ...

    pipeline.console("top")
    with pytest.raises(PipelineError, match=r"top has a parameter 'count'.*did you mean 'counts'"):
        pipeline.topology()


def test_sinks_for_files_and_the_console_are_nodes() -> None:
    pipeline = declared()
    pipeline.files("words", epochs=3)
    pipeline.console("counts", name="screen")
    topology = pipeline.topology()
    assert topology.node("words_files").epochs_per_batch == 3
    assert topology.node("screen").inputs == ("counts",)


def test_a_subject_and_a_feedback_are_declared_once() -> None:
    pipeline = declared()
    pipeline.publish("counts", subject="job.counts", keep_epochs=7)
    assert pipeline.topology().node("counts").subject == "job.counts"
    assert pipeline.retention("counts").epochs == 7
    assert pipeline.retention("words").epochs is None
    with pytest.raises(PipelineError, match="counts is published twice"):
        pipeline.publish("counts", subject="job.again")
    pipeline.feedback("counts", schema="word string")
    with pytest.raises(PipelineError, match="declared twice"):
        pipeline.feedback("counts", schema="word string")


def test_publishing_what_is_not_there() -> None:
    pipeline = declared()
    pipeline.publish("sums", subject="job.sums")
    with pytest.raises(PipelineError, match="sums is published, but there is no source or operator"):
        pipeline.topology()


def test_a_source_takes_the_session_and_nothing_else() -> None:
    pipeline = tidelock.Pipeline("job")

    def lines(path: str) -> Any: ...

    with pytest.raises(PipelineError, match=r"def lines\(spark\)"):
        pipeline.source(lines)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"on_poison": "ignore"}, "'stop' or 'dead-letter'"),
        ({"attempts": 0}, "at least one attempt, not 0"),
        ({"outage_patience": -1.0}, "outage is -1.0 s"),
        ({"max_pending_epochs": 0}, "max_pending_epochs is 0"),
    ],
)
def test_options_that_make_no_sense(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        tidelock.Pipeline("job", **wrong)
    with pytest.raises(PipelineError, match="name of a pipeline"):
        tidelock.Pipeline("a job")


def test_following_a_subject_that_nobody_publishes(tmp_path: Path) -> None:
    pipeline = tidelock.Pipeline("follower")
    pipeline.subscribe("job.counts", home=str(tmp_path))
    assert pipeline.functions.keys() == {"counts"}
    with pytest.raises(PipelineError, match="is not the home of a pipeline"):
        pipeline.functions["counts"](None)
    segments = (SegmentRecord("words", ("words",), (), f"file:{tmp_path}/logs/words"),)
    Home(tmp_path).remember(Record("job", {}, {}, segments, {"job.words": f"file:{tmp_path}/logs/words"}))
    with pytest.raises(PipelineError, match=r"does not publish job\.counts: it publishes job\.words"):
        pipeline.functions["counts"](None)


def test_a_subject_is_looked_up_in_the_tree_that_is_named(tmp_path: Path) -> None:
    here, elsewhere = (f"embedded:{tmp_path}/{name}.db" for name in ("here", "elsewhere"))
    with open_tree(here) as tree:
        lost = Subject("job.counts", f"file:{tmp_path}/lost", {}, shared=False)
        Directory(tree).publish(lost, "job", lost.endpoint)
    pipeline = tidelock.Pipeline("follower")
    pipeline.subscribe("job.counts")
    with pytest.raises(LogNotFound):
        pipeline.functions_at(here)["counts"](None)
    for tree_url in (elsewhere, None):
        with pytest.raises(PipelineError, match=r"there is no subject job\.counts"):
            pipeline.functions_at(tree_url)["counts"](None)
