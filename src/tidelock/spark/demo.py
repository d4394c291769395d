"""What the demo needs of Spark: tweets that can be made again, and code that dies when it is told to.

Tweets are made from numbers, with no randomness but the seed: the digits of ``md5("<seed>:<number>")`` choose the
words. So a replayed source gives the same tweets, and anybody can compute the expected counts in any language.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the words are also needed where no Spark is
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

VOCABULARY = (
    "the moon tide sea rain storm harbour wind wave boat light night sun cloud shore sail anchor fog gull salt "
    "reef bay coast current deep drift ebb flood foam gale ice island kelp lagoon mast mist north oar ocean pearl "
    "pier port quay river rope sand shell ship south spray star stone surf swell thunder trade voyage water west "
    "whale winter wreck yacht zenith"
)
"""The words of all tweets, the most frequent first."""
STOP_WORDS = ("the", "deep", "north", "south", "west")
"""The words that never trend."""
TOP = 5
"""How many words trend."""


def numbers(spark: SparkSession, rows: int) -> DataFrame:
    """A stream with a column ``value``: batch 0 has the first ``rows`` numbers from 0 on, batch 1 the next."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows)
        .option("numPartitions", 1)
        .option("startTimestamp", 0)
        .option("advanceMillisPerBatch", 1000)
        .load()
    )


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


def most_frequent(counts: DataFrame) -> DataFrame:
    """The most frequent words of a stream of changed counts, in complete mode.

    A count only grows, so the largest one of a word is its newest.
    """
    from pyspark.sql import functions as F

    newest = counts.groupBy("word").agg(F.max("count").alias("count"))
    return newest.orderBy(F.desc("count"), "word").limit(TOP)


def mortal(rows: DataFrame, switch: Path) -> DataFrame:
    """The same rows, handed through Python: for every file in the folder ``switch`` one worker dies of SIGKILL.

    A worker takes a file away before it dies. So the files are the number of deaths that are still to come, and
    as many of them as Spark tries a task make the query fail once.
    """

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import signal

        for token in sorted(switch.glob("*")):
            token.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    return rows.mapInArrow(pass_on, rows.schema)
