"""Names are shown whole, however narrow the terminal is."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console, RenderableType
from rich.text import Text
from tests.unit.cli.homes import status

from tidelock.cli.commands.backup import table
from tidelock.cli.commands.log_show import plain_table
from tidelock.cli.pictures.run_screens import drawing

LONG = "statistics_filtered_by_airport_and_carrier"


def shown(what: RenderableType, width: int) -> str:
    output = io.StringIO()
    Console(file=output, width=width, highlight=False).print(what)
    return output.getvalue()


def running() -> RenderableType:
    found = status("running")
    found["segments"][0].update(name=LONG, last_error=f"in operator {LONG}: ValueError: no such wave")
    return drawing(found)


def small(make: Callable[..., RenderableType]) -> RenderableType:
    made = make("subject", "produced by")
    made.add_row(Text("a"), Text(LONG))  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("what", [running, lambda: small(table), lambda: small(plain_table)])
def test_no_name_is_cut_off(what: Callable[[], RenderableType], width: int) -> None:
    rest = LONG
    for line in shown(what(), width).splitlines():
        # The longest beginning of what is left of the name that stands in this line.
        found = next((rest[:end] for end in range(len(rest), 1, -1) if rest[:end] in line), "")
        rest = rest.removeprefix(found)
    assert rest == ""
