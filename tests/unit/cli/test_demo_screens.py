"""What the demo shows: live, as lines, and in the end."""

import io
from typing import Any

from rich.console import Console

from tidelock.cli.demo.drawing import drawing
from tidelock.cli.demo.progress import DemoEvent, DemoSegment, DemoView
from tidelock.cli.demo.screens import DemoLineScreen, NoScreen, screen_for
from tidelock.cli.demo.verdict import verdict


def console(**options: Any) -> tuple[Console, io.StringIO]:
    page = io.StringIO()
    return Console(file=page, width=100, highlight=False, **options), page


def view(seconds: float = 12.0, counted: int = 7) -> DemoView:
    return DemoView(
        goal=20,
        segments=(
            DemoSegment("wanted", ("tweets", "words", "wanted"), "running", 12),
            DemoSegment("counts", ("counts",), "restarting", counted, lag=12 - counted, restarts=1),
            DemoSegment("store", ("top", "store"), "running", 6, lag=1),
        ),
        seconds=seconds,
        events=[DemoEvent(0.0, "started", loud=True), DemoEvent(11.9, "segment failed: counts: " + 100 * "x")],
    )


def drawn(shown: DemoView) -> str:
    paper, page = console()
    paper.print(drawing(shown))
    return page.getvalue()


def test_the_drawing_has_the_pipeline_with_the_state_of_each_segment() -> None:
    lines = drawn(view()).splitlines()
    assert "tweets → words → wanted" in lines[1]
    assert "──log─▶" in lines[1]
    assert "top → store" in lines[1]
    assert " 5 wait" in lines[0]
    assert lines[2].index("running") < lines[2].index("restarting") < lines[2].rindex("running")


def test_the_drawing_has_the_progress_of_each_segment() -> None:
    rows = [line.split() for line in drawn(view()).splitlines()]
    assert any(row[:2] == ["wanted", "running"] and row[-1] == "12/20" for row in rows)
    assert any(row[:2] == ["counts", "restarting"] and row[-4:] == ["7/20", "5", "epochs", "1"] for row in rows)
    assert any(row[:2] == ["store", "running"] and row[-3:] == ["6/20", "1", "epoch"] for row in rows)


def test_an_event_takes_one_line() -> None:
    last = drawn(view()).splitlines()[-1]
    assert last.startswith("  11.9 s  segment failed: counts: xxx")
    assert last.endswith("…")


def test_lines_tell_events_at_once_and_progress_now_and_then() -> None:
    paper, page = console()
    lines = DemoLineScreen(paper)
    lines.tell(DemoEvent(1.0, "started"))
    lines.show(view(seconds=2.0))
    lines.show(view(seconds=6.0))
    lines.show(view(seconds=12.0))
    lines.show(view(seconds=18.0, counted=8))
    assert page.getvalue().splitlines() == [
        "  1.0 s  started",
        "  6.0 s  epochs done: wanted 12, counts 7, store 6, of 20",
        " 18.0 s  epochs done: wanted 12, counts 8, store 6, of 20",
    ]


def test_machines_see_nothing() -> None:
    paper, page = console()
    with screen_for(paper, quiet=True) as screen:
        assert isinstance(screen, NoScreen)
        screen.tell(DemoEvent(0.0, "started"))
        screen.show(view())
    assert page.getvalue() == ""


def test_a_pipe_gets_lines_and_a_terminal_a_live_picture() -> None:
    paper, page = console()
    with screen_for(paper, quiet=False) as screen:
        assert isinstance(screen, DemoLineScreen)
    assert "tidelock demo" in page.getvalue()
    paper, page = console(force_terminal=True)
    with screen_for(paper, quiet=False) as screen:
        screen.show(view())
    assert "tweets → words → wanted" in page.getvalue()


def result(**changed: Any) -> dict[str, Any]:
    counts = {word: 100 - place for place, word in enumerate("abcdefgh")}
    return {
        "equal": True,
        "epochs": 20,
        "delivered_again": 0,
        "tweets": 40_000,
        "total": 772,
        "counts": counts,
        "top": [["a", 100], ["b", 99], ["c", 98]],
        "differences": [],
        "wrong_epochs": [],
        "segment": {
            "name": "counts",
            "seconds": 2.14,
            "before": {"wanted": 6, "counts": 5, "store": 4},
            "after": {"wanted": 11, "counts": 6, "store": 5},
        },
        "process": {"seconds": 17.9},
        "seconds": 60.2,
        **changed,
    }


def verdict_text(told: dict[str, Any]) -> str:
    paper, page = console()
    paper.print(verdict(told))
    return page.getvalue()


def test_an_equal_result_is_shown_as_the_proof() -> None:
    text = verdict_text(result())
    assert "exactly once: equal" in text
    assert "and the counts of 5 more words, all equal" in text
    assert "20 epochs delivered, each once, and the list of every epoch is right" in text
    assert "segment counts killed: back after 2.1 s; meanwhile wanted +5, store +1 epochs" in text
    assert "40,000 tweets, 772 words counted, in 60 s" in text


def test_epochs_that_came_again_are_told() -> None:
    text = verdict_text(result(delivered_again=2))
    assert "each once (2 came a second time and changed nothing)" in text


def test_different_counts_are_shown_word_by_word() -> None:
    wrong = [{"word": f"w{n}", "expected": 1000 + n, "found": None if n == 0 else n} for n in range(30)]
    text = verdict_text(result(equal=False, differences=wrong, wrong_epochs=[3, 4]))
    assert "NOT exactly once: the results differ" in text
    rows = [line.split()[1:-1] for line in text.splitlines()]
    assert ["w0", "missing", "1,000"] in rows
    assert ["w7", "7", "1,007"] in rows
    assert "30 words differ, the first are shown" in text
    assert "the lists of these epochs are missing or wrong: 3, 4" in text
