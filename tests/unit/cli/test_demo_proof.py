"""What the demo calls a proof: every epoch, every list, every count."""

from pathlib import Path
from typing import Any

import pytest

from tidelock.cli.demo.deliveries import Delivered, deliver, delivered
from tidelock.cli.demo.proof import comparison, expectation, words
from tidelock.cli.demo.settings import Settings
from tidelock.spark.demo import STOP_WORDS, TOP, VOCABULARY

SETTINGS = Settings(Path("/nowhere"), epochs=3, rows=50, seed=7)
EXPECTED = expectation(3, 50, 7)


def compared(found: dict[str, int], arrived: Delivered) -> dict[str, Any]:
    return comparison(SETTINGS, EXPECTED, found, arrived)


def test_a_tweet_is_made_of_known_words_and_depends_on_seed_and_number() -> None:
    texts = {(number, seed): list(words(number, seed)) for number in range(50) for seed in (1, 2)}
    assert {len(text) for text in texts.values()} <= set(range(1, 8))
    assert {word for text in texts.values() for word in text} <= set(VOCABULARY.split())
    assert texts[3, 1] == list(words(3, 1))
    assert texts[3, 1] != texts[3, 2]


def test_a_tweet_follows_the_description() -> None:
    # md5("42:3") = 3f473d2ed10aa31c881b3747f5b23aa7: 1 + 0x3aa7 % 7 = 1 word, that at 64 * (0x3f47 / 65536) ** 2
    assert list(words(3, 42)) == [VOCABULARY.split()[3]]


def test_the_expected_lists_grow_with_the_epochs() -> None:
    assert list(EXPECTED.rankings) == [0, 1, 2]
    assert all(len(ranking) == TOP for ranking in EXPECTED.rankings.values())
    assert not EXPECTED.counts.keys() & set(STOP_WORDS)
    assert EXPECTED.rankings[2] == sorted(EXPECTED.counts.items(), key=lambda entry: (-entry[1], entry[0]))[:TOP]


def test_the_same_is_equal() -> None:
    result = compared(dict(EXPECTED.counts), Delivered(dict(EXPECTED.rankings), again=1))
    assert result["equal"]
    assert (result["epochs"], result["tweets"], result["delivered_again"]) == (3, 150, 1)
    assert result["counts"] == EXPECTED.counts
    assert result["top"] == result["expected_top"]


def test_one_word_too_many_is_found() -> None:
    word = EXPECTED.rankings[2][0][0]
    result = compared({**EXPECTED.counts, word: EXPECTED.counts[word] + 1}, Delivered(dict(EXPECTED.rankings), 0))
    assert not result["equal"]
    assert result["differences"] == [
        {"word": word, "expected": EXPECTED.counts[word], "found": EXPECTED.counts[word] + 1}
    ]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [({0: [("moon", 1)]}, [0]), ({1: None}, [1]), ({3: [("moon", 1)]}, [3])],
    ids=["another list", "a missing epoch", "an epoch too many"],
)
def test_a_wrong_list_is_found(change: dict[int, Any], wrong: list[int]) -> None:
    rankings = {epoch: ranking for epoch, ranking in {**EXPECTED.rankings, **change}.items() if ranking}
    result = compared(dict(EXPECTED.counts), Delivered(rankings, 0))
    assert not result["equal"]
    assert result["wrong_epochs"] == wrong


def test_an_epoch_that_is_delivered_again_changes_nothing(tmp_path: Path) -> None:
    database = tmp_path / "trends.sqlite"
    assert delivered(database) == Delivered({}, 0)
    deliver(database, 0, [("moon", 2), ("tide", 1)])
    deliver(database, 1, [])
    deliver(database, 0, [("moon", 2), ("tide", 1)])
    assert delivered(database) == Delivered({0: [("moon", 2), ("tide", 1)], 1: []}, again=1)
