"""`tidelock stop`, against a process that is played by a thread."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.homes import event, make_home, status
from tests.waiting import eventually

from tidelock.cli import main
from tidelock.home.home import Home

Play = Callable[..., None]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = make_home(tmp_path / "home")
    home.put_document("status", status())
    return home


@pytest.fixture
def play(home: Home) -> Iterator[Play]:
    """Hold the home in a thread, which may overlook requests, and leave when one was heard."""
    threads: list[threading.Thread] = []
    heard: list[Any] = []

    def request() -> dict[str, Any]:
        eventually(lambda: home.document("request") is not None, "a request")
        found = home.document("request")
        assert found is not None
        home.drop_document("request")
        return found

    def live(ready: threading.Event, overlooks: int) -> None:
        with home.held():
            ready.set()
            for _ in range(overlooks):
                request()
            heard.append(request())
            home.add_event(event("stop asked"))
            home.put_document("status", {**status(), "state": "stopped", "drained": heard[0]["drain"]})

    def play(overlooks: int = 0) -> None:
        ready = threading.Event()
        threads.append(threading.Thread(target=live, args=(ready, overlooks)))
        threads[0].start()
        assert ready.wait(10)

    yield play
    for thread in threads:
        thread.join(30)


@pytest.mark.parametrize(("options", "drain"), [([], True), (["--now"], False)])
def test_it_asks_and_waits_until_the_process_has_ended(
    home: Home, play: Play, capsys: pytest.CaptureFixture[str], options: list[str], drain: bool
) -> None:
    play()
    assert main(["stop", "--home", str(home.root), *options]) == 0
    assert "trending  stopped: named at epoch none, store at epoch none" in capsys.readouterr().out
    assert (home.document("status") or {})["drained"] is drain
    assert not home.is_held()


def test_it_asks_again_when_a_process_that_was_starting_threw_the_request_away(
    home: Home, play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    play(overlooks=2)
    assert main(["stop", "--home", str(home.root), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["was_running"], answer["stopped"], answer["state"]) == (True, True, "stopped")
    assert answer["epochs"] == {"named": -1, "store": -1}


def test_its_patience_may_end(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with home.held():
        assert main(["stop", "--home", str(home.root), "--timeout", "0"]) == 1
        assert main(["stop", "--home", str(home.root), "--timeout", "0", "--json"]) == 1
    people, machines = capsys.readouterr().out.splitlines()
    assert "still running after 0 s; it was asked to stop and will" in people
    assert json.loads(machines)["stopped"] is False
    assert home.document("request") == {"drain": True}


def test_what_does_not_run_needs_no_stop(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop", "--home", str(home.root)]) == 0
    assert "trending  does not run: killed, " in capsys.readouterr().out
    assert home.document("request") is None


def test_what_is_no_home_cannot_be_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop", "--home", str(tmp_path)]) == 2
    assert "is not the home of a pipeline" in capsys.readouterr().err


def test_a_timeout_is_a_number_of_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["stop", "--home", str(tmp_path), "--timeout", "-1"])
    assert "'-1' is not a number of seconds" in capsys.readouterr().err
