"""State in a cache: the same results under every plan, whatever fails, and nothing is loaded after a failure."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.integration import faults
from tests.integration.pipelines import Bench, Rows, present
from tests.integration.streams import Place
from tests.redis_servers import PRIMARY, RedisServers
from tests.waiting import eventually

import tidelock
from tidelock import aggregates as A
from tidelock.backup.backup import Backup
from tidelock.backup.restore import restore
from tidelock.errors import PipelineError, SchemaMismatch
from tidelock.home.home import Home
from tidelock.running.run import Run

EPOCHS = 8
ROWS = 12
KEYS = 5
EACH = "200 milliseconds"


def numbers() -> list[list[dict[str, Any]]]:
    ids = [range(e * ROWS, (e + 1) * ROWS) for e in range(EPOCHS)]
    return [[{"id": i, "key": (i * 7 + i // 3) % KEYS} for i in some] for some in ids]


def totals() -> Rows:
    """What the sink is to see: for each epoch the keys of its rows, with everything so far."""
    seen: dict[int, list[int]] = {}
    expected: Rows = {}
    for epoch, rows in enumerate(numbers()):
        for row in rows:
            seen.setdefault(row["key"], []).append(row["id"])
        touched = sorted({row["key"] for row in rows})
        found = [(k, len(seen[k]), sum(seen[k]), sorted(seen[k])[:-4:-1]) for k in touched]
        expected[epoch] = sorted(found, key=repr)
    return expected


def summed(rows: DataFrame) -> DataFrame:
    return tidelock.keyed(rows, "key").aggregate(n=A.count(), total=A.sum("id"), best=A.top_k("id", 3))


@pytest.fixture
def bench(place: Place) -> Bench:
    made = Bench(place)
    made.feed("numbers", numbers())
    return made


def pipeline(bench: Bench, **care: Any) -> tuple[tidelock.Pipeline, Rows]:
    """numbers -> sums, whose state is in the cache, -> a sink."""
    made = tidelock.Pipeline("sums", epoch=EACH, **{"snapshot_every": 2, **care})
    bench.source(made, "numbers")

    @made.operator(mode="update")
    def sums(numbers: DataFrame) -> DataFrame:
        return summed(numbers)

    return made, bench.collect(made, "sums")


def events(home: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in Home(home).events() if event["kind"] == kind]


# -- results


@pytest.mark.parametrize("plan", ["one", pytest.param("each", marks=pytest.mark.chaos)])
def test_a_plan_does_not_change_results(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_url: str, plan: str
) -> None:
    made, kept = pipeline(bench)
    status = made.run(spark, tmp_path / "home", cache=redis_url, plan=plan, last_epoch=EPOCHS - 1)
    assert kept == totals()
    epoch, found = tidelock.cached_state(tmp_path / "home", "sums").lookup([{"key": 3}, {"key": 99}])
    assert epoch == EPOCHS - 1
    known = {row[0]: row for rows in totals().values() for row in rows}
    assert found.column("n.n").to_pylist() == [known[3][1], None]
    at, copied = tidelock.cached_state(tmp_path / "home", "sums").snapshot()
    then = {row[0]: row[2] for epoch, rows in totals().items() if epoch <= at for row in rows}
    assert dict(zip(copied.column("key").to_pylist(), copied.column("total.v").to_pylist(), strict=True)) == then
    segments = [list(segment.operators) for segment in status.segments]
    expected = {"one": [["numbers"], ["sums", "keep_sums"]], "each": [["numbers"], ["sums"], ["keep_sums"]]}
    assert segments == expected[plan]


def test_functions_of_the_user_and_two_operators_in_a_row(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_url: str
) -> None:
    made = tidelock.Pipeline("two", epoch=EACH)
    bench.source(made, "numbers")

    def first_of_pair(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        # Of every two numbers the first one passes, once.
        fresh = pc.fill_null(state.column("seen"), False).to_pylist()
        known = {pair for pair, seen in zip(state.column("pair").to_pylist(), fresh, strict=True) if seen}
        passed, taken = [], set(known)
        for row in sorted(rows.to_pylist(), key=lambda row: row["id"]):
            if row["pair"] not in taken:
                taken.add(row["pair"])
                passed.append(row)
        output = pa.Table.from_pylist(passed, schema=rows.schema)
        return output, pa.table({"pair": state.column("pair"), "seen": pa.array([True] * state.num_rows)})

    def counted(rows: Any, state: Any) -> tuple[Any, Any]:
        # Until its third row a key has state; then it begins anew.
        counts = (
            state.set_index("key")["n"].fillna(0).add(rows.groupby("key").size(), fill_value=0).astype("int64")
        )
        output = counts.rename("n").reset_index()
        return output, output[output["n"] < 3]

    @made.operator
    def firsts(numbers: DataFrame) -> DataFrame:
        pairs = numbers.withColumn("pair", F.expr("(id + 1) div 2"))
        output = "id long, key long, pair long"
        return tidelock.keyed(pairs, "pair").apply(first_of_pair, state="seen boolean", output=output)

    @made.operator(mode="update")
    def counts(firsts: DataFrame) -> DataFrame:
        return tidelock.keyed(firsts, "key").apply(counted, state="n long", output="key long, n long", pandas=True)

    kept = bench.collect(made, "counts")
    made.run(spark, tmp_path / "home", cache=redis_url, last_epoch=EPOCHS - 1)

    expected: Rows = {}
    seen: set[int] = set()
    state: dict[int, int] = {}
    for epoch, rows in enumerate(numbers()):
        passed = [row for row in rows if (row["id"] + 1) // 2 not in seen and not seen.add((row["id"] + 1) // 2)]
        for row in passed:
            state[row["key"]] = state.get(row["key"], 0) + 1
        expected[epoch] = sorted(((k, state[k]) for k in {row["key"] for row in passed}), key=repr)
        state = {k: n for k, n in state.items() if n < 3}
    assert kept == expected


def test_state_ends_in_event_time(spark: SparkSession, bench: Bench, tmp_path: Path, redis_url: str) -> None:
    """Against a model: the watermark moves with each epoch; late rows are dropped, ended state is forgotten."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    minutes = [[0, 1], [3, 2], [4, 0, 9], [5, 12, 11], [7, 13], [30, 4], [31, 29], [33, 18]]
    rows = [
        [{"key": m % 3, "at": start + timedelta(minutes=m), "id": e * 10 + i} for i, m in enumerate(some)]
        for e, some in enumerate(minutes)
    ]
    bench.feed(
        "events", rows, pa.schema([("key", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("id", pa.int64())])
    )
    made = tidelock.Pipeline("ends", epoch=EACH, snapshot_every=2)
    bench.source(made, "events", lambda stream: stream.withWatermark("at", "3 minutes"))

    @made.operator(mode="update")
    def counts(events: DataFrame) -> DataFrame:
        return tidelock.keyed(events, "key", expire_after="5 minutes").aggregate(n=A.count())

    kept = bench.collect(made, "counts")
    made.run(spark, tmp_path / "home", cache=redis_url, last_epoch=len(rows) - 1)

    expected: Rows = {}
    state: dict[int, tuple[int, float]] = {}
    watermark = float("-inf")
    newest = float("-inf")
    for epoch, some in enumerate(minutes):
        state = {k: (n, end) for k, (n, end) in state.items() if end > watermark}
        touched = set()
        for m in (m for m in some if m > watermark):
            n, end = state.get(m % 3, (0, float("-inf")))
            state[m % 3] = n + 1, max(end, m + 5)
            touched.add(m % 3)
        expected[epoch] = sorted(((k, state[k][0]) for k in touched), key=repr)
        newest = max(newest, *some)
        watermark = newest - 3
    assert kept == expected
    assert len({n for some in expected.values() for _, n in some}) > 2, "the model has something to tell"


# -- failures


def test_only_the_failed_operator_restarts_and_each_epoch_counts_once(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_url: str
) -> None:
    killed, raised = tmp_path / "killed", tmp_path / "raised"
    made = tidelock.Pipeline("sums", epoch=EACH, snapshot_every=3)
    bench.source(made, "numbers")

    @made.operator(mode="update", anchor=True)
    def sums(numbers: DataFrame) -> DataFrame:
        # Behind the state: when it fails, the cells of the epoch are written already.
        changed = summed(faults.at_row(numbers, 30, killed, 1, faults.killing()))
        return faults.at_row(changed, 3, raised, 4, faults.raising("no more threes"), column="key")

    @made.operator(anchor=True)
    def passed(sums: DataFrame) -> DataFrame:
        return sums

    kept = bench.collect(made, "passed")
    status = made.run(spark, tmp_path / "home", cache=redis_url, plan="each", last_epoch=EPOCHS - 1)
    assert (faults.happened(killed), faults.happened(raised)) == (1, 4)
    assert kept == totals()
    restarts = {s.name: s.restarts for s in status.segments}
    assert restarts == {"numbers": 0, "sums": 1, "passed": 0, "keep_passed": 0}


@pytest.mark.chaos
def test_several_operators_fail_at_once_and_the_last_one_alone(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_url: str
) -> None:
    made = tidelock.Pipeline("chain", epoch=EACH, snapshot_every=3)
    bench.source(made, "numbers")

    def failing(rows: DataFrame, name: str, *ids: int) -> DataFrame:
        for identity in ids:
            counter = tmp_path / f"{name}-{identity}"
            rows = faults.at_row(rows, identity, counter, 4, faults.raising(f"{name} fails"))
        return rows

    def passing(rows: DataFrame) -> DataFrame:
        """The rows that were never seen, which are all of them: every operator knows every id."""
        return tidelock.keyed(rows, "id").apply(never_seen, state="seen boolean", output="id long, key long")

    def never_seen(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        known = state.filter(pc.fill_null(state.column("seen"), False)).column("id")
        fresh = rows.filter(pc.invert(pc.is_in(rows.column("id"), value_set=known)))
        return fresh.select(["id", "key"]), state.set_column(1, "seen", pa.repeat(True, state.num_rows))

    @made.operator
    def first(numbers: DataFrame) -> DataFrame:
        return failing(passing(numbers), "first", 30)

    @made.operator
    def second(first: DataFrame) -> DataFrame:
        return failing(passing(first), "second", 30)

    @made.operator
    def third(second: DataFrame) -> DataFrame:
        return failing(passing(second), "third", 30, 70)

    kept = bench.collect(made, "third")
    status = made.run(spark, tmp_path / "home", cache=redis_url, plan="each", last_epoch=EPOCHS - 1)
    assert [sorted(row[0] for row in kept[e]) for e in range(EPOCHS)] == [
        [row["id"] for row in rows] for rows in numbers()
    ]
    restarts = {s.name: s.restarts for s in status.segments}
    assert restarts == {"numbers": 0, "first": 1, "second": 1, "third": 2, "keep_third": 0}


@pytest.mark.chaos
def test_another_process_goes_on_where_the_state_is(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_url: str
) -> None:
    made, first = pipeline(bench)
    made.run(spark, tmp_path / "home", cache=redis_url, last_epoch=4)
    made, second = pipeline(bench)
    made.run(spark, tmp_path / "home", last_epoch=EPOCHS - 1)
    assert {**first, **second} == totals()
    assert not events(tmp_path / "home", "state lost")


def test_a_cache_that_comes_back_empty_is_filled_from_a_snapshot(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_servers: RedisServers, started: list[Run]
) -> None:
    server = redis_servers.start()
    made, kept = pipeline(bench, max_pending_epochs=4)
    home = tmp_path / "home"
    run = made.start(spark, home, cache=f"{server.url}/sums?timeout=1", last_epoch=EPOCHS - 1)
    started.append(run)
    eventually(lambda: len(kept) >= 6, "six epochs are through")
    server.restart(empty=True)
    assert run.wait(150)
    assert kept == totals()
    assert events(home, "state lost")
    assert f"{KEYS} keys, as of epoch" in events(home, "state loaded")[-1]["text"]
    assert {s.name: s.restarts > 0 for s in run.status().segments} == {
        "numbers": False,
        "keep_sums": True,
    }


@pytest.mark.chaos
def test_without_a_snapshot_all_is_computed_again(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_servers: RedisServers
) -> None:
    server = redis_servers.start()
    made, first = pipeline(bench, snapshot_every=1000)
    made.run(spark, tmp_path / "home", cache=f"{server.url}/sums", last_epoch=3)
    server.restart(empty=True)
    made, second = pipeline(bench, snapshot_every=1000)
    made.run(spark, tmp_path / "home", last_epoch=EPOCHS - 1)
    assert {**first, **second} == totals()
    (lost,) = events(tmp_path / "home", "state lost")
    assert "keep_sums from epoch 0 (4 epochs)" in lost["text"]


@pytest.mark.chaos
def test_a_cache_that_comes_back_with_its_data_loses_nothing(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_servers: RedisServers, started: list[Run]
) -> None:
    server = redis_servers.start(appendonly="yes", appendfsync="always")
    made, kept = pipeline(bench)
    run = made.start(spark, tmp_path / "home", cache=f"{server.url}/sums?timeout=1", last_epoch=EPOCHS - 1)
    started.append(run)
    eventually(lambda: len(kept) >= 4, "four epochs are through")
    server.restart()
    assert run.wait(150)
    assert kept == totals()
    assert not events(tmp_path / "home", "state lost")


@pytest.mark.chaos
def test_a_cache_that_comes_back_with_older_data_goes_back_to_them(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_servers: RedisServers
) -> None:
    server = redis_servers.start(dbfilename="dump.rdb")
    made, first = pipeline(bench, snapshot_every=1000)
    made.run(spark, tmp_path / "home", cache=f"{server.url}/sums", last_epoch=2)
    with server.client() as client:
        client.save()
    made, second = pipeline(bench, snapshot_every=1000)
    made.run(spark, tmp_path / "home", last_epoch=5)
    server.restart()
    made, third = pipeline(bench, snapshot_every=1000)
    made.run(spark, tmp_path / "home", last_epoch=EPOCHS - 1)
    assert {**first, **second, **third} == totals()
    (lost,) = events(tmp_path / "home", "state lost")
    assert "keep_sums from epoch 3 (3 epochs)" in lost["text"]


@pytest.mark.chaos
def test_a_replica_takes_over(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_servers: RedisServers, started: list[Run]
) -> None:
    primary = redis_servers.start()
    redis_servers.replica(primary)
    sentinel = redis_servers.sentinel(primary)
    made, kept = pipeline(bench)
    cache = f"redis://{sentinel.address}/0/sums?sentinel={PRIMARY}&timeout=2"
    run = made.start(spark, tmp_path / "home", cache=cache, last_epoch=EPOCHS - 1)
    started.append(run)
    eventually(lambda: len(kept) >= 3, "three epochs are through")
    primary.kill()
    assert run.wait(150)
    assert kept == totals()


@pytest.mark.chaos
def test_two_failovers_that_lose_the_take_over_of_a_run_do_not_end_it(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_servers: RedisServers, started: list[Run]
) -> None:
    primary = redis_servers.start()
    replica = redis_servers.replica(primary)
    made, first = pipeline(bench, snapshot_every=1000)
    made.run(spark, tmp_path / "home", cache=f"{primary.url}/sums?timeout=2", last_epoch=1)
    primary.copied(replica)
    made, second = pipeline(bench, snapshot_every=1000)
    run = made.start(spark, tmp_path / "home", last_epoch=EPOCHS - 1)
    started.append(run)
    eventually(lambda: len(second) >= 2, "two more epochs are through")
    primary.fall_back_to(replica)
    assert run.wait(150)
    assert {**first, **second} == totals()
    assert events(tmp_path / "home", "state lost")


@pytest.mark.chaos
def test_a_server_that_hangs_is_waited_for(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_servers: RedisServers, started: list[Run]
) -> None:
    server = redis_servers.start()
    made, kept = pipeline(bench)
    run = made.start(spark, tmp_path / "home", cache=f"{server.url}/sums?timeout=1", last_epoch=EPOCHS - 1)
    started.append(run)
    eventually(lambda: len(kept) >= 3, "three epochs are through")
    server.pause()
    eventually(lambda: events(tmp_path / "home", "outage"), "the outage is noticed")
    server.resume()
    assert run.wait(150)
    assert kept == totals()


@pytest.mark.chaos
def test_a_backup_has_the_state(
    spark: SparkSession, bench: Bench, tmp_path: Path, redis_url: str, started: list[Run]
) -> None:
    backup = f"file:{tmp_path}/backup"
    made, first = pipeline(bench)
    made.run(spark, tmp_path / "home", cache=f"{redis_url}/here", backup=backup, last_epoch=6)
    Backup(Home(tmp_path / "home"), backup).copy()  # how far the copies came meanwhile depends on the machine
    shutil.rmtree(tmp_path / "home")
    restored = restore(backup, Home(tmp_path / "elsewhere"))
    assert restored.segments["keep_sums"].restored in range(2, 6), "it goes on from a snapshot"

    made, second = pipeline(bench)
    with pytest.raises(tidelock.TidelockError, match="holds the state of another home"):
        made.run(spark, tmp_path / "elsewhere")
    made, second = pipeline(bench)
    started.append(made.start(spark, tmp_path / "elsewhere", cache=f"{redis_url}/there"))
    # Spark's file source may make fewer epochs of what it has seen before; the sums are the same.
    newest = present(totals(), EPOCHS)
    eventually(lambda: present({**first, **second}, EPOCHS) == newest, "every row is counted once")
    assert events(tmp_path / "elsewhere", "state loaded")


# -- mistakes


def test_what_a_user_may_get_wrong(spark: SparkSession, bench: Bench, tmp_path: Path, redis_url: str) -> None:
    made, _ = pipeline(bench)
    with pytest.raises(PipelineError, match=r"sums keeps its state in a cache: say where that is, with --cache"):
        made.run(spark, tmp_path / "home")
    with pytest.raises(PipelineError, match=r"no cache for .*: the scheme must be one of redis:, rediss:"):
        made.run(spark, tmp_path / "home", cache="memcached://localhost")
    with pytest.raises(PipelineError, match="outside of a pipeline"):
        tidelock.keyed(spark.range(3), "id")
    made.run(spark, tmp_path / "home", cache=redis_url, last_epoch=0)
    other, _ = pipeline(bench)
    with pytest.raises(tidelock.TidelockError, match="holds the state of another home"):
        other.run(spark, tmp_path / "other", cache=redis_url, last_epoch=0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda rows: tidelock.keyed(rows).aggregate(n=A.count()), "needs the columns that make the key"),
        (lambda rows: tidelock.keyed(rows, "kee").aggregate(n=A.count()), "there is no column kee"),
        (lambda rows: tidelock.keyed(rows, "key").aggregate(), "aggregate needs aggregations"),
        (lambda rows: tidelock.keyed(rows, "key").aggregate(key=A.count()), "key is a key and cannot be the name"),
        (lambda rows: tidelock.keyed(rows, "key").aggregate(n=A.sum("text")), "takes whole and floating numbers"),
        (lambda rows: tidelock.keyed(rows, "key").aggregate(n=A.sum("idd")), "there is no column idd"),
        (
            lambda rows: tidelock.keyed(rows, "key", expire_after="1 hour").aggregate(n=A.count()),
            "needs a watermark",
        ),
        (
            lambda rows: tidelock.keyed(rows, "key").apply(print, state="map<string,int>", output="n long"),
            "which Spark cannot read",
        ),
        (
            lambda rows: tidelock.keyed(rows, "key").apply(print, state="m map<string,int>", output="n long"),
            "which cannot be kept in a cache",
        ),
        (
            lambda rows: tidelock.keyed(rows, "key").apply(print, state="key long", output="n long"),
            "key is a key: it is with the state anyway",
        ),
    ],
)
def test_a_declaration_that_cannot_be(
    bench: Bench, spark: SparkSession, tmp_path: Path, build: Any, message: str
) -> None:
    made = tidelock.Pipeline("wrong")
    bench.source(made, "numbers", lambda stream: stream.withColumn("text", F.lit("x")))

    @made.operator(mode="update")
    def sums(numbers: DataFrame) -> DataFrame:
        return build(numbers)

    bench.collect(made, "sums")
    with pytest.raises((PipelineError, SchemaMismatch), match=message):
        made.run(spark, tmp_path / "home")
