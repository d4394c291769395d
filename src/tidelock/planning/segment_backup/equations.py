"""The equations 4.2 to 4.11 of Segment Backup, one function each. Pure.

Where the thesis leaves a choice, this is how it is read here:

- Of l tuples of the spout one is a barrier, so f^t = f^o · l/(l-1) tuples come from it each second.
- l_{i-1}^ob in eq. 4.2 is the output block of the connector upstream of i, not of the node just before i: the text
  says that half a block "replayed by its upstream connector" is processed again.
- l_i^u counts hops: from the connector at position i to the one at position j there are j - i.
- The number of tuples in a block grows and shrinks with the output ratio (eq. 4.3), its barrier included.
- Eq. 4.5 is in bytes per second, which eq. 4.11 needs, although the text says "per source tuple".
- Eq. 4.6 has no answer for the spout, which has no input buffer.

A longer block makes nothing worse but recovery: every term of the costs is a non-decreasing function of 1/(l-1).
`optimum` relies on this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidelock.errors import PlanError
from tidelock.planning.segment_backup.application import Application, BackupConfiguration

# -- recovery


def segment_recovery_delay(application: Application, start: int, end: int, block_length: int) -> float:
    """Eq. 4.2 for one connector ``end`` and its upstream connector ``start``: how long it takes to catch up."""
    delays = application.delays
    return (
        delays.restart
        + propagation_delay(application, start, end)
        + (delays.bottleneck * output_block(application, start, block_length) / 2)
    )


def propagation_delay(application: Application, start: int, end: int) -> float:
    """(t^e + t^n) · l_i^u: how long the first tuple is on its way from ``start`` to ``end``."""
    return (application.delays.edge + application.delays.normal_tuple) * (end - start)


def output_block(application: Application, place: int, block_length: int) -> float:
    """Eq. 4.3: l_i^ob, tuples in an output block of a node."""
    return block_length * application.output_ratios[place]


def recovery_delay(application: Application, configuration: BackupConfiguration) -> float:
    """Eq. 4.2: t^r, from the failure to the moment when the last connector gets something new."""
    return max(
        segment_recovery_delay(application, start, end, configuration.block_length)
        for start, end in configuration.segments
    )


# -- overhead time and communication


def overhead_time(application: Application, configuration: BackupConfiguration) -> float:
    """Eq. 4.4: t^oh, seconds of additional work in each second."""
    delays = application.delays
    return (
        barrier_rate(application, configuration.block_length)
        * (delays.barrier * len(application.nodes) + delays.ack * (len(configuration.connectors) - 1))
        + materialized_rate(application, configuration) * delays.write
    )


def overhead_communication(application: Application, configuration: BackupConfiguration) -> float:
    """Eq. 4.5: n^oh, additional bytes sent in each second."""
    sizes, count = application.sizes, len(application.nodes)
    for_barriers = sizes.barrier * (count - 1) + sizes.checkpoint * count
    return (
        barrier_rate(application, configuration.block_length)
        * (for_barriers + sizes.ack * (len(configuration.connectors) - 1))
        + materialized_rate(application, configuration) * sizes.tuple
    )


def barrier_rate(application: Application, block_length: int) -> float:
    """f^o/(l-1): barriers per second."""
    return application.tuple_frequency / (block_length - 1)


def tuple_rate(application: Application, block_length: int) -> float:
    """f^t: tuples per second that the spout generates, barriers included."""
    return application.tuple_frequency * (block_length / (block_length - 1))


def materialized_rate(application: Application, configuration: BackupConfiguration) -> float:
    """f^t · Σ r_{1,i}^o over the connectors, the sink included: tuples per second that are made durable."""
    ratios = (application.output_ratios[place] for place in configuration.connectors)
    return tuple_rate(application, configuration.block_length) * sum(ratios)


# -- overhead storage


def arrival_rate(application: Application, place: int, block_length: int) -> float:
    """λ_i: tuples per second that the node before this one puts out."""
    return application.output_ratios[place - 1] * tuple_rate(application, block_length)


def service_rate(application: Application, place: int) -> float:
    """μ_i = 1/t_i^t: tuples per second that a node can process."""
    delay = application.nodes[place].processing_delay
    return 1 / delay if delay else math.inf


def response_time(application: Application, place: int, block_length: int) -> float:
    """Eq. 4.6: t_i^s, how long a tuple is at a node, waiting included: 1/(μ_i - λ_i).

    Raises:
        PlanError: more arrives than the node can process.
    """
    arrival, service = arrival_rate(application, place, block_length), service_rate(application, place)
    if arrival >= service:
        raise PlanError(
            f"{rates_told(application, place, arrival)} with blocks of {block_length} tuples: its queue never "
            "stops growing. Make the blocks longer, which means fewer barriers, or the node faster"
        )
    return 1 / (service - arrival)


def rates_told(application: Application, place: int, arrival: float) -> str:
    """What arrives at a node and what it can process, for a message."""
    name, service = application.nodes[place].name, service_rate(application, place)
    return f"{name} gets {arrival:g} tuples per second (arrival rate) and can process {service:g} (service rate)"


def pending_window(application: Application, start: int, end: int, block_length: int) -> float:
    """Eq. 4.7: l_i^p, tuples in the pending window of ``start`` when ``end`` is the next connector.

    Raises:
        PlanError: more arrives at a node than it can process.
    """
    delays = application.delays
    passed = sum(delays.edge + response_time(application, k, block_length) for k in range(start + 1, end + 1))
    return arrival_rate(application, start + 1, block_length) * (passed + delays.ack)


def pending_windows(application: Application, configuration: BackupConfiguration) -> tuple[float, ...]:
    """Eq. 4.7 for every connector except the sink, in order."""
    length = configuration.block_length
    return tuple(pending_window(application, start, end, length) for start, end in configuration.segments)


def pending_size(application: Application, configuration: BackupConfiguration) -> float:
    """Eq. 4.8: s_total^p, bytes in all pending windows."""
    return application.sizes.tuple * sum(pending_windows(application, configuration))


def checkpoint_size(application: Application) -> float:
    """Eq. 4.9: s_total^c, bytes in the checkpoints of all nodes."""
    return application.sizes.checkpoint * len(application.nodes)


def overhead_storage(application: Application, configuration: BackupConfiguration) -> float:
    """Eq. 4.10: s^oh, additional bytes stored."""
    return pending_size(application, configuration) + checkpoint_size(application)


# -- total cost


@dataclass(frozen=True)
class BackupCosts:
    """What a configuration costs per second (eq. 4.11).

    Attributes:
        computation: p^t · t^oh.
        network: p^n · n^oh.
        storage: p^s · s^oh.
        overhead_time: t^oh.
        overhead_communication: n^oh.
        overhead_storage: s^oh.
    """

    computation: float
    network: float
    storage: float
    overhead_time: float
    overhead_communication: float
    overhead_storage: float

    @property
    def total(self) -> float:
        """Eq. 4.11: c."""
        return self.computation + self.network + self.storage


def costs(application: Application, configuration: BackupConfiguration) -> BackupCosts:
    """Eq. 4.11, with its parts.

    Raises:
        PlanError: more arrives at a node than it can process.
    """
    prices = application.prices
    time = overhead_time(application, configuration)
    sent = overhead_communication(application, configuration)
    stored = overhead_storage(application, configuration)
    return BackupCosts(
        prices.computation * time, prices.network * sent, prices.storage * stored, time, sent, stored
    )
