"""What the demo shows: live, as lines, and in the end."""

import io
from typing import Any

from rich.console import Console

from tidelock.cli.demo.progress import Event, QueryView, State, View
from tidelock.cli.demo.screens import LineScreen, NoScreen, drawing, screen_for, verdict
from tidelock.epochs import Epoch, EpochRange


def console(**options: Any) -> tuple[Console, io.StringIO]:
    page = io.StringIO()
    return Console(file=page, width=120, highlight=False, **options), page


def view(seconds: float = 12.0, epochs: int = 7) -> View:
    return View(
        goal=20,
        queries=(
            QueryView("tweets to words", 11, State.RUNNING, 9, 72_000),
            QueryView("word count", 12, State.KILLED, epochs, 448, lag=9 - epochs),
        ),
        kept=(EpochRange(Epoch(5), Epoch(6)), EpochRange(Epoch(7), Epoch(8))),
        finished=4,
        seconds=seconds,
        events=[Event(0.0, "started"), Event(11.9, "killed word count")],
    )


def drawn(shown: View) -> str:
    paper, page = console()
    paper.print(drawing(shown))
    return page.getvalue()


def test_the_drawing_has_both_queries_the_log_and_the_events() -> None:
    text = drawn(view())
    rows = [line.split() for line in text.splitlines()]
    assert any(row[:4] == ["tweets", "to", "words", "11"] and "9/20" in row for row in rows)
    assert any(row[:4] == ["word", "count", "12", "killed"] and row[-2:] == ["2", "epochs"] for row in rows)
    assert "holds epochs 5-8; its consumer has finished epoch 4" in text
    assert " 11.9 s  killed word count" in text


def test_the_drawing_knows_an_empty_log() -> None:
    text = drawn(View(goal=20, queries=(QueryView("word count"),), events=[Event(0.0, "started")]))
    assert "still empty" in text


def test_lines_tell_events_at_once_and_progress_now_and_then() -> None:
    paper, page = console()
    lines = LineScreen(paper)
    lines.tell(Event(1.0, "started"))
    lines.show(view(seconds=2.0))
    lines.show(view(seconds=6.0))
    lines.show(view(seconds=12.0))
    lines.show(view(seconds=18.0, epochs=8))
    assert page.getvalue().splitlines() == [
        "  1.0 s  started",
        "  6.0 s  epochs done: tweets to words 9, word count 7, of 20",
        " 18.0 s  epochs done: tweets to words 9, word count 8, of 20",
    ]


def test_machines_see_nothing() -> None:
    paper, page = console()
    with screen_for(paper, quiet=True) as screen:
        assert isinstance(screen, NoScreen)
        screen.tell(Event(0.0, "started"))
        screen.show(view())
    assert page.getvalue() == ""


def test_a_pipe_gets_lines_and_a_terminal_a_live_table() -> None:
    paper, page = console()
    with screen_for(paper, quiet=False) as screen:
        assert isinstance(screen, LineScreen)
    assert "tidelock demo" in page.getvalue()
    paper, page = console(force_terminal=True)
    with screen_for(paper, quiet=False) as screen:
        screen.show(view())
    assert "word count" in page.getvalue()


def result(**changed: Any) -> dict[str, Any]:
    counts = {word: 100 - place for place, word in enumerate("abcdefgh")}
    proof = {"equal": True, "epochs": 20, "tweets": 40_000, "total": 772, "counts": counts}
    return {**proof, "differences": [], "seconds": 40.2, **changed}


def verdict_text(told: dict[str, Any]) -> str:
    paper, page = console()
    paper.print(verdict(told))
    return page.getvalue()


def test_equal_counts_are_shown_as_the_proof() -> None:
    text = verdict_text(result())
    assert "exactly once: equal" in text
    assert "and 3 more, all equal" in text
    assert "20 epochs, 40,000 tweets, 772 words counted, 8 different ones" in text


def test_different_counts_are_shown_word_by_word() -> None:
    wrong = [{"word": f"w{n}", "expected": 1000 + n, "found": None if n == 0 else n} for n in range(30)]
    text = verdict_text(result(equal=False, differences=wrong))
    assert "NOT exactly once: the counts differ" in text
    rows = [line.split()[1:-1] for line in text.splitlines()]
    assert ["w0", "missing", "1,000"] in rows
    assert ["w7", "7", "1,007"] in rows
    assert "30 words differ, the first are shown" in text
