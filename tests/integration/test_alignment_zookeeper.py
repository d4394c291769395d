"""Jobs that find each other on a ZooKeeper server, and do without it while it is away."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.subjects import Deliveries, HandMade, align
from tests.waiting import eventually
from tests.zookeeper_servers import ZooKeeperServers

import tidelock
from tidelock.alignment.directory import Directory
from tidelock.coordination import open_tree
from tidelock.home.home import Home
from tidelock.running.run import Run


@pytest.mark.chaos
def test_an_aligned_job_does_not_need_the_server_to_go_on(
    spark: SparkSession, tmp_path: Path, started: list[Run]
) -> None:
    servers = ZooKeeperServers(tmp_path / "zookeeper")
    try:
        server = servers.start()
        tree = f"{server.url}/jobs"
        subject = HandMade(tmp_path / "subjects", "made.numbers", tree)
        job = tidelock.Pipeline("follower", epoch="200 milliseconds")
        job.subscribe("made.numbers")
        kept = Deliveries().attach(job, "numbers")
        subject.publish([1])
        started.append(job.start(spark, tmp_path / "home", coordinator=tree))
        kept.wait_for(1)
        aligning = threading.Thread(target=align, args=(tree, "follower"))
        aligning.start()
        while aligning.is_alive():
            subject.publish([len(subject.published) + 1])
            kept.wait_for(len(subject.published))
            aligning.join(0.2)

        server.kill()
        before = len(subject.published)
        subject.publish([7], [8], [9])
        kept.wait_for(before + 3)
        assert list(kept.epochs)[-3:] == [before, before + 1, before + 2], "still epoch by epoch"

        def kinds() -> set[str]:
            return {event["kind"] for event in Home(tmp_path / "home").events()}

        eventually(lambda: "coordinator away" in kinds(), "it says that it cannot talk")
        server.restart()
        eventually(lambda: "coordinator back" in kinds(), "and that it can again")
        with open_tree(tree) as looking:
            eventually(lambda: Directory(looking).is_alive("follower"), "others see that it runs")
        assert kept.rows() == sorted((n,) for some in subject.published for n in some)
    finally:
        for run in started:
            run.stop(drain=False)
            run.wait(60)
        servers.close()
