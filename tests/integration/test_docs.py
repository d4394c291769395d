"""The examples of the documentation run as they are printed, and print what the pages say."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def promised(page: str) -> str:
    """The output that a page shows: the block without a language that follows "It prints"."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    found = re.search(r"^It prints\n\n```\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("page", ["README.md", "docs/reading-and-writing.md"])
def test_the_examples_of_a_page_print_what_it_says(page: str, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    quick = {**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}  # a short life: no second compiler
    with tempfile.TemporaryDirectory() as scratch:  # short, because the paths of sockets have to be
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            env={**quick, "TMPDIR": scratch},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == promised(page)
