"""Whatever lands late, twice or never, and wherever snapshots are taken: one state, and no part loses its data.

The machine plays brokers: a control topic, one partition of data, and clients whose records are on their way until
they land, in any order between clients, again after they have landed, or not at all. Space is given back as a
replica that may be far behind has decided it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidelock.log.stores.kafka_state import DONE, TopicRecord, TopicState

CLIENTS = st.sampled_from("abc")


@dataclass
class Client:
    name: str
    number: int = 0
    under_way: list[TopicRecord] = field(default_factory=list)
    token: int = 0
    mark: str = ""


class Brokers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[TopicRecord] = []
        self.trimmed = 0
        self.state = TopicState()
        self.stale = TopicState()
        self.clients = {name: Client(name) for name in "abc"}
        self.data: list[str] = []
        self.data_start = 0
        self.begun: dict[str, tuple[str, str]] = {}
        self.published: list[tuple[int, int]] = []

    # -- what clients send

    def send(self, client: str, op: str, payload: bytes = b"", **fields: Any) -> TopicRecord:
        sender = self.clients[client]
        record = TopicRecord(client, sender.number, op, fields, payload)
        sender.number += 1
        sender.under_way.append(record)
        return record

    @rule(client=CLIENTS, name=st.sampled_from("xy"), data=st.binary(max_size=2), create=st.booleans())
    def document(self, client: str, name: str, data: bytes, create: bool) -> None:
        self.send(client, "create" if create else "put", data, name=name)

    @rule(client=CLIENTS)
    def take_over(self, client: str) -> None:
        record = self.send(client, "take", owner=client)
        self.land_all(client)
        self.clients[client].token, self.clients[client].mark = self.state.token, record.attempt

    @rule(client=CLIENTS, epoch=st.integers(0, 5))
    def publish(self, client: str, epoch: int) -> None:
        who = self.clients[client]
        fields = {"token": who.token, "mark": who.mark, "newest": None}
        if who.token:
            self.send(client, "publish", b"m", covers=[epoch, epoch], **fields)

    @rule(client=CLIENTS, epoch=st.integers(0, 5))
    def unpublish(self, client: str, epoch: int) -> None:
        who = self.clients[client]
        if who.token:
            fields = {"token": who.token, "mark": who.mark, "newest": None}
            self.send(client, "unpublish", ranges=[[epoch, epoch]], **fields)

    @rule(client=CLIENTS, part=st.sampled_from("pqr"))
    def begin_part(self, client: str, part: str) -> None:
        record = self.send(client, "begin", name=part, partition=0)
        self.land_all(client)  # the data is sent when the beginning is known to be there
        self.begun[record.attempt] = (client, part)

    @precondition(lambda self: self.begun)
    @rule(which=st.randoms(use_true_random=False), count=st.integers(1, 3))
    def end_part(self, which: Any, count: int) -> None:
        attempt = which.choice(sorted(self.begun))
        client, part = self.begun.pop(attempt)
        runs = [[len(self.data), count]]
        self.data += [attempt] * count
        self.send(client, "end", name=part, attempt=attempt, runs=runs, bytes=count)

    @rule(client=CLIENTS, part=st.sampled_from("pqr"))
    def remove_part(self, client: str, part: str) -> None:
        self.send(client, "remove", names=[part])

    @rule(client=CLIENTS, part=st.sampled_from("pqr"))
    def collect_part(self, client: str, part: str) -> None:
        who = self.clients[client]
        if who.token:
            self.send(client, "collect", names=[part], token=who.token, mark=who.mark, newest=None)

    @rule(client=CLIENTS, count=st.integers(1, 3))
    def a_part_comes_and_goes(self, client: str, count: int) -> None:
        """Whole, and its space is given back, while others are under way."""
        self.begin_part(client, "s")
        attempt = next(a for a, (who, part) in self.begun.items() if (who, part) == (client, "s"))
        del self.begun[attempt]
        runs = [[len(self.data), count]]
        self.data += [attempt] * count
        self.send(client, "end", name="s", attempt=attempt, runs=runs, bytes=count)
        self.send(client, "remove", names=["s"])
        self.land_all(client)
        self.a_replica_looks()
        self.space_is_given_back()

    # -- what the brokers make of it

    def land(self, record: TopicRecord) -> None:
        token = self.state.token
        before, parts = set(self.state.entries), dict(self.state.parts)
        self.records.append(record)
        verdict = self.state.apply(len(self.records) - 1, record)
        if record.op == "publish" and set(self.state.entries) != before:
            assert record.fields["token"] == token, "only the newest writer publishes"
            assert verdict.word == DONE
        if record.op == "collect" and self.state.parts != parts:
            assert record.fields["token"] == token, "only the newest writer collects"

    def land_all(self, client: str) -> None:
        while self.clients[client].under_way:
            self.land(self.clients[client].under_way.pop(0))

    @precondition(lambda self: any(c.under_way for c in self.clients.values()))
    @rule(which=st.randoms(use_true_random=False), fate=st.sampled_from(["lands", "lands", "is lost", "is late"]))
    def one_lands(self, which: Any, fate: str) -> None:
        sender = which.choice([c for c in self.clients.values() if c.under_way])
        record = sender.under_way.pop(0)
        if fate == "lands":
            self.land(record)
        elif fate == "is late":  # behind what the same client has sent later
            sender.under_way.append(record)

    @precondition(lambda self: self.records)
    @rule(which=st.randoms(use_true_random=False))
    def one_lands_again(self, which: Any) -> None:
        before = deepcopy(self.state)
        self.land(which.choice(self.records))
        assert (self.state.documents, self.state.entries, self.state.parts) == (
            before.documents,
            before.entries,
            before.parts,
        )

    @rule(interrupted=st.booleans(), trims=st.booleans())
    def snapshot(self, interrupted: bool, trims: bool) -> None:
        pieces = self.state.snapshot()
        if interrupted:
            self.land(TopicRecord("z", len(self.records), "put", {"name": "z"}))
        at = len(self.records)
        for piece in pieces:
            self.land(piece)
        if trims and not interrupted:
            self.trimmed = at

    @rule()
    def a_replica_looks(self) -> None:
        self.stale = deepcopy(self.state)

    @rule()
    def space_is_given_back(self) -> None:
        self.data_start = max(self.data_start, self.stale.needed().get(0, 0))

    # -- what holds always

    def replayed(self, start: int) -> TopicState:
        fresh = TopicState(known=start == 0, next=start)
        for offset in range(start, len(self.records)):
            fresh.apply(offset, TopicRecord.decode(self.records[offset].encode()))
        return fresh

    @invariant()
    def everybody_reads_the_same(self) -> None:
        assert self.replayed(self.trimmed) == self.state

    @invariant()
    def from_any_snapshot_on_the_state_is_right_or_unknown(self) -> None:
        for start in [at for at, record in enumerate(self.records) if record.op == "snapshot"][-3:]:
            found = self.replayed(start)
            assert not found.known or found == self.state

    @invariant()
    def every_part_has_its_data(self) -> None:
        for part in self.state.parts.values():
            for first, count in part.runs or ():
                assert first >= self.data_start
                assert self.data[first : first + count] == [part.attempt] * count


TestBrokers = Brokers.TestCase
TestBrokers.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
