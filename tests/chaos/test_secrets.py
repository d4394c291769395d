"""Planted passwords, and a look for them everywhere: in files, in what is printed, in the list of processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.kafka_servers import PASSWORD, USER, KafkaServers
from tests.redis_servers import RedisServer, RedisServers

from tidelock.alignment.cutting import Cutter
from tidelock.cli import main
from tidelock.credentials import FILE, HINT, PASSWORDS
from tidelock.kafka.location import parse_servers
from tidelock.log import EpochLog
from tidelock.log.json_records import describe_columns

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

PLANTED = b"w0rd-of-"
LOGS, CACHE, BOSS = "w0rd-of-l%gs/", "w0rd-of-cache", "w0rd-of-boss"
SPELLED = "w0rd-of-l%25gs%2F"

JOB = """
import os, tidelock
from tidelock import aggregates

pipeline = tidelock.Pipeline("planted", epoch="200 milliseconds", attempts=1, snapshot_every=2)

@pipeline.source
def numbers(spark):
    return spark.readStream.format("rate").option("rowsPerSecond", 20).load()

@pipeline.operator(anchor=True)
def keyed(numbers):
    return numbers.selectExpr("value", "value % 3 AS key")

@pipeline.operator(mode="update", anchor=True)
def sums(keyed):
    return tidelock.keyed(keyed, "key").aggregate(n=aggregates.count())

pipeline.files("sums")
pipeline.publish("keyed", subject="planted.keyed", shared=os.environ["SHARED"])
"""

START = """
import json, os, sys, tidelock
sys.path.insert(0, {folder!r})
from job import pipeline

spark = tidelock.session(settings={{
    "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false", "spark.eventLog.dir": {events!r},
}})
run = pipeline.start(spark, {home!r}, backup={backup!r}, **json.loads(os.environ["PLACES"]))
try:
    run.wait()
except tidelock.BatchFailed as failure:
    print(failure)
spark.stop()
"""

FOLLOWER = """
import tidelock

pipeline = tidelock.Pipeline("follower", epoch="200 milliseconds")
pipeline.subscribe("planted.keyed")
pipeline.files("keyed")
"""


class Watch:
    """Looks at the list of processes, all the time."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self.looks = 0
        self._ended = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        thread = threading.Thread(target=self._look)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            self.looks += 1
            for words in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    found = words.read_bytes()
                except OSError:
                    continue  # it has ended
                if PLANTED in found:
                    self.seen.add(found)


def holding(folder: Path) -> list[str]:
    """The files below a folder that hold a planted password, whole or in part."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 20, "there is hardly anything to look at"
    return [str(path) for path in files if PLANTED in path.read_bytes()]


class Stage:
    """A server with users, and a folder in which everything is written."""

    def __init__(self, server: RedisServer, folder: Path, coordinator: str) -> None:
        self.server = server
        self.folder = folder
        self.home = folder / "home"
        self.coordinator = coordinator
        self.said = ""
        with server.client(BOSS) as boss:
            for user, word in (("logs", LOGS), ("cache", CACHE)):
                boss.execute_command("ACL", "SETUSER", user, "on", f">{word}", f"~{user}*", "&*", "+@all")

    def place(self, name: str, who: str = "") -> str:
        return f"redis://{who}{self.server.address}/0/{name}?timeout=3"

    def run(self, *command: str, code: int = 0, **environment: str) -> str:
        given = {**os.environ, "TIDELOCK_COORDINATOR": self.coordinator, **environment}
        done = subprocess.run(
            command, cwd=self.folder, env=given, capture_output=True, text=True, check=False, timeout=600
        )
        self.said += done.stdout + done.stderr
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def lose_a_log_at(self, epochs: int) -> None:
        """Remove the first log, once the run has come so far."""
        status = self.home / "status.json"
        while not status.exists() or json.loads(status.read_text())["epoch"] < epochs:
            threading.Event().wait(0.1)
        with self.server.client(BOSS) as boss:
            boss.delete(*boss.keys("logs/numbers:*"))


def test_no_password_leaves_the_process(redis_servers: RedisServers, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    stage = Stage(redis_servers.start(requirepass=BOSS), folder, f"embedded:{folder}/tree.db")
    (folder / "job.py").write_text(JOB)
    (folder / "follower.py").write_text(FOLLOWER)
    (folder / "events").mkdir()
    backup = str(folder / "backup")
    start = START.format(folder=str(folder), home=str(stage.home), backup=backup, events=f"file:{folder}/events")
    (folder / "start.py").write_text(start)
    tidelock = str(Path(sys.executable).with_name("tidelock"))

    with Watch().watching() as watch:
        # The passwords in URLs that Python is given; the first log is lost on the way.
        places = {
            "log": stage.place("logs", f"logs:{SPELLED}@"),
            "cache": stage.place("cache", f"cache:{CACHE}@"),
        }
        losing = threading.Thread(target=stage.lose_a_log_at, args=(4,), daemon=True)
        losing.start()
        told = stage.run(
            sys.executable,
            "start.py",
            PLACES=json.dumps(places),
            SHARED=stage.place("logs-shared", f"logs:{SPELLED}@"),
        )
        # Whoever misses the log first tells it.
        assert "was given up" in told
        assert f"redis://{stage.server.address}/0/logs/numbers?timeout=3" in told
        # The passwords in the environment: a command goes on in the same home, and mends it.
        known = f"{stage.place('logs', f'logs:{SPELLED}@')} {stage.place('cache', f'cache:{CACHE}@')}"
        environment = {PASSWORDS: known, "SHARED": stage.place("logs-shared")}
        run = [tidelock, "run", "job.py", "--home", str(stage.home), "--backup", backup]
        stage.run(
            *run,
            "--epochs",
            str(last_epoch(stage.home) + 4),
            "--conf",
            "spark.sql.shuffle.partitions=2",
            **environment,
        )
        assert "logs lost" in (stage.home / "events.jsonl").read_text()
        status = json.loads(stage.run(tidelock, "status", "--home", str(stage.home), "--json", **environment))
        assert status["subjects"] == {"planted.keyed": stage.place("logs-shared")}
        # Nothing is stored: who says nothing is not let in, and told what to say.
        stage.run(tidelock, "subjects", "show", "planted.keyed", code=2)
        assert HINT in stage.said
        # The passwords in a file: another job follows the subject.
        file = tmp_path / "credentials"
        file.touch(mode=0o600)
        file.write_text(f"# ours\nredis://logs:{SPELLED}@{stage.server.address}\n")
        stage.run(tidelock, "run", "follower.py", "--home", "follower", "--epochs", "2", **{FILE: str(file)})
        assert list((folder / "follower/out/keyed_files").glob("epoch=*"))
        stage.run(tidelock, "subjects", "show", "planted.keyed", "--json", **{FILE: str(file)})
        stage.run(tidelock, "log", "show", stage.place("logs-shared"), "--json", **{FILE: str(file)})

    assert watch.looks > 10
    assert not watch.seen
    assert holding(folder) == []
    assert PLANTED.decode() not in stage.said
    with stage.server.client(BOSS) as boss:
        kept = [name for name in boss.keys("*") if PLANTED in dumped(boss, name)]
    assert kept == []


def last_epoch(home: Path) -> int:
    return int(json.loads((home / "status.json").read_text())["epoch"])


def dumped(client: Any, name: bytes) -> bytes:
    """What a key of the server holds."""
    kind = client.type(name)
    if kind == b"hash":
        return b"".join(part for pair in client.hgetall(name).items() for part in pair)
    return bytes(client.get(name)) if kind == b"string" else b"".join(client.zrange(name, 0, -1))


def test_epochs_on_a_topic_do_not_tell_how_it_is_read(
    kafka_servers: KafkaServers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from confluent_kafka import Producer

    from tidelock.kafka.brokers import connect

    server = kafka_servers.start(sasl=True)
    brokers = parse_servers(f"kafka://{USER}:{PASSWORD}@{server.address}")
    producer = Producer(connect(brokers).settings())
    producer.produce("records", b'{"id": 7}')
    producer.flush(30)
    log = EpochLog.create(f"file:{tmp_path}/log", describe_columns("id long"))
    assert Cutter(log, brokers, "records").cut() == 1
    assert main(["log", "verify", log.url]) == 0
    assert PASSWORD not in "".join(capsys.readouterr())
    assert not [
        path for path in tmp_path.rglob("log/**/*") if path.is_file() and PASSWORD.encode() in path.read_bytes()
    ]
