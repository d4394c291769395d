"""Whether every tweet counted exactly once: what the pipeline gave against a computation without Spark.

The expectation follows the description of a tweet in `tidelock.spark.demo` in plain Python. It shares the words
with the pipeline, and no code.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidelock.cli.demo.deliveries import Delivered, Ranking, delivered
from tidelock.cli.demo.settings import Settings
from tidelock.log import EpochLog
from tidelock.spark.demo import STOP_WORDS, TOP, VOCABULARY

Counts = Mapping[str, int]


@dataclass(frozen=True)
class Expectation:
    """What has to come out of so many epochs."""

    counts: Counts
    rankings: Mapping[int, Ranking]


def prove(settings: Settings, log: str) -> dict[str, Any]:
    """Compare the counts in the log ``log`` and the list of every epoch in the database with the expectation."""
    expected = expectation(settings.epochs, settings.rows, settings.seed)
    return comparison(settings, expected, last_counts(log), delivered(settings.database))


def expectation(epochs: int, rows: int, seed: int) -> Expectation:
    """Compute it all, tweet by tweet."""
    counts, rankings = Counter[str](), {}
    for epoch in range(epochs):
        for number in range(epoch * rows, (epoch + 1) * rows):
            counts.update(word for word in words(number, seed) if word not in STOP_WORDS)
        rankings[epoch] = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:TOP]
    return Expectation(counts, rankings)


def words(number: int, seed: int) -> Iterator[str]:
    """The words of one tweet."""
    vocabulary = VOCABULARY.split()
    digits = hashlib.md5(f"{seed}:{number}".encode()).hexdigest()
    for place in range(1 + int(digits[28:], 16) % 7):
        share = int(digits[4 * place : 4 * place + 4], 16) / 65536
        yield vocabulary[int(len(vocabulary) * share * share)]


def last_counts(url: str) -> dict[str, int]:
    """The count of every word in the newest epoch that changed it."""
    log, counts = EpochLog.open(url), dict[str, int]()
    for covers in log.ranges():
        for part in log.manifest(covers).parts:
            for batch in log.read_part(covers, part):
                counts.update(zip(batch["word"].to_pylist(), batch["count"].to_pylist(), strict=True))
    return counts


def comparison(settings: Settings, expected: Expectation, found: Counts, arrived: Delivered) -> dict[str, Any]:
    """What came out, and where it is not as expected."""
    order = sorted(expected.counts.keys() | found.keys(), key=lambda word: (-expected.counts.get(word, 0), word))
    differences = [
        {"word": word, "expected": expected.counts.get(word), "found": found.get(word)}
        for word in order
        if expected.counts.get(word) != found.get(word)
    ]
    epochs = sorted(expected.rankings.keys() | arrived.rankings.keys())
    wrong = [epoch for epoch in epochs if arrived.rankings.get(epoch) != expected.rankings.get(epoch)]
    return {
        "equal": not differences and not wrong,
        "epochs": len(arrived.rankings),
        "delivered_again": arrived.again,
        "tweets": settings.epochs * settings.rows,
        "total": sum(found.values()),
        "counts": {word: found[word] for word in order if word in found},
        "top": [list(entry) for entry in arrived.rankings.get(settings.epochs - 1, [])],
        "expected_top": [list(entry) for entry in expected.rankings[settings.epochs - 1]],
        "differences": differences,
        "wrong_epochs": wrong,
    }
