"""What a demo runs, and how the pipeline's process is told."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from tidelock.errors import PipelineError

_VARIABLE = "TIDELOCK_DEMO"


@dataclass(frozen=True)
class Settings:
    """What is run, and where."""

    home: Path
    epochs: int
    rows: int
    seed: int

    @property
    def switch(self) -> Path:
        """The folder whose files kill workers."""
        return self.home / "switch"

    @property
    def database(self) -> Path:
        """The file that the pipeline's sink writes into."""
        return self.home / "trends.sqlite"

    def to_environment(self) -> dict[str, str]:
        """The environment for the process that runs the pipeline."""
        return {**os.environ, _VARIABLE: json.dumps({**asdict(self), "home": str(self.home)})}

    @classmethod
    def from_environment(cls) -> Settings:
        """The settings that this process was started with.

        Raises:
            PipelineError: it was not started by the demo.
        """
        given = os.environ.get(_VARIABLE)
        if given is None:
            raise PipelineError("this pipeline belongs to the demo: run it with `tidelock demo`")
        fields = json.loads(given)
        return cls(Path(fields["home"]), fields["epochs"], fields["rows"], fields["seed"])
