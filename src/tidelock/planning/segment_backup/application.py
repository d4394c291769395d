"""What the cost model knows of an application: tables 4.1 to 4.3 of Segment Backup. Pure.

A linear topology: a spout, bolts, and a sink, each reading the node before it. The thesis counts nodes from 1, the
code from 0: the spout has position 0. Times are in seconds, sizes in bytes, frequencies per second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from operator import mul

from tidelock.errors import PlanError

SHORTEST_BLOCK = 2
"""A block has its barrier and at least one normal tuple."""


@dataclass(frozen=True)
class Delays:
    """Average delays in seconds (table 4.1).

    Attributes:
        edge: t^e, the network to the next node, per tuple.
        transmit: t^tr, transmitting a tuple.
        read: t^fr, reading a tuple from a file system.
        write: t^fw, writing a tuple to a file system.
        normal_tuple: t^n, processing a normal tuple at a node.
        barrier: t^b, processing a barrier at a node.
        ack: t^a, processing an ack at a connector, sender and receiver together.
        recovery_response: t^rr, from a failure to the order to restart.
        recovery_misc: t^rm, everything else before the nodes restart, such as adjusting states.
    """

    edge: float
    transmit: float
    read: float
    write: float
    normal_tuple: float
    barrier: float
    ack: float
    recovery_response: float
    recovery_misc: float

    @property
    def bottleneck(self) -> float:
        """max{t^fr, t^tr, t^n}: what each tuple costs when a block is replayed."""
        return max(self.read, self.transmit, self.normal_tuple)

    @property
    def restart(self) -> float:
        """t^rr + t^rm: what passes before anything is replayed."""
        return self.recovery_response + self.recovery_misc


@dataclass(frozen=True)
class Sizes:
    """Average sizes in bytes (table 4.2).

    Attributes:
        tuple: s^t, a tuple.
        barrier: s^b, a barrier.
        checkpoint: s^c, the checkpoint of one node.
        ack: s^a, a version ack.
    """

    tuple: float
    barrier: float
    checkpoint: float
    ack: float


@dataclass(frozen=True)
class PriceList:
    """Prices, in any one currency (table 4.3).

    Attributes:
        computation: p^t, a second of computation.
        network: p^n, sending one byte.
        storage: p^s, storing one byte for one second.
    """

    computation: float
    network: float
    storage: float


@dataclass(frozen=True)
class ApplicationNode:
    """One node.

    Attributes:
        name: Its name.
        processing_delay: t_i^t, the average over everything that the node processes, barriers included. It is
            measured, and taken to be the same for every block length. The spout has no queue and needs none.
        output_ratio: r^o between the node before this one and this one: tuples that this node puts out for each
            that the node before puts out. 1 for the spout.
    """

    name: str
    processing_delay: float = 0.0
    output_ratio: float = 1.0


@dataclass(frozen=True)
class Application:
    """A linear topology with delays, sizes and prices.

    Attributes:
        tuple_frequency: f^o, normal tuples per second that the spout generates.
        nodes: The nodes, spout first and sink last; at least two.
        delays: How long things take.
        sizes: How large things are.
        prices: What things cost.
    """

    tuple_frequency: float
    nodes: tuple[ApplicationNode, ...]
    delays: Delays
    sizes: Sizes
    prices: PriceList

    @cached_property
    def output_ratios(self) -> tuple[float, ...]:
        """r_{1,i}^o of every node: tuples that it puts out for each tuple of the spout."""
        return tuple(accumulate((node.output_ratio for node in self.nodes[1:]), mul, initial=1.0))


@dataclass(frozen=True)
class BackupConfiguration:
    """The variables of the optimisation: {x, l}. Made by `configure`.

    Attributes:
        connectors: The positions of all connectors, in order; the spout and the sink are among them.
        block_length: l_1^ob, how many tuples of the spout make a block; one of them is the barrier.
    """

    connectors: tuple[int, ...]
    block_length: int

    @property
    def segments(self) -> tuple[tuple[int, int], ...]:
        """Every connector with the next one."""
        return tuple(pairwise(self.connectors))


def configure(application: Application, between: Iterable[int], block_length: int) -> BackupConfiguration:
    """A configuration with the connectors ``between``; the spout and the sink are always connectors.

    Raises:
        PlanError: there is no such node, or the block is too short.
    """
    last = len(application.nodes) - 1
    connectors = tuple(sorted({0, *between, last}))
    if connectors[0] < 0 or connectors[-1] > last:
        wrong = connectors[0] if connectors[0] < 0 else connectors[-1]
        raise PlanError(f"there is no node at position {wrong}: the positions are 0 to {last}")
    if block_length < SHORTEST_BLOCK:
        raise PlanError(
            f"a block has at least {SHORTEST_BLOCK} tuples, a normal one and its barrier, not {block_length}"
        )
    return BackupConfiguration(connectors, block_length)
