"""Jobs that share epochs: each goes on by itself, and they agree on where they are."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.integration.pipelines import Bench
from tests.integration.streams import Place
from tests.integration.subjects import Deliveries, HandMade, abort, align
from tests.waiting import eventually

import tidelock
from tidelock.alignment.directory import Directory
from tidelock.alignment.machine import AlignmentState
from tidelock.cli import main
from tidelock.coordination import open_tree
from tidelock.errors import BatchFailed, PipelineError
from tidelock.following.merging import BEHIND
from tidelock.home.home import Home
from tidelock.running.run import Run

EACH = "100 milliseconds"
SLOWLY = "30 seconds"


@pytest.fixture
def subject(tmp_path: Path, coordinator: str) -> HandMade:
    return HandMade(tmp_path / "subjects", "made.numbers", coordinator)


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path, started: list[Run]) -> Callable[..., Run]:
    def start(pipeline: tidelock.Pipeline, **more: Any) -> Run:
        run = pipeline.start(spark, tmp_path / pipeline.name, **more)
        started.append(run)
        return run

    return start


def following(name: str, subject: str, epoch: str = EACH, *, aligned: bool = False) -> tidelock.Pipeline:
    pipeline = tidelock.Pipeline(name, epoch=epoch)
    pipeline.subscribe(subject, aligned=aligned)
    return pipeline


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_a_running_job_is_aligned_and_let_go_again(
    subject: HandMade, start: Callable[..., Run], coordinator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = following("follower", subject.name, "1 second")
    kept = Deliveries().attach(job, "numbers")
    subject.publish([1], [2], [3])
    start(job)
    kept.wait_for(3)
    assert list(kept.epochs) == [2], "unaligned it takes what is there"

    aligning = threading.Thread(target=align, args=(coordinator, "follower"))
    aligning.start()
    told = [answer(capsys, "subjects", "show", subject.name)["consumers"][0]["state"]]
    while aligning.is_alive():  # the epoch from which on it is aligned has to come
        subject.publish([len(subject.published) + 1])
        kept.wait_for(len(subject.published))
        aligning.join(0.2)
    told.append(answer(capsys, "subjects", "show", subject.name)["consumers"][0]["state"])
    assert told[1] == "aligned"
    before = len(subject.published)
    subject.publish([7], [8], [9])
    kept.wait_for(before + 3)
    assert list(kept.epochs)[-3:] == [before, before + 1, before + 2], "aligned it takes each epoch for itself"

    assert abort(coordinator, "follower").state is AlignmentState.UNALIGNED
    subject.publish([10], [11], [12])
    kept.wait_for(before + 6)
    assert len([epoch for epoch in kept.epochs if epoch > before + 2]) < 3, "and then what is there again"
    assert kept.rows() == sorted((n,) for some in subject.published for n in some), "everything exactly once"


def test_a_run_leaves_its_declaration_as_it_was(tmp_path: Path, start: Callable[..., Run]) -> None:
    tree = f"embedded:{tmp_path}/tree.db"
    subject = HandMade(tmp_path / "subjects", "made.numbers", tree)
    job = following("follower", subject.name)
    kept = Deliveries().attach(job, "numbers")
    declared = {name: copy(value) for name, value in vars(job).items()}
    subject.publish([1])
    start(job, coordinator=tree)
    kept.wait_for(1)
    assert vars(job) == declared


def test_two_jobs_side_by_side_are_at_the_same_epochs(subject: HandMade, start: Callable[..., Run]) -> None:
    """The sum and the average of figures 4.1 to 4.3: at every epoch both have read the same."""
    sums, averages = (following(name, subject.name, SLOWLY, aligned=True) for name in ("sums", "averages"))

    @sums.operator(mode="complete")
    def total(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy().agg(F.sum("n"))

    @averages.operator(mode="complete")
    def mean(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy().agg(F.avg("n"), F.count("*"))

    totals, means = Deliveries().attach(sums, "total"), Deliveries().attach(averages, "mean")
    start(sums)
    start(averages)
    for epoch in range(5):
        subject.publish([epoch, epoch * 10])
    for found in (totals, means):
        eventually(lambda found=found: len(found.epochs) == 5, "all epochs have arrived")
    for epoch in range(5):
        read = [n for some in subject.published[: epoch + 1] for n in some]
        assert totals.epochs[epoch] == [(sum(read),)]
        assert means.epochs[epoch] == [(sum(read) / len(read), len(read))]


def test_who_comes_late_gives_what_it_would_have_given_in_time(
    spark: SparkSession, subject: HandMade, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More epochs are there than a batch would merge; merged, no row would be late."""
    epochs = [[e * 10, e * 10 - 35] if e > 3 else [e * 10] for e in range(BEHIND + 2)]
    subject.publish(*epochs)
    job = following("windows", subject.name, SLOWLY, aligned=True)

    @job.operator
    def counts(numbers: DataFrame) -> DataFrame:
        timed = numbers.select(F.timestamp_seconds("n").alias("at")).withWatermark("at", "5 seconds")
        return timed.groupBy(F.window("at", "10 seconds")).count().select(F.unix_seconds("window.start"), "count")

    kept = Deliveries().attach(job, "counts")
    job.run(spark, tmp_path / "windows", last_epoch=len(epochs) - 1)
    assert list(kept.epochs) == list(range(len(epochs))), "one batch for each epoch"
    assert kept.rows() == [(start, 1) for start in range(0, 10 * (len(epochs) - 3), 10)], "late rows do not count"
    (consumer,) = answer(capsys, "subjects", "show", subject.name)["consumers"]
    assert (consumer["state"], consumer["epochs_per_batch"]) == ("aligned", 1)
    assert consumer["one_by_one"] == "what is late for counts is judged batch by batch"


def test_a_chain_of_jobs_and_one_that_many_follow(
    place: Place, start: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures 4.4 to 4.7 and 4.17: the second job reads the sums of the first, a third one as well."""
    bench = Bench(place)
    bench.feed("numbers", [[{"id": epoch}] for epoch in range(6)])
    first = tidelock.Pipeline("first", epoch=EACH)
    bench.source(first, "numbers")

    @first.operator(mode="complete")
    def running(numbers: DataFrame) -> DataFrame:
        return numbers.groupBy().agg(F.sum("id").alias("total"))

    first.publish("running", subject="first.sums")
    start(first)
    eventually(lambda: (place.home / "first/logs/running/log.json").exists(), "the subject is there")
    seconds = []
    for name in ("second", "third"):
        job = following(name, "first.sums", SLOWLY, aligned=True)
        seconds.append(Deliveries().attach(job, "sums"))
        start(job)
    for kept in seconds:
        eventually(lambda kept=kept: len(kept.epochs) == 6, "all epochs have arrived")
        assert kept.epochs == {epoch: [(sum(range(epoch + 1)),)] for epoch in range(6)}

    def mapping() -> list[Any]:
        facts = answer(capsys, "subjects", "show", "first.sums")
        return [(e["epoch"], e["state"], e["taken_by"]) for e in facts["epochs"]]

    same = [([e, e], "committed", {"second": [e, e], "third": [e, e]}) for e in range(6)]
    eventually(lambda: mapping() == same, "it is told which epochs belong together")
    (listed,) = answer(capsys, "subjects")["subjects"]
    assert (listed["producers"], listed["consumers"], listed["newest"]) == (["first"], ["second", "third"], 5)


def test_one_job_takes_agreed_epochs_of_two_subjects(
    tmp_path: Path, coordinator: str, start: Callable[..., Run]
) -> None:
    one, two = (HandMade(tmp_path / "subjects", f"made.{name}", coordinator) for name in ("one", "two"))
    jobs = []
    for name in ("left", "right"):
        job = tidelock.Pipeline(name, epoch=SLOWLY, alignment_patience=2.0)
        job.subscribe("made.one", aligned=True)
        job.subscribe("made.two", aligned=True)

        @job.operator
        def both(one: DataFrame, two: DataFrame) -> DataFrame:
            return one.select(F.lit("one").alias("from"), "n").union(two.select(F.lit("two"), "n"))

        jobs.append(Deliveries().attach(job, "both"))
        start(job)
    for epoch in range(3):
        one.publish([epoch])
        two.publish([epoch])
        for kept in jobs:
            kept.wait_for(2 * epoch + 2)
    for kept in jobs:
        assert list(kept.epochs.values())[-3:] == [[("one", e), ("two", e)] for e in range(3)]

    # Different rates: what the fast one has goes with the epoch of the slow one, and nothing is left behind.
    one.publish([3], [4], [5])
    two.publish([3])
    for kept in jobs:
        kept.wait_for(10)
    # And one that is silent is not waited for.
    one.publish([6])
    for kept in jobs:
        kept.wait_for(11)
        assert kept.rows() == sorted([("one", e) for e in range(7)] + [("two", e) for e in range(4)])
    assert jobs[0].epochs == jobs[1].epochs, "both jobs went through the same positions"


def test_a_job_with_a_source_of_its_own_does_not_stop_for_a_silent_subject(
    place: Place, subject: HandMade, start: Callable[..., Run]
) -> None:
    bench = Bench(place)
    bench.feed("own", [[{"n": 100 + epoch}] for epoch in range(6)])
    job = tidelock.Pipeline("mixed", epoch=EACH, alignment_patience=1.0)
    bench.source(job, "own")
    job.subscribe(subject.name, aligned=True)

    @job.operator
    def both(own: DataFrame, numbers: DataFrame) -> DataFrame:
        return own.union(numbers)

    kept = Deliveries().attach(job, "both")
    subject.publish([1], [2])
    run = start(job)
    kept.wait_for(8)
    assert kept.rows() == [(1,), (2,), *((100 + e,) for e in range(6))]
    run.stop()
    assert run.wait(60)


def test_several_jobs_produce_one_subject(
    place: Place, start: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures 5.8 to 5.10: an epoch of the subject is there when the part of every producer is."""
    bench, shared = Bench(place), f"file:{place.home}/shared"
    for number, name in enumerate(("left", "right")):
        bench.feed(name, [[{"id": number * 100}]])
        job = tidelock.Pipeline(name, epoch=EACH, alignment_patience=60.0)
        bench.source(job, name)
        job.publish(name, subject="both.numbers", shared=shared, producers=2)
        start(job)
    job = following("reader", "both.numbers", SLOWLY, aligned=True)
    kept = Deliveries().attach(job, "numbers")
    start(job)
    kept.wait_for(2)

    bench.feed("right", [[{"id": 101}]])

    def newest() -> dict[str, Any]:
        facts = answer(capsys, "subjects", "show", "both.numbers")
        assert [p["job"] for p in facts["producers"]] == ["left", "right"]
        return dict(facts["epochs"][-1])

    eventually(lambda: newest()["state"] == "pre-committed", "the part of one producer is there")
    assert newest()["made_from"] == [{"log": "left", "epochs": None}, {"log": "right", "epochs": [1, 1]}]
    assert kept.rows() == [(0,), (100,)], "nobody sees it yet"
    bench.feed("left", [[{"id": 1}]])
    kept.wait_for(4)
    assert kept.epochs[1] == [(1,), (101,)]
    assert newest()["state"] == "committed"


def test_a_follower_that_is_beyond_a_subject_that_was_put_back_stops_and_another_one_goes_on(
    subject: HandMade, start: Callable[..., Run], spark: SparkSession, tmp_path: Path
) -> None:
    """A subject whose store has lost epochs publishes them again, perhaps cut otherwise."""
    subject.publish([1], [2])
    job = following("slow", subject.name)
    slow = Deliveries().attach(job, "numbers")
    run = start(job)
    slow.wait_for(2)
    run.stop()
    assert run.wait(60)
    subject.publish([3], [4])
    job = following("fast", subject.name)
    fast = Deliveries().attach(job, "numbers")
    run = start(job)
    fast.wait_for(4)

    subject.put_back(1)
    subject.publish([3, 4], [5], [6])
    with pytest.raises(BatchFailed, match=r"cannot be retried.*behind 1 were lost.* up to 3 already.*new home"):
        run.wait(60)
    assert fast.rows() == [(1,), (2,), (3,), (4,)], "nothing twice, and nothing left out"
    stream = spark.readStream.format("tidelock").options(log=subject.log.url, startingEpoch="earliest").load()
    for _ in range(2):  # a new reader, and the same one again
        query = stream.writeStream.option("checkpointLocation", f"{tmp_path}/checkpoint").format("parquet")
        query = query.trigger(availableNow=True).start(f"{tmp_path}/read")
        assert query.awaitTermination(60)
        subject.publish([7])
    assert sorted(row.n for row in spark.read.parquet(f"{tmp_path}/read").collect()) == [1, 2, 3, 4, 5, 6, 7]
    job = following("slow", subject.name)
    slow.attach(job, "numbers")
    start(job)
    slow.wait_for(8)
    assert slow.rows() == [(n,) for n in (1, 2, 3, 4, 5, 6, 7, 7)]


def test_what_cannot_be(
    subject: HandMade, start: Callable[..., Run], spark: SparkSession, tmp_path: Path, capsys: Any, place: Place
) -> None:
    bench = Bench(place)
    bench.feed("own", [[{"n": 1}]])
    first = following("first", subject.name)
    first.publish("numbers", subject="first.numbers")
    start(first)
    second = following("second", "first.numbers")
    second.publish("numbers", subject="second.numbers")
    start(second)

    closing = tidelock.Pipeline("first", epoch=EACH)
    closing.subscribe("second.numbers")
    closing.publish("numbers", subject="first.numbers")
    with pytest.raises(PipelineError, match="a job first runs already"):
        closing.start(spark, tmp_path / "elsewhere")
    third = following("third", subject.name)
    third.publish("numbers", subject="first.numbers")
    with pytest.raises(PipelineError, match=r"first\.numbers is published by first already"):
        third.start(spark, tmp_path / "third")
    fourth = following("fourth", "nobody.knows")
    fourth.console("knows")
    with pytest.raises(PipelineError, match=r"there is no subject nobody\.knows"):
        fourth.start(spark, tmp_path / "fourth")

    assert main(["align", "nobody"]) == 2
    assert "there is no job nobody" in capsys.readouterr().err
    assert main(["align", "second", "--with", "made.numbers"]) == 2
    assert "job second does not follow made.numbers: it follows first.numbers" in capsys.readouterr().err
    assert main(["subjects", "show", "made.letters"]) == 2
    assert "Published so far: first.numbers, made.numbers, second.numbers" in capsys.readouterr().err


def test_jobs_that_would_follow_each_other_are_refused(
    subject: HandMade, start: Callable[..., Run], spark: SparkSession, tmp_path: Path, coordinator: str
) -> None:
    first = following("first", subject.name)
    first.publish("numbers", subject="first.numbers")
    run = start(first)
    second = following("second", "first.numbers")
    second.publish("numbers", subject="second.numbers")
    start(second)
    run.stop(drain=False)
    assert run.wait(60)
    again = tidelock.Pipeline("first", epoch=EACH)
    again.subscribe("second.numbers")
    again.publish("numbers", subject="first.numbers")
    with pytest.raises(PipelineError, match=r"first ─first\.numbers─▶ second ─second\.numbers─▶ first"):
        again.start(spark, tmp_path / "other")
    assert Home(tmp_path / "other").is_held() is False
    with open_tree(coordinator) as tree:
        assert not Directory(tree).is_alive("first"), "nothing is left of it"


def test_a_job_goes_on_aligned_after_it_was_stopped(
    subject: HandMade, start: Callable[..., Run], coordinator: str
) -> None:
    job = following("follower", subject.name, "200 milliseconds")
    kept = Deliveries().attach(job, "numbers")
    subject.publish([1])
    run = start(job)
    kept.wait_for(1)
    aligning = threading.Thread(target=align, args=(coordinator, "follower"))
    aligning.start()
    while aligning.is_alive():
        subject.publish([len(subject.published) + 1])
        kept.wait_for(len(subject.published))
        aligning.join(0.2)
    run.stop()
    assert run.wait(60)
    before = len(subject.published)
    subject.publish([7], [8], [9])
    start(job)
    kept.wait_for(before + 3)
    assert list(kept.epochs)[-3:] == [before, before + 1, before + 2]
    assert kept.rows() == sorted((n,) for some in subject.published for n in some)
