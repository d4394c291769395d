"""`tidelock status` on homes of all kinds."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.redis_servers import RedisServers
from tests.unit.cli.homes import cutting, event, make_home, status, topology

from tidelock.cli import main
from tidelock.cli.commands import status as command
from tidelock.cli.pictures.home_picture import cutting_of, topology_of
from tidelock.cli.pictures.levels import levels
from tidelock.home.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home")


def ask(home: Home, *more: str) -> int:
    return main(["status", "--home", str(home.root), *more])


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


# -- for people


def test_a_running_pipeline_is_told_on_one_page(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    home.put_document("status", status())
    home.add_event(event("segment restart", "store"))
    with home.held():
        assert ask(home) == 0
    page = capsys.readouterr().out
    rows = [line.split() for line in page.splitlines()]
    assert rows[0][:4] == ["trending", "running", "epoch", "7"]
    assert ["named", "running", "9", "0", "1,234", "0", "20.0", "kB", "0"] in rows
    store = next(row for row in rows if row[:2] == ["store", "restarting"])
    assert store[2:8] == ["7", "2", "0", "0", "-", "1"]
    assert status()["segments"][1]["last_error"].strip() in " ".join(page.split())
    assert "└ store  restarting · epoch 7  [named] ─▶ counts ─▶ store" in page
    assert f"[named]  ─▶ store · file:{home.root}/logs/named" in page
    assert "segment restarts 1" in page
    assert "run started" in page


def test_passwords_of_logs_are_not_told(
    tmp_path: Path, redis_servers: RedisServers, capsys: pytest.CaptureFixture[str]
) -> None:
    server = redis_servers.start(requirepass="s3cret")
    home = make_home(tmp_path / "home", f"redis://:s3cret@{server.address}/0/job?timeout=0.3")
    for _ in ("the server is there", "the server is away"):
        for more in ((), ("--json",)):
            assert ask(home, *more) == 0
            answer = capsys.readouterr().out
            assert f"redis://{server.address}/0/job/named" in answer
            assert "s3cret" not in answer
        server.kill()


def test_a_killed_process_is_told_with_what_to_do(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.put_document("status", status())
    assert ask(home) == 0
    page = capsys.readouterr().out
    assert "trending  killed: its process is gone, `tidelock run` goes on where it was" in page


def test_a_home_in_which_nothing_has_run_is_impossible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--home", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"tidelock: {tmp_path} is not the home of a pipeline")
    assert said.err.count("\n") == 1


# -- for machines


def test_machines_get_the_document_and_the_levels(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.put_document("status", status())
    home.add_event(event("task retry"))
    with home.held():
        assert ask(home, "--json") == 0
    answer = told(capsys)
    assert answer["levels"]["task_retries"] == 1
    assert answer["home"] == str(home.root)
    assert {name: answer[name] for name in status()} == status()


def test_a_home_at_rest_tells_its_last_state(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.put_document("status", status("stopped"))
    assert ask(home, "--json") == 0
    answer = told(capsys)
    assert answer["state"] == "stopped"
    assert [s["restarts"] for s in answer["segments"]] == [0, 1]


def test_watching_goes_on_until_it_is_interrupted(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = iter([None, None])

    def sleep(seconds: float) -> None:
        if next(pauses, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr(command.time, "sleep", sleep)
    assert ask(home, "--json", "--watch") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["pipeline"] for line in lines] == ["trending"] * 3


# -- what it is made of


def test_a_home_remembers_its_topology(home: Home) -> None:
    record = home.known()
    assert topology_of(record) == topology()
    assert cutting_of(record).segments == cutting().segments


@pytest.mark.parametrize(
    ("kinds", "restarts"),
    [
        ([], 0),
        (["run started", "run ended", "run resumed", "run ended"], 0),
        (["run started", "run resumed", "run resumed", "run ended"], 2),
        (["run started", "restored", "run resumed"], 0),
    ],
)
def test_a_run_after_one_that_did_not_end_was_killed(kinds: list[str], restarts: int) -> None:
    assert levels(map(event, kinds))["process_restarts"] == restarts


def test_every_level_is_counted() -> None:
    kinds = ["task retry", "task retry", "executor lost", "segment failed", "segment restart", "restored"]
    assert levels(map(event, kinds)) == {
        "task_retries": 2,
        "executors_lost": 1,
        "segment_restarts": 1,
        "process_restarts": 0,
        "restores": 1,
    }
