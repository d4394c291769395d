"""A plan: where a person or the planner wants the cuts, and how many epochs a batch takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelock.topology.document import read_document, write_document
from tidelock.topology.graph import Topology
from tidelock.topology.segments import Cutting


@dataclass(frozen=True)
class Traits:
    """What an operator's code does with state and event time, as found in its query plan.

    Attributes:
        stateful: It keeps state from batch to batch.
        event_time: Its state follows a watermark.
        function: Its state is kept by a user's function (transformWithState, applyInPandasWithState).
        watermark: Its own code declares a watermark.
        cached: Its state is in a cache and not in Spark.
        grouped: A user's function sees the rows of a key and a batch together (applyInPandas), without state.
        silenced: The inputs whose watermark does not leave it: a function with state stands above them, which
            says nothing of the event times in its output, or their rows do not leave it at all.
        mute: The watermark that its own code declares does not leave it either.
        apart: The inputs whose watermark does not meet one that its own code declares.
    """

    stateful: bool = False
    event_time: bool = False
    function: bool = False
    watermark: bool = False
    cached: bool = False
    grouped: bool = False
    silenced: frozenset[str] = frozenset()
    mute: bool = False
    apart: frozenset[str] = frozenset()

    @property
    def event_time_state(self) -> bool:
        """Whether it keeps state that follows a watermark."""
        return self.stateful and self.event_time

    @property
    def function_state(self) -> bool:
        """Whether it keeps state in a user's function."""
        return self.stateful and self.function

    @property
    def batchwise(self) -> bool:
        """Whether it matters what a batch is: several epochs in one would change results."""
        return self.event_time_state or self.function_state or self.grouped


@dataclass(frozen=True)
class Plan:
    """What is asked for; `cut` says what Spark makes of it.

    Attributes:
        anchors: Operators and sinks that read all their inputs from logs.
        copies: Stateless operators with several readers that are computed in each reader's segment instead of
            being stored.
        epochs_per_batch: How many epochs a batch takes, by the name of the segment.
        logs: Nodes that are stored although no anchor reads them: a segment may take one of an operator's inputs
            from a log and compute the other one itself.
    """

    anchors: frozenset[str] = frozenset()
    copies: frozenset[str] = frozenset()
    epochs_per_batch: Mapping[str, int] = field(default_factory=dict)
    logs: frozenset[str] = frozenset()

    @classmethod
    def one(cls) -> Plan:
        """As few segments as Spark allows: nothing is cut but what has to be."""
        return cls()

    @classmethod
    def each(cls, topology: Topology) -> Plan:
        """A segment for every operator and every sink."""
        return cls(anchors=frozenset(node.name for node in topology.nodes if node.inputs))

    @classmethod
    def from_document(cls, fields: object, topology: Topology) -> Plan:
        """The plan that a JSON document describes for ``topology``; `to_document` shows the form.

        A segment may leave out "anchors": they follow from which operators are together. It may leave out
        "operators", unless it sets "epochs_per_batch". Other fields are left alone, so that what `tidelock plan`
        prints can be given back.

        Raises:
            PlanError: the document does not have this form or does not fit the topology; the message has the path.
        """
        wishes = read_document(fields, topology)
        return cls(wishes.anchors, wishes.copies, wishes.epochs_per_batch, wishes.logs)

    @staticmethod
    def to_document(cutting: Cutting) -> dict[str, Any]:
        """The plan that gives exactly this cutting, as JSON.

        It has the form::

            {"segments": [{"anchors": [..], "operators": [..], "epochs_per_batch": 1}], "copies": [..]}
        """
        return write_document(cutting)
