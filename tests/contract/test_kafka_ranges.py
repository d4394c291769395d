"""Ranges of a topic are read whole, or it is told which of their records are missing: a real broker."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from tests.kafka_servers import KafkaServer
from tests.kafka_topics import Topic

from tidelock.alignment.cutting import Cutter
from tidelock.errors import LogCorrupt, PipelineError
from tidelock.kafka import ranges
from tidelock.kafka.brokers import Brokers, MissingRecords, MissingTopic, connect
from tidelock.kafka.continuity import Span
from tidelock.kafka.location import parse_servers
from tidelock.kafka.ranges import read_range
from tidelock.log import EpochLog
from tidelock.log.json_records import describe_columns
from tidelock.spark.topics.source import TopicStream


@pytest.fixture
def topic(kafka_server: KafkaServer) -> Topic:
    return Topic(kafka_server)


@pytest.fixture
def brokers(kafka_server: KafkaServer) -> Brokers:
    return connect(parse_servers(f"kafka://{kafka_server.address}?timeout=4"))


def numbers(brokers: Brokers, topic: Topic, first: int, last: int, identity: str | None = None) -> list[int]:
    some = read_range(brokers, "here", Span(topic.name, 0, first, last), identity)
    return [json.loads(message.value())["n"] for found in some for message in found]


def test_a_range_that_is_there_is_read_whole(
    topic: Topic, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "_AT_ONCE", 3)
    topic.write(range(10))
    assert numbers(brokers, topic, 0, 9, brokers.identity(topic.name)) == list(range(10))
    assert numbers(brokers, topic, 4, 6) == [4, 5, 6], "without an identity nothing is compared"


def test_records_dropped_before_they_are_read(topic: Topic, brokers: Brokers) -> None:
    topic.write(range(10))
    topic.drop_before(4)
    with pytest.raises(
        LogCorrupt, match=rf"records from 2 to 3 of partition 0 of the topic {topic.name} are gone"
    ):
        numbers(brokers, topic, 2, 9)
    with pytest.raises(LogCorrupt, match="records from 0 to 3 of partition 0 of the topic"):
        numbers(brokers, topic, 0, 2)
    assert numbers(brokers, topic, 4, 9) == [4, 5, 6, 7, 8, 9]


def test_records_dropped_while_they_are_read(
    topic: Topic, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "_AT_ONCE", 3)
    topic.write(range(10))
    some = read_range(brokers, "here", Span(topic.name, 0, 0, 9), None)
    assert len(next(some)) == 3
    topic.drop_before(5)
    with pytest.raises(
        LogCorrupt, match=r"here: the records from 3 to 4 of partition 0 .* let the topic keep more"
    ):
        next(some)


@pytest.mark.parametrize("left", [0, 3, 8, 9])
def test_a_topic_that_ends_before_the_range_does(topic: Topic, brokers: Brokers, left: int) -> None:
    """As after its brokers have lost the newest records. No identity is known, as in offsets of 0.1.0."""
    topic.write(range(left))
    lost = max(left, 3)
    with pytest.raises(
        LogCorrupt,
        match=rf"partition 0 of the topic {topic.name} ends at offset {lost}, and the records from {lost} to 9",
    ):
        numbers(brokers, topic, 3, 9)


def test_a_topic_that_was_made_again(topic: Topic, brokers: Brokers) -> None:
    topic.write(range(5))
    old = brokers.identity(topic.name)
    assert numbers(brokers, topic, 0, 4, old) == [0, 1, 2, 3, 4]
    topic.make_again()
    topic.write(range(100, 120))
    new = brokers.identity(topic.name)
    with pytest.raises(LogCorrupt, match=re.escape(f"since it was read: its id was {old} and is {new}")):
        numbers(brokers, topic, 0, 4, old)
    with pytest.raises(LogCorrupt, match="was deleted and made again"):
        numbers(brokers, topic, 10, 40, old)
    assert numbers(brokers, topic, 5, 6, new) == [105, 106]


def test_a_topic_that_is_gone(topic: Topic) -> None:
    brokers = connect(parse_servers(f"kafka://{topic.servers}?timeout=2"))
    topic.write(range(5))
    old = brokers.identity(topic.name)
    assert numbers(brokers, topic, 0, 1, old) == [0, 1]
    topic.delete()
    with pytest.raises(LogCorrupt, match=f"the topic {topic.name} was read before and is gone"):
        numbers(brokers, topic, 2, 4, old)
    with pytest.raises(MissingTopic):
        brokers.identity(topic.name)


def test_what_a_range_lacks_is_raised_where_it_is_read(topic: Topic, brokers: Brokers) -> None:
    topic.write(range(6))
    topic.drop_before(2)
    with pytest.raises(MissingRecords) as gone:
        brokers.read(topic.name, 0, 1, 5)
    assert (gone.value.at, gone.value.low, gone.value.end) == (1, 2, 6)
    with pytest.raises(MissingRecords) as gone:
        brokers.read(topic.name, 0, 4, 6)
    assert (gone.value.at, gone.value.low, gone.value.end) == (6, 2, 6)


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Brokers that have just started: three times they know no topic, and then all that there are."""
    asked: list[str] = []
    identity = Brokers.identity

    def asking(brokers: Brokers, topic: str) -> str | None:
        asked.append(topic)
        if len(asked) <= 3:
            raise MissingTopic(topic)
        return identity(brokers, topic)

    monkeypatch.setattr(Brokers, "identity", asking)
    return asked


def test_brokers_that_do_not_know_the_topic_yet_when_it_is_read(
    topic: Topic, brokers: Brokers, forgetful: list[str]
) -> None:
    topic.write(range(5))
    assert numbers(brokers, topic, 0, 4) == [0, 1, 2, 3, 4]
    assert len(forgetful) == 4


def test_brokers_that_do_not_know_the_topic_yet_when_a_batch_is_planned(
    topic: Topic, brokers: Brokers, forgetful: list[str]
) -> None:
    topic.write(range(5))
    stream = TopicStream({"servers": brokers.location.url, "topic": topic.name}, StructType())
    start = {"topic": topic.name, "offsets": [2]}
    assert stream.latestOffset(start, ReadAllAvailable())["offsets"] == [5]
    forgetful.clear()
    stream.prepareForTriggerAvailableNow()
    assert stream.latestOffset(start, ReadAllAvailable())["offsets"] == [5]
    forgetful.clear()
    with pytest.raises(PipelineError, match="there is no topic"):
        stream.initialOffset()  # nobody has seen it so far


def test_the_first_batch_begins_where_it_was_planned_to_begin(topic: Topic, brokers: Brokers) -> None:
    """Spark asks anew where a query begins until its first batch is finished; the topic may have moved on."""
    topic.write(range(5))
    options = {"servers": brokers.location.url, "topic": topic.name}
    stream = TopicStream(options, StructType())
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    for dropped in (3, 5):
        topic.drop_before(dropped)
        again = TopicStream(options, StructType())
        assert again.initialOffset()["offsets"] == [dropped]
        (share,) = again.partitions(again.initialOffset(), end)
        assert (share.first, share.end) == (0, 5)
    old = {name: value for name, value in end.items() if name != "from"}  # as 0.1.0 has written it
    topic.write(range(5, 9))
    topic.drop_before(7)
    with pytest.raises(LogCorrupt, match=r"records from 5 to 6 .* are gone"):
        again.partitions(again.initialOffset(), old)


def test_what_comes_behind_a_batch_that_is_planned_does_not_belong_to_it(topic: Topic, brokers: Brokers) -> None:
    topic.write(range(5))
    stream = TopicStream({"servers": brokers.location.url, "topic": topic.name}, StructType())
    first = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert stream.latestOffset(first, ReadAllAvailable()) == first, "nothing is new"
    topic.write(range(5, 7))
    second = stream.latestOffset(first, ReadAllAvailable())
    (share,) = stream.partitions(first, second)
    assert (share.first, share.end) == (5, 7)


def test_the_end_of_a_drain_is_not_before_its_beginning(topic: Topic, brokers: Brokers) -> None:
    """What is there is asked for before a new query asks where it begins: behind that, on a busy topic."""
    topic.write(range(5))
    stream = TopicStream(
        {"servers": brokers.location.url, "topic": topic.name, "starting": "latest"}, StructType()
    )
    stream.prepareForTriggerAvailableNow()
    topic.write(range(5, 9))
    start = stream.initialOffset()
    assert start["offsets"] == [9]
    assert stream.latestOffset(start, ReadAllAvailable())["offsets"] == [9]


def test_brokers_that_do_not_know_the_topic_yet_when_it_is_cut(
    topic: Topic, brokers: Brokers, forgetful: list[str], tmp_path: Path
) -> None:
    topic.write(range(5))
    log = EpochLog.create(f"file:{tmp_path}/cuts", describe_columns("n long"))
    forgetful.extend(["asked before"] * 3)
    cutter = Cutter(log, brokers.location, topic.name)
    assert cutter.cut() == 5
    topic.write(range(5, 7))
    forgetful.clear()
    assert cutter.cut() == 2


def test_a_topic_that_comes_back_while_it_is_asked_for(
    topic: Topic, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.write(range(5))
    assert numbers(brokers, topic, 0, 4) == [0, 1, 2, 3, 4]
    topic.delete()
    pause, back = time.sleep, []

    def coming_back(seconds: float) -> None:
        pause(seconds)
        if not back:
            back.append(True)
            topic.make()
            topic.write(range(10, 15))

    monkeypatch.setattr(time, "sleep", coming_back)
    assert numbers(brokers, topic, 0, 4) == [10, 11, 12, 13, 14]
    assert back
