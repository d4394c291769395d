"""A package of somebody else, as an installer leaves it: its modules, and what they bring for Tidelock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, module: str, code: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
    """Put a package of one module into a folder that a path names; ``entry_points`` by group and name."""
    (folder / f"{module}.py").write_text(code)
    facts = folder / f"{module}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = [
        line
        for group, named in entry_points.items()
        for line in (f"[{group}]", *(f"{name} = {module}:{what}" for name, what in named.items()))
    ]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
