"""The first example on the documentation page runs as it is printed; the second one needs a server."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "coordination.md"


def test_the_example_runs() -> None:
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(examples) == 2
    exec(compile(examples[0], str(PAGE), "exec"), {})
