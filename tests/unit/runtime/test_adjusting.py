"""A job whose logs are in a server that comes back without them: it goes back as far as it has to."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.redis_servers import RedisServer, RedisServers
from tests.unit.runtime.backup_job import RETAINED, Job

from tidelock.recovery import Unrecoverable
from tidelock.runtime.adjusting import adjust_home
from tidelock.runtime.home import Home


@pytest.fixture
def server(redis_servers: RedisServers) -> RedisServer:
    return redis_servers.start()


@pytest.fixture
def job(tmp_path: Path, server: RedisServer) -> Job:
    return Job(Home(tmp_path / "home", f"{server.url}/job"))


def again(job: Job) -> Job:
    """The job in its next run: logs that are not there are made."""
    return Job(Home(job.home.root).as_recorded())


def positions(job: Job) -> list[int]:
    return [job.position(segment) for segment in ("words", "counts", "report")]


def test_nothing_happens_when_nothing_is_lost(job: Job) -> None:
    job.run_to(3)
    job.run("words", "words", "counts")
    assert adjust_home(again(job).home) is None
    assert positions(job) == [5, 4, 3]
    job.run_to(9)
    job.check(9)


@pytest.mark.parametrize("half_done", [None, "words", "counts", "report"])
def test_an_empty_server_sends_all_back_to_the_slowest(
    job: Job, server: RedisServer, half_done: str | None
) -> None:
    job.run_to(3)
    job.run("words", "words", "counts")
    if half_done is not None:
        assert job.step(half_done, commit=False)
    server.restart(empty=True)
    next_run = again(job)
    assert adjust_home(next_run.home) == {"words": 3, "counts": 3, "report": 3}
    assert positions(next_run) == [3, 3, 3]
    next_run.run_to(12)
    next_run.check(12)


def test_older_data_sends_back_only_as_far(job: Job, server: RedisServer) -> None:
    job.run_to(4)
    with server.client() as client:
        client.save()
    job.run_to(6)
    server.restart()
    next_run = again(job)
    assert adjust_home(next_run.home) == {"words": 4, "counts": 4, "report": 4}
    next_run.run_to(12)
    next_run.check(12)


def test_output_of_epochs_that_come_again_is_forgotten(job: Job, server: RedisServer) -> None:
    job.run_to(2)
    with server.client() as client:
        client.save()
    job.run_to(5)
    server.restart()
    adjust_home(again(job).home)
    assert sorted(folder.name for folder in Path(job.home.out("report")).glob("epoch=*")) == [
        "epoch=0",
        "epoch=1",
        "epoch=2",
    ]


def test_only_the_lost_log_sends_back(tmp_path: Path, server: RedisServer) -> None:
    job = Job(Home(tmp_path / "home", {"counts": f"{server.url}/job"}))
    job.run_to(3)
    job.run("words", "words", "counts")
    server.restart(empty=True)
    next_run = again(job)
    assert adjust_home(next_run.home) == {"words": 5, "counts": 3, "report": 3}
    next_run.run_to(12)
    next_run.check(12)


def test_a_second_start_finds_all_in_order(job: Job, server: RedisServer) -> None:
    job.run_to(3)
    job.run("words")
    server.restart(empty=True)
    next_run = again(job)
    first = adjust_home(next_run.home)
    assert adjust_home(next_run.home) in (None, first)
    assert positions(next_run) == [3, 3, 3]


def test_a_reader_too_far_behind_is_told(job: Job, server: RedisServer) -> None:
    job.run_to(1)
    for _ in range(RETAINED + 3):
        job.run("words")
    server.restart(empty=True)
    with pytest.raises(Unrecoverable, match="words"):
        adjust_home(again(job).home)
