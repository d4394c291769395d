"""Segment Backup's cost model: numbers computed by hand, and the optimum compared with brute force."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations

import pytest

from tidelock.errors import PlanError
from tidelock.planning.segment_backup import (
    Application,
    ApplicationNode,
    BackupConfiguration,
    Delays,
    PriceList,
    Sizes,
    Unreachable,
    cheapest,
    configure,
    costs,
    equations,
    pending_windows,
    recovery_delay,
)
from tidelock.planning.segment_backup.optimum import LONGEST_BLOCK, shortest_stable_block

# With blocks of 25 tuples: one barrier and 25 tuples a second, queues of 25/50 and 50/100 tuples a second.
THREE = Application(
    tuple_frequency=24,
    nodes=(ApplicationNode("tweets"), ApplicationNode("words", 0.02, 2.0), ApplicationNode("store", 0.01, 0.5)),
    delays=Delays(
        edge=0.01,
        transmit=0.003,
        read=0.005,
        write=0.002,
        normal_tuple=0.004,
        barrier=0.1,
        ack=0.03,
        recovery_response=1.0,
        recovery_misc=0.5,
    ),
    sizes=Sizes(tuple=100, barrier=10, checkpoint=1000, ack=20),
    prices=PriceList(computation=2, network=0.001, storage=0.0001),
)
ENDS = configure(THREE, [], 25)
ALL = configure(THREE, [1], 25)

# Segment Backup, section 5.2: 30 tuples a second arrive, barriers included, and 80 can be served.
SEVEN = Application(
    tuple_frequency=28.8,
    nodes=(ApplicationNode("1"), *(ApplicationNode(str(number), 1 / 80) for number in range(2, 8))),
    delays=replace(THREE.delays, edge=0.005, normal_tuple=0.0125, ack=0.02, recovery_misc=0.0),
    sizes=THREE.sizes,
    prices=THREE.prices,
)
EVENLY = {2: [], 3: [3], 4: [2, 4]}


def with_nodes(application: Application, **changes: object) -> Application:
    """The application with the same change in all nodes but the spout."""
    nodes = (application.nodes[0], *(replace(node, **changes) for node in application.nodes[1:]))  # type: ignore[arg-type]
    return replace(application, nodes=nodes)


# -- the equations, by hand


def test_ratios_and_rates() -> None:
    assert THREE.output_ratios == (1.0, 2.0, 1.0)
    assert equations.tuple_rate(THREE, 25) == pytest.approx(25)
    assert equations.tuple_rate(THREE, 2) == pytest.approx(48)
    assert equations.barrier_rate(THREE, 25) == pytest.approx(1)
    assert [equations.arrival_rate(THREE, place, 25) for place in (1, 2)] == pytest.approx([25, 50])
    assert [equations.service_rate(THREE, place) for place in (1, 2)] == pytest.approx([50, 100])


@pytest.mark.parametrize(
    ("configuration", "delay"),
    [
        (ENDS, 1.5 + 0.014 * 2 + 0.005 * 25 / 2),
        # The block of `words` is twice as long as the spout's: a connector there makes recovery slower.
        (ALL, 1.5 + 0.014 * 1 + 0.005 * 50 / 2),
    ],
)
def test_recovery_delay(configuration: BackupConfiguration, delay: float) -> None:
    assert recovery_delay(THREE, configuration) == pytest.approx(delay)


@pytest.mark.parametrize(
    ("configuration", "time", "sent", "stored", "total"),
    [
        (ENDS, 0.30 + 0.03 + 0.1, 3020 + 20 + 5000, 275 + 3000, 9.2275),
        (ALL, 0.30 + 0.06 + 0.2, 3020 + 40 + 10000, 500 + 3000, 14.53),
    ],
)
def test_costs(configuration: BackupConfiguration, time: float, sent: float, stored: float, total: float) -> None:
    found = costs(THREE, configuration)
    assert found.overhead_time == pytest.approx(time)
    assert found.overhead_communication == pytest.approx(sent)
    assert found.overhead_storage == pytest.approx(stored)
    assert found.computation == pytest.approx(2 * time)
    assert found.network == pytest.approx(0.001 * sent)
    assert found.storage == pytest.approx(0.0001 * stored)
    assert found.total == pytest.approx(total)


def test_pending_windows() -> None:
    assert pending_windows(THREE, ENDS) == pytest.approx([25 * (0.05 + 0.03 + 0.03)])
    assert pending_windows(THREE, ALL) == pytest.approx([25 * (0.05 + 0.03), 50 * (0.03 + 0.03)])
    assert equations.pending_size(THREE, ALL) == pytest.approx(500)
    assert equations.checkpoint_size(THREE) == 3000


def test_response_times_are_those_of_a_queue() -> None:
    assert equations.response_time(THREE, 1, 25) == pytest.approx(0.04)
    assert equations.response_time(THREE, 2, 25) == pytest.approx(0.02)
    assert equations.response_time(SEVEN, 6, 25) == pytest.approx(0.02)
    assert equations.response_time(with_nodes(THREE, processing_delay=0.0), 1, 25) == 0


def test_a_pending_window_holds_what_is_on_its_way() -> None:
    """Little's law: with nothing but queues, it is the tuples in them, ρ/(1-ρ) in each."""
    only_queues = replace(SEVEN, delays=replace(SEVEN.delays, edge=0.0, ack=0.0))
    load = 30 / 80
    (window,) = pending_windows(only_queues, configure(only_queues, [], 25))
    assert window == pytest.approx(6 * load / (1 - load))


def test_a_longer_block_costs_less_and_recovers_later() -> None:
    found = [configure(THREE, [1], length) for length in range(3, 200)]
    totals = [costs(with_nodes(THREE, processing_delay=0.005), one).total for one in found]
    assert totals == sorted(totals, reverse=True)
    delays = [recovery_delay(THREE, one) for one in found]
    assert delays == sorted(delays)


# -- section 5.2


@pytest.mark.parametrize(
    ("connectors", "hops", "windows"),
    [(2, 6, [30 * 0.17]), (3, 3, [30 * 0.095] * 2), (4, 2, [30 * 0.07] * 3)],
)
def test_seven_nodes(connectors: int, hops: int, windows: list[float]) -> None:
    configuration = configure(SEVEN, EVENLY[connectors], 25)
    assert len(configuration.connectors) == connectors
    assert recovery_delay(SEVEN, configuration) == pytest.approx(1.0 + 0.0175 * hops + 0.0125 * 12.5)
    assert pending_windows(SEVEN, configuration) == pytest.approx(windows)


def test_more_connectors_recover_faster_and_store_more() -> None:
    two, three, four = (configure(SEVEN, between, 25) for between in EVENLY.values())
    assert recovery_delay(SEVEN, two) > recovery_delay(SEVEN, three) > recovery_delay(SEVEN, four)
    stored = [costs(SEVEN, one).overhead_storage for one in (two, three, four)]
    assert stored[0] < stored[1] < stored[2]
    first = [pending_windows(SEVEN, one)[0] for one in (two, three, four)]
    assert first[0] > first[1] > first[2]  # the window of the spout gets shorter


# -- configurations


def test_spout_and_sink_are_always_connectors() -> None:
    assert configure(SEVEN, [4, 2, 4], 25).connectors == (0, 2, 4, 6)
    assert configure(SEVEN, [], 25).segments == ((0, 6),)


@pytest.mark.parametrize(
    ("between", "length", "complaint"),
    [
        ([7], 25, "no node at position 7: the positions are 0 to 6"),
        ([-1], 25, "no node at position -1"),
        ([], 1, "a block has at least 2 tuples, a normal one and its barrier, not 1"),
    ],
)
def test_what_is_no_configuration(between: list[int], length: int, complaint: str) -> None:
    with pytest.raises(PlanError, match=complaint):
        configure(SEVEN, between, length)


# -- queues that grow without end


def test_barriers_can_be_too_much() -> None:
    """With as many barriers as normal tuples, `words` gets 48 tuples a second and `store` twice that."""
    slow = with_nodes(THREE, processing_delay=1 / 60)
    with pytest.raises(PlanError) as refused:
        costs(slow, configure(slow, [], 2))
    assert "store gets 96 tuples per second (arrival rate) and can process 60 (service rate)" in str(refused.value)
    assert "with blocks of 2 tuples" in str(refused.value)
    assert "Make the blocks longer" in str(refused.value)
    assert shortest_stable_block(slow) == 6  # 48 · 5/4 = 60 is just too much
    assert cheapest(slow, 1.6).configuration.block_length >= 6


def test_a_node_can_be_too_slow_for_any_block() -> None:
    slow = with_nodes(THREE, processing_delay=1 / 48)
    with pytest.raises(PlanError) as refused:
        cheapest(slow, 10)
    assert "store gets 48 tuples per second (arrival rate) and can process 48 (service rate)" in str(refused.value)
    assert "whatever the block length. Make the node faster" in str(refused.value)


# -- the cheapest configuration


def test_few_connectors_are_enough_for_a_loose_bound() -> None:
    found = cheapest(SEVEN, 2.0)
    assert found.configuration.connectors == (0, 6)
    assert found.configuration.block_length == 143  # 1 + 0.105 + 0.00625 · 143 = 1.99875
    assert found.recovery_delay == pytest.approx(1.99875)
    assert found.costs == costs(SEVEN, found.configuration)
    assert found.pending_windows == pending_windows(SEVEN, found.configuration)


def test_a_tight_bound_needs_connectors() -> None:
    found = cheapest(SEVEN, 1.06)
    assert len(found.configuration.connectors) > 2
    assert found.recovery_delay <= 1.06


def test_a_bound_that_is_just_met_is_met() -> None:
    bound = recovery_delay(SEVEN, configure(SEVEN, [], 143))
    assert cheapest(SEVEN, bound).configuration.block_length == 143


def test_blocks_have_no_limit_if_replaying_takes_no_time() -> None:
    instant = replace(THREE, delays=replace(THREE.delays, read=0.0, transmit=0.0, normal_tuple=0.0))
    assert cheapest(instant, 2.0).configuration == configure(instant, [], LONGEST_BLOCK)


@pytest.mark.parametrize("bound", [float("nan"), float("inf"), -1.0])
def test_what_is_no_bound(bound: float) -> None:
    with pytest.raises(PlanError, match="a finite number of seconds"):
        cheapest(SEVEN, bound)


def test_numbers_that_are_too_large_are_told() -> None:
    with pytest.raises(PlanError, match="the right units"):
        cheapest(replace(THREE, prices=PriceList(1e308, 1e308, 1e308)), 2.0)


@pytest.mark.parametrize(
    ("delays", "least", "dominant"),
    [
        ({}, 1.0 + 0.0175 + 0.0125, "Most of it is restarting"),
        ({"recovery_response": 0.0, "edge": 0.1}, 0.1125 + 0.0125, "Most of it is the way of a tuple from 1 to 2"),
        ({"recovery_response": 0.0, "read": 0.1}, 0.0175 + 0.1, "Most of it is replaying half a block of 1"),
    ],
)
def test_a_bound_out_of_reach(delays: dict[str, float], least: float, dominant: str) -> None:
    application = replace(SEVEN, delays=replace(SEVEN.delays, **delays))
    with pytest.raises(Unreachable) as refused:
        cheapest(application, least - 0.001)
    assert refused.value.least == pytest.approx(least)
    assert "with blocks of 2 tuples. " in str(refused.value)
    assert dominant in str(refused.value)
    assert cheapest(application, refused.value.least).recovery_delay == refused.value.least


def test_stability_can_be_what_makes_a_bound_unreachable() -> None:
    slow = with_nodes(THREE, processing_delay=1 / 60)
    with pytest.raises(
        Unreachable, match="blocks of 6 tuples, the shortest that keep every queue stable"
    ) as refused:
        cheapest(slow, 1.5)
    assert refused.value.least == pytest.approx(min(recovery_delay(slow, one) for one in _every(slow, [6])))


# -- brute force

LONGEST_TRIED = 200


def _every(application: Application, lengths: list[int]) -> Iterator[BackupConfiguration]:
    inner = range(1, len(application.nodes) - 1)
    subsets = chain.from_iterable(combinations(inner, size) for size in range(len(inner) + 1))
    for between in subsets:
        for length in lengths:
            yield configure(application, between, length)


def _random_application(chance: random.Random) -> Application:
    frequency = chance.uniform(5, 50)
    nodes, rate = [ApplicationNode("spout")], frequency
    for number in range(chance.randint(1, 6)):
        ratio = chance.choice([1.0, chance.uniform(0.2, 3)])
        nodes.append(ApplicationNode(f"node {number}", chance.uniform(0.05, 0.95) / rate, ratio))
        rate *= ratio
    return Application(
        frequency,
        tuple(nodes),
        Delays(*(chance.choice([0.0, chance.uniform(0, 0.02)]) for _ in range(4)), *_some(chance, 5)),
        Sizes(*(chance.choice([0.0, 10 ** chance.uniform(0, 4)]) for _ in range(4))),
        PriceList(chance.uniform(0, 1), 10 ** chance.uniform(-8, -4), 10 ** chance.uniform(-8, -2)),
    )


def _some(chance: random.Random, count: int) -> list[float]:
    return [chance.uniform(0.001, 0.05) for _ in range(count)]


def _bound(application: Application, chance: random.Random) -> float:
    """A bound that no segment meets with blocks longer than `LONGEST_TRIED`."""
    pairs = combinations(range(len(application.nodes)), 2)
    longest = min(equations.segment_recovery_delay(application, *pair, LONGEST_TRIED) for pair in pairs)
    return application.delays.restart + chance.random() ** 2 * (longest - application.delays.restart)


@pytest.mark.parametrize("seed", range(100))
def test_the_cheapest_is_what_brute_force_finds(seed: int) -> None:
    chance = random.Random(seed)
    application = _random_application(chance)
    bound = _bound(application, chance)
    lengths = list(range(shortest_stable_block(application), LONGEST_TRIED + 1))
    allowed = [one for one in _every(application, lengths) if recovery_delay(application, one) <= bound]
    if not allowed:
        with pytest.raises(Unreachable) as refused:
            cheapest(application, bound)
        shortest = _every(application, [shortest_stable_block(application)])
        assert refused.value.least == min(recovery_delay(application, one) for one in shortest)
        return
    found = cheapest(application, bound)
    assert found.configuration in allowed
    assert found.costs.total == pytest.approx(min(costs(application, one).total for one in allowed), rel=1e-12)
