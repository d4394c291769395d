"""The page about planning shows what the command prints."""

import re
from pathlib import Path

import pytest

from tidelock.cli.command import main

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "planning.md").read_text(encoding="utf-8")


def test_the_page_shows_the_example_and_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(REPOSITORY)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    shown = {language: block for language, block in blocks if language in ("json", "")}
    (command,) = re.findall(r"`tidelock (plan --topology [^`]*)` prints", PAGE)
    assert shown["json"] == (REPOSITORY / "examples" / "topology.json").read_text(encoding="utf-8")
    assert main(command.split()) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert any(block.splitlines() == printed for language, block in blocks if not language)
