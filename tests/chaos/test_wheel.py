"""The wheel where nothing else is installed than what it asks for: usable, and clear about what is missing."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from fastavro import parse_schema, schemaless_reader

from tidelock.extras import EXTRAS
from tidelock.kafka.brokers import connect
from tidelock.kafka.location import parse_servers

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[2]
PLACES = {
    "redis": "redis://127.0.0.1:1/0/x?timeout=0.2",
    "kafka": "kafka://127.0.0.1:1/x?timeout=0.2",
    "zookeeper": "zookeeper://127.0.0.1:1?timeout=0.2",
}
JOB = """
import tidelock

pipeline = tidelock.Pipeline("tiny", epoch="200 milliseconds")

@pipeline.source
def numbers(spark):
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()

@pipeline.operator(anchor=True)
def values(numbers):
    return numbers.select("value")

pipeline.files("values")
"""

SUBJECT = 'pipeline.publish("values", subject="tiny.values")'
TOPIC = "pipeline.write_topic('values', {topic!r}, servers={servers!r}, avro={avro!r})"
RECORD = '{"type": "record", "name": "r", "fields": [{"name": "value", "type": ["null", "long"]}]}'


def required(names: Iterable[str], extra: str = "") -> set[str]:
    """These distributions and, transitively, what they ask for here; ``extra`` of the first ones too."""
    found: set[str] = set()
    for name in names:
        found.add(name)
        for line in importlib.metadata.requires(name) or ():
            wanted, _, marker = line.partition(";")
            other, extras = re.match(r"([\w.-]+)(?:\[([\w,]+)\])?", wanted.strip()).groups()  # type: ignore[union-attr]
            if _applies(marker, extra) and other not in found:
                found |= required([other], extras or "")
    return found


def _applies(marker: str, extra: str) -> bool:
    from packaging.markers import Marker

    return not marker.strip() or Marker(marker.strip()).evaluate({"extra": extra})


class Environment:
    """A Python with exactly some distributions, which are shared with the one that runs the tests."""

    def __init__(self, folder: Path, distributions: Iterable[str]) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.bin = folder / "bin"
        (self.packages,) = folder.glob("lib/python3*/site-packages")
        for name in distributions:
            self._share(importlib.metadata.distribution(name))

    def _share(self, distribution: importlib.metadata.Distribution) -> None:
        for file in distribution.files or ():
            top = file.parts[0]
            source = Path(str(distribution.locate_file(top)))
            if top != ".." and not (self.packages / top).exists() and source.exists():
                (self.packages / top).symlink_to(source)

    def install(self, wheel: Path) -> None:
        quiet = ["--quiet", "--no-deps", "--no-index", str(wheel)]
        if shutil.which("uv"):
            command = ["uv", "pip", "install", "--python", str(self.bin / "python"), *quiet]
        else:
            command = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", *quiet]
        subprocess.run(command, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})

    def tidelock(self, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
        given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
        command = [str(self.bin / "tidelock"), *words]
        return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "job.py").write_text(JOB)
    yield tmp_path


def environment(folder: Path, wheel: Path, extra: str = "") -> Environment:
    made = Environment(folder / "environment", required(["tidelock"], extra) - {"tidelock"})
    made.install(wheel)
    for other, modules in EXTRAS.items():
        there = all((made.packages / module).exists() for module in modules)
        assert there is (other == extra), "the environment is not what the test is about"
    return made


def test_without_extras_all_that_needs_none_works(job: Path, wheel: Path) -> None:
    here = environment(job, wheel)
    assert "plan" in here.tidelock("--help", folder=job).stdout
    planned = here.tidelock("plan", "job.py", "--json", folder=job)
    assert planned.returncode == 0, planned.stderr
    assert [s["name"] for s in json.loads(planned.stdout)["segments"]] == ["numbers", "values_files"]
    ran = here.tidelock("run", "job.py", "--home", "home", "--epochs", "3", folder=job)
    assert ran.returncode == 0, ran.stderr
    assert len(list((job / "home/out/values_files").glob("epoch=*"))) == 3
    refused = here.tidelock("run", "job.py", "--log", PLACES["redis"], folder=job)
    assert refused.returncode == 2
    (told,) = refused.stderr.splitlines()
    assert told.endswith("pip install 'tidelock[redis]'")


@pytest.mark.parametrize("extra", PLACES)
def test_an_extra_works_by_itself(job: Path, wheel: Path, extra: str, request: pytest.FixtureRequest) -> None:
    here = environment(job, wheel, extra)
    for other, url in PLACES.items():
        words = ["subjects", "--coordinator", url] if other == "zookeeper" else ["log", "show", url]
        answer = here.tidelock(*words, folder=job)
        assert answer.returncode == 2
        assert ("pip install" in answer.stderr) is (other != extra), answer.stderr
    works = {"redis": keeps_logs, "kafka": keeps_logs_and_writes_a_topic, "zookeeper": tells_of_a_subject}
    works[extra](here, job, request.getfixturevalue(f"{extra}_url"))


def answered(here: Environment, job: Path, *words: str) -> str:
    answer = here.tidelock(*words, folder=job)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def keeps_logs(here: Environment, job: Path, url: str) -> None:
    answered(here, job, "run", "job.py", "--home", "home", "--epochs", "2", "--log", url)
    assert len(list((job / "home/out/values_files").glob("epoch=*"))) == 2
    assert json.loads(answered(here, job, "log", "show", f"{url}/numbers", "--json"))["newest"] == 1


def keeps_logs_and_writes_a_topic(here: Environment, job: Path, url: str) -> None:
    servers, _, name = url.rpartition("/")
    topic = f"{name}.values"
    with (job / "job.py").open("a") as file:
        file.write(TOPIC.format(topic=topic, servers=servers, avro=RECORD))
    keeps_logs(here, job, url)
    brokers, schema = connect(parse_servers(servers)), parse_schema(json.loads(RECORD))
    found = []
    for partition, (first, end) in enumerate(zip(brokers.beginnings(topic), brokers.ends(topic), strict=True)):
        messages = brokers.read(topic, partition, first, end - 1) if end > first else []
        found += [schemaless_reader(io.BytesIO(message.value()), schema, None)["value"] for message in messages]
    assert sorted(found) == list(range(20)), "the rows of two epochs"


def tells_of_a_subject(here: Environment, job: Path, url: str) -> None:
    with (job / "job.py").open("a") as file:
        file.write(SUBJECT)
    answered(here, job, "run", "job.py", "--home", "home", "--epochs", "2", "--coordinator", url)
    told = json.loads(answered(here, job, "subjects", "--coordinator", url, "--json"))
    assert [subject["subject"] for subject in told["subjects"]] == ["tiny.values"]
