"""What `tidelock demo` runs on Spark, one process each: the two queries, and the check of their result.

Tweets are made from numbers, with no randomness but the seed: the digits of ``md5("<seed>:<number>")`` choose the
words. So a replayed source gives the same tweets, and anybody can compute the expected counts in any language.

A process stops when its standard input ends. Whoever started it asks for that by closing the pipe, and if that
process dies the pipe closes by itself: no query is left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tidelock.epochs import BEFORE_FIRST
from tidelock.errors import LogNotFound
from tidelock.log import EpochLog
from tidelock.spark.reading import read_log
from tidelock.spark.schema import describe
from tidelock.spark.session import session
from tidelock.spark.sink import write_log

VOCABULARY = (
    "the moon tide sea rain storm harbour wind wave boat light night sun cloud shore sail anchor fog gull salt "
    "reef bay coast current deep drift ebb flood foam gale ice island kelp lagoon mast mist north oar ocean pearl "
    "pier port quay river rope sand shell ship south spray star stone surf swell thunder trade voyage water west "
    "whale winter wreck yacht zenith"
)
"""The words of all tweets, the most frequent first."""

Counts = dict[str, int]

_EPOCH_EVERY = "1 second"


def tweets(numbers: DataFrame, seed: int) -> DataFrame:
    """A column ``text`` with one tweet of 1 to 7 words for every number in the column ``value``.

    Of the 32 hexadecimal digits of the number's hash, the last four choose how many words the tweet has, and
    every other four choose a word: squaring their share of 65536 prefers the front of the vocabulary.
    """
    share = "conv(substr(digits, 4 * i - 3, 4), 16, 10) / 65536D"
    word = f"vocabulary[int({len(VOCABULARY.split())} * share * share)]"
    return (
        numbers.selectExpr(f"md5(concat_ws(':', {seed}, value)) AS digits")
        .selectExpr(
            "sequence(1, 1 + int(conv(substr(digits, 29, 4), 16, 10)) % 7) AS places",
            "digits",
            f"split('{VOCABULARY}', ' ') AS vocabulary",
        )
        .selectExpr(f"transform(places, i -> {share}) AS shares", "vocabulary")
        .selectExpr(f"array_join(transform(shares, share -> {word}), ' ') AS text")
    )


def words(texts: DataFrame) -> DataFrame:
    """One row with a column ``word`` for every word of every text."""
    return texts.select(F.explode(F.split("text", " ")).alias("word"))


def count(stream: DataFrame) -> DataFrame:
    """How often each word has come so far."""
    return stream.groupBy("word").count()


# -- the first process: tweets to words


def write_words(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """Start the query that writes the words of all tweets to the log ``words``, an epoch every second."""
    return write_log(
        _all_words(spark, options),
        options.words,
        checkpoint=options.checkpoint,
        trigger={"processingTime": _EPOCH_EVERY},
    )


def _all_words(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", options.rows)
        .option("numPartitions", 1)
        .option("startTimestamp", 0)
        .option("advanceMillisPerBatch", 1000)
        .load()
    )
    return words(tweets(numbers, options.seed))


def _run_words(spark: SparkSession, options: argparse.Namespace, stop: threading.Event) -> None:
    log = EpochLog.create(options.words, describe(_all_words(spark, options).schema))
    # A slow machine starts the second process late; the kill is to come while this one still writes.
    while log.cursor(options.consumer) is None:
        if stop.wait(0.1):
            return
    _run_until(write_words(spark, options), stop, lambda: _newest(log) >= options.epochs - 1)


# -- the second process: words to counts


def write_counts(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    """Start the query that reads the log ``words`` and writes what changed in every epoch to ``counts``."""
    stream = read_log(spark, options.words, consumer=options.consumer)
    return write_log(
        count(stream),
        options.counts,
        checkpoint=options.checkpoint,
        mode="update",
        trigger={"processingTime": "0 seconds"},
    )


def _run_counts(spark: SparkSession, options: argparse.Namespace, stop: threading.Event) -> None:
    while not _exists(options.words):
        if stop.wait(0.1):
            return
    _run_until(write_counts(spark, options), stop, lambda: False)


def _exists(url: str) -> bool:
    try:
        EpochLog.open(url)
    except LogNotFound:
        return False
    return True


# -- the third process: the proof


def check(expected: Counts, found: Counts) -> dict[str, Any]:
    """What the counts are, and where they are not as expected."""
    order = sorted(expected.keys() | found.keys(), key=lambda word: (-expected.get(word, 0), word))
    return {
        "total": sum(found.values()),
        "counts": {word: found[word] for word in order if word in found},
        "differences": [
            {"word": word, "expected": expected.get(word), "found": found.get(word)}
            for word in order
            if expected.get(word) != found.get(word)
        ],
    }


def count_in_one_batch(spark: SparkSession, tweeted: int, seed: int) -> Counts:
    """The counts over the first ``tweeted`` tweets, without a stream and without a log."""
    numbers = spark.range(tweeted).withColumnRenamed("id", "value")
    return {row["word"]: row["count"] for row in count(words(tweets(numbers, seed))).collect()}


def last_counts(spark: SparkSession, log: str) -> Counts:
    """The count of every word in the newest epoch that changed it."""
    changes = spark.read.format("tidelock").option("log", log).option("epochColumn", "epoch").load()
    latest = changes.groupBy("word").agg(F.max_by("count", "epoch").alias("count"))
    return {row["word"]: row["count"] for row in latest.collect()}


def _run_check(spark: SparkSession, options: argparse.Namespace, stop: threading.Event) -> None:
    log = EpochLog.open(options.words)
    newest, tweeted = _newest(log), _tweets_taken(log)
    expected = count_in_one_batch(spark, tweeted, options.seed)
    while log.cursors().get(options.consumer, BEFORE_FIRST) < newest:
        if stop.wait(0.1):
            return
    proof = check(expected, last_counts(spark, options.counts))
    epochs = _newest(EpochLog.open(options.counts)) + 1
    options.result.write_text(json.dumps({"epochs": epochs, "tweets": tweeted, **proof}), encoding="utf-8")


def _tweets_taken(log: EpochLog) -> int:
    """How many tweets went into the log ``words``: its newest entry says where the source stood."""
    newest = log.manifest(log.ranges()[-1])
    return int(newest.offsets[0]["offset"])


# -- what all three share


def _session(options: argparse.Namespace) -> SparkSession:
    spark = session(f"tidelock demo: {options.role}", master="local[2,4]", settings=_settings(options.scratch))
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _end(spark: SparkSession) -> None:
    """Stop Spark and wait for its JVM, which would otherwise outlive this process for a moment."""
    jvm: Any = spark.sparkContext._gateway
    spark.stop()
    jvm.proc.stdin.close()
    jvm.proc.wait()


def _settings(scratch: Path) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Three JVMs share the machine for a minute: compiling well would cost more than it brings.
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir='{scratch}'",
        # A killed JVM cannot clean up: what it leaves behind stays in one place. A socket's path must be short.
        "spark.python.unix.domain.socket.enabled": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch),
    }


def _run_until(query: StreamingQuery, stop: threading.Event, done: Callable[[], bool]) -> None:
    while query.isActive and not done():
        if stop.wait(0.1):
            break
    failure = query.exception()
    if failure is not None:
        raise failure
    query.stop()


def _newest(log: EpochLog) -> int:
    ranges = log.ranges()
    return ranges[-1].last if ranges else -1


def _end_of_input() -> threading.Event:
    """An event that is set when standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the three processes until it is done or its standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m tidelock.spark.demo", allow_abbrev=False)
    parser.add_argument("role", choices=("words", "counts", "check"))
    for name in ("--words", "--counts", "--consumer", "--checkpoint"):
        parser.add_argument(name)
    for name in ("--epochs", "--rows", "--seed"):
        parser.add_argument(name, type=int)
    for name in ("--scratch", "--result"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args(argv)
    run = {"words": _run_words, "counts": _run_counts, "check": _run_check}[options.role]
    stop, spark = _end_of_input(), _session(options)
    try:
        run(spark, options, stop)
    finally:
        _end(spark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
