"""Pictures of a topology and of its segments: for a terminal, as Mermaid, and as SVG. Pure."""

from tidelock.topology.picture.flowchart import mermaid
from tidelock.topology.picture.terminal import text
from tidelock.topology.picture.vector import svg

__all__ = ["mermaid", "svg", "text"]
