"""The parts of a topology: sources, operators and sinks, as they are declared. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

Mode = Literal["append", "update", "complete"]


class Kind(Enum):
    """What a node does: bring rows in, transform them, or take them out."""

    SOURCE = "source"
    OPERATOR = "operator"
    SINK = "sink"


@dataclass(frozen=True)
class TopologyNode:
    """One declared function of a pipeline.

    Attributes:
        name: The function's name; other nodes read its output by this name.
        kind: Source, operator or sink.
        inputs: The names of the nodes that it reads, in the order of its parameters.
        mode: The output mode of its rows, in Spark's words.
        anchor: True makes it read its inputs from logs, False keeps a plan from doing so, None leaves it open.
        failure_rate: How often a day it is expected to fail, for the planner.
        subject: The public name of its log, if it is published.
        epochs_per_batch: How many epochs a sink wants to see at once.
    """

    name: str
    kind: Kind
    inputs: tuple[str, ...] = ()
    mode: Mode = "append"
    anchor: bool | None = None
    failure_rate: float | None = None
    subject: str | None = None
    epochs_per_batch: int = 1

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"
