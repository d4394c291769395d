"""The rules of a log in Kafka, one by one."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from tidelock.log.stores import kafka_state
from tidelock.log.stores.kafka_state import DONE, EXISTS, FENCED, LOST, VOID, TopicRecord, TopicState, Verdict


class Topic:
    """Records in their order, and the state behind them."""

    def __init__(self) -> None:
        self.records: list[TopicRecord] = []
        self.state = TopicState()
        self._numbers: dict[str, int] = {}

    def add(self, op: str, payload: bytes = b"", client: str = "a", **fields: Any) -> Verdict:
        self._numbers[client] = self._numbers.get(client, -1) + 1
        return self.land(TopicRecord(client, self._numbers[client], op, fields, payload))

    def land(self, record: TopicRecord) -> Verdict:
        self.records.append(record)
        return self.state.apply(len(self.records) - 1, TopicRecord.decode(record.encode()))

    def replayed(self, start: int = 0) -> TopicState:
        state = TopicState(known=start == 0, next=start)
        for offset in range(start, len(self.records)):
            state.apply(offset, self.records[offset])
        return state


@pytest.fixture
def topic() -> Topic:
    return Topic()


def publish(topic: Topic, token: int, first: int, last: int, **more: Any) -> Verdict:
    who = {"token": token, "mark": topic.state.mark, "newest": None, **more}
    return topic.add("publish", b"m", covers=[first, last], **who)


def test_doctests() -> None:
    result = doctest.testmod(kafka_state)
    assert (result.failed, result.attempted > 0) == (0, True)


def test_the_first_to_create_does(topic: Topic) -> None:
    assert topic.add("create", b"one", name="log").word == DONE
    assert topic.add("create", b"two", client="b", name="log").word == EXISTS
    assert topic.state.documents == {"log": b"one"}


def test_a_record_that_comes_twice_counts_once(topic: Topic) -> None:
    topic.add("put", b"one", name="x")
    topic.add("put", b"two", name="x")
    assert topic.land(topic.records[0]).word == VOID
    assert topic.state.documents == {"x": b"two"}


def test_a_record_that_was_given_up_and_passed_is_void(topic: Topic) -> None:
    topic.land(TopicRecord("a", 1, "put", {"name": "x"}, b"new"))
    assert topic.land(TopicRecord("a", 0, "put", {"name": "x"}, b"old")).word == VOID
    assert topic.state.documents == {"x": b"new"}


def test_a_newer_writer_voids_the_older_one(topic: Topic) -> None:
    assert topic.add("take", owner="one") == Verdict(DONE, "1")
    mark = topic.state.mark
    assert publish(topic, 1, 0, 0).word == DONE
    assert topic.add("take", client="b", owner="two") == Verdict(DONE, "2")
    assert publish(topic, 1, 1, 1, mark=mark) == Verdict(FENCED, "two")
    assert topic.add("unpublish", token=1, mark=mark, newest=0, ranges=[[0, 0]]).word == FENCED
    assert topic.state.covers == [(0, 0)]


def test_the_same_token_of_another_life_is_not_ours(topic: Topic) -> None:
    topic.add("take", owner="one")
    assert publish(topic, 1, 0, 0, mark="of before the loss").word == FENCED


def test_what_a_writer_knows_and_the_log_does_not_is_lost(topic: Topic) -> None:
    assert publish(topic, 1, 3, 3) == Verdict(LOST, "")
    topic.add("take", owner="one")
    publish(topic, 1, 0, 2)
    assert publish(topic, 1, 5, 5, newest=4) == Verdict(LOST, "0-2")
    assert publish(topic, 1, 3, 3, newest=2).word == DONE


def test_the_same_epochs_are_published_once(topic: Topic) -> None:
    topic.add("take", owner="one")
    assert [publish(topic, 1, 0, 0).word, publish(topic, 1, 0, 0, newest=None).word] == [DONE, EXISTS]


def test_a_part_is_there_when_it_has_ended(topic: Topic) -> None:
    topic.add("begin", name="p", partition=2)
    assert topic.state.parts["p"].runs is None
    topic.add("end", name="p", attempt="a:0", runs=[[5, 2], [9, 1]], bytes=7)
    assert topic.state.parts["p"].runs == ((5, 2), (9, 1))
    assert topic.state.needed() == {2: 5}


def test_a_part_that_was_removed_before_its_end_stays_removed(topic: Topic) -> None:
    topic.add("begin", name="p", partition=0)
    topic.add("remove", client="b", names=["p"])
    assert topic.add("end", name="p", attempt="a:0", runs=[[0, 1]], bytes=7).word == VOID
    assert topic.state.parts == {}


def test_an_attempt_abandons_only_itself(topic: Topic) -> None:
    topic.add("begin", name="p", partition=0)
    topic.add("begin", client="b", name="p", partition=1)
    assert topic.add("end", name="p", attempt="a:0", runs=[[0, 1]], bytes=7).word == VOID
    assert topic.add("abandon", name="p", attempt="a:0").word == VOID
    topic.add("end", client="b", name="p", attempt="b:0", runs=[[0, 1]], bytes=7)
    assert topic.add("begin", name="p", partition=3).word == EXISTS
    assert topic.state.parts["p"].attempt == "b:0"


def test_space_is_needed_from_where_a_part_under_way_began(topic: Topic) -> None:
    for name, at in (("one", 0), ("two", 10)):
        topic.add("begin", name=name, partition=0)
        attempt = f"a:{topic.records[-1].number}"
        topic.add("end", name=name, attempt=attempt, runs=[[at, 10]], bytes=1)
    topic.add("begin", name="three", partition=0)
    topic.add("remove", names=["one"])
    assert topic.state.needed() == {0: 10}
    topic.add("remove", names=["two"])
    assert topic.state.needed() == {0: 20}
    topic.add("begin", name="four", partition=0)
    topic.add("end", name="four", attempt=f"a:{topic.records[-1].number}", runs=[[30, 10]], bytes=1)
    topic.add("remove", names=["four"])
    assert topic.state.needed() == {0: 20}, "the third may have written there meanwhile"


def test_an_empty_part_needs_nothing(topic: Topic) -> None:
    topic.add("begin", name="p", partition=0)
    topic.add("end", name="p", attempt="a:0", runs=[], bytes=0)
    assert topic.state.needed() == {0: 0}


def test_a_snapshot_stands_for_what_was_before(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_state, "_PIECE", 40)
    topic.add("put", bytes(range(256)), name="x")
    topic.add("take", owner="ö")
    publish(topic, 1, 0, 4)
    pieces = topic.state.snapshot()
    assert len(pieces) > 3
    for piece in pieces:
        assert topic.land(piece).word == DONE
    topic.add("put", b"behind", name="y")
    assert topic.replayed(3) == topic.replayed() == topic.state
    assert topic.replayed(1) == topic.state, "some of the older records came back"
    assert not topic.replayed(4).known
    assert topic.state.since == 1


def test_a_snapshot_that_something_came_between_is_void(topic: Topic) -> None:
    topic.add("put", b"one", name="x")
    (late,) = topic.state.snapshot()
    topic.add("put", b"two", name="x")
    assert topic.land(late).word == VOID
    assert not topic.replayed(2).known
    assert topic.state.documents == {"x": b"two"}


def test_records_of_later_releases_change_nothing(topic: Topic) -> None:
    assert topic.add("surprise", name="x").word == VOID


@pytest.mark.parametrize("data", [b"", b"{}", b"[]\n", b"{}\n", b"no json\n"])
def test_what_is_no_record_is_told(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        TopicRecord.decode(data)


def test_only_so_many_clients_are_remembered(topic: Topic) -> None:
    for number in range(1100):
        topic.add("put", name="x", client=f"c{number}")
    assert len(topic.state.clients) == 1000
    assert "c1099" in topic.state.clients
