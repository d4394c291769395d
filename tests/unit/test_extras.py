"""What is installed only if asked for is imported only when it is needed, and named when it is missing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tidelock.extras import EXTRAS, check_url, missing, need

REPOSITORY = Path(__file__).parents[2]
WITH_EXTRAS = {  # the modules that an extra is imported by, and nobody imports without need
    "tidelock.coordination.zookeeper",
    "tidelock.kafka.brokers",
    "tidelock.kafka.delivery",
    "tidelock.kafka.errors",
    "tidelock.kafka.ranges",
    "tidelock.kafka.topics",
    "tidelock.log.stores.kafka_replica",
    "tidelock.log.stores.kafka",
    "tidelock.log.stores.redis",
    "tidelock.redis.conversation",
    "tidelock.redis.sending",
    "tidelock.redis.server",
    "tidelock.spark.sinks.topic",
    "tidelock.spark.topics.source",
}
NOT_IMPORTED = {"tidelock.__main__", "tidelock.cli.demo.trending"}  # programs
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""


def modules() -> list[str]:
    """All modules but those that are there for an extra."""
    found = (p.relative_to(REPOSITORY / "src").with_suffix("") for p in (REPOSITORY / "src").rglob("*.py"))
    names = (".".join(p.parts).removesuffix(".__init__") for p in found)
    return sorted(
        name
        for name in names
        if not any(name == one or name.startswith(f"{one}.") for one in WITH_EXTRAS) and name not in NOT_IMPORTED
    )


def answers_without_extras(code: str) -> subprocess.CompletedProcess[str]:
    """What a Python answers that has none of the extras."""
    hidden = {module for modules in EXTRAS.values() for module in modules}
    command = [sys.executable, "-c", HIDE.format(hidden=hidden) + code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_no_module_needs_an_extra_unless_it_is_there_for_it() -> None:
    code = f"import importlib\nfor name in {modules()}: importlib.import_module(name)"
    answer = answers_without_extras(code)
    assert answer.returncode == 0, answer.stderr


def test_nothing_of_an_extra_is_loaded_although_it_is_there() -> None:
    # `tidelock` and its command line, and what Spark's Python processes get ready with.
    wanted = [
        "tidelock",
        "tidelock.cli",
        "tidelock.cli.commands.run",
        "tidelock.running.run",
        "tidelock.spark.connector.source",
    ]
    code = f"""
import importlib, sys
for name in {wanted}: importlib.import_module(name)
loaded = {{name.partition(".")[0] for name in sys.modules}} & { {m for e in EXTRAS.values() for m in e} }
print(*sorted(loaded), end="")
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == ""


def test_the_extras_are_those_of_the_project_and_their_modules_are_there() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"].keys() == EXTRAS.keys() | {"dev", "testing"}, "no extra without code"
    assert [missing(extra) for extra in EXTRAS] == [None] * len(EXTRAS)
    for extra in EXTRAS:
        need(extra, "this")


USES = (
    ("redis", "open_store('redis://host/0/words')"),
    ("redis", "open_store('rediss://me:secret@host/0/words')"),
    ("redis", "open_cells('redis://host/0/words')"),
    ("redis", "tidelock.Pipeline('p').publish('words', subject='w', shared='redis://host/0/words')"),
    ("kafka", "open_store('kafkas://host/words')"),
    ("kafka", "tidelock.Pipeline('p').topic('words', 'topic', servers='host:9092')"),
    ("kafka", "tidelock.Pipeline('p').write_topic('words', 'topic', servers='host:9092')"),
    ("kafka", "tidelock.read_topic(None, 'topic', servers='host:9092')"),
    ("kafka", "tidelock.kafka_records(None, 'host:9092', 'topic')"),
    ("kafka", "AvroRecords({'type': 'record'})"),
    ("zookeeper", "open_tree('zookeeper://host:2181')"),
)


def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    code = f"""
import tidelock
from tidelock.coordination import open_tree
from tidelock.log import open_store
from tidelock.spark.topics.avro import AvroRecords
from tidelock.cache.store import open_cells
for use in {[use for _, use in USES]}:
    try:
        eval(use)
    except tidelock.PipelineError as error:
        print(error)
"""
    answer = answers_without_extras(code)
    told = answer.stdout.splitlines()
    assert len(told) == len(USES), answer.stderr
    for (extra, use), message in zip(USES, told, strict=True):
        assert message.endswith(f"pip install 'tidelock[{extra}]'"), use
        assert "secret" not in message


COMMANDS = (
    ("redis", ["run", "FILE", "--log", "numbers=redis://host/0/x"]),
    ("kafka", ["run", "FILE", "--log", "kafka://host/x"]),
    ("redis", ["run", "FILE", "--cache", "rediss://host/0/x"]),
    ("zookeeper", ["run", "FILE", "--coordinator", "zookeeper://host"]),
    ("redis", ["profile", "FILE", "--cache", "redis://host/0/x"]),
    ("redis", ["plan", "FILE", "--budget", "0.1", "--cache", "redis://host/0/x"]),
    ("redis", ["log", "show", "redis://host/0/x"]),
    ("zookeeper", ["subjects", "--coordinator", "zookeeper://host"]),
)


def test_a_command_tells_it_in_one_line_before_spark_is_started(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text(
        "import tidelock\n"
        "pipeline = tidelock.Pipeline('job')\n"
        "@pipeline.source\n"
        "def numbers(spark): ...\n"
        "pipeline.console('numbers')\n"
    )
    given = [[str(file) if word == "FILE" else word for word in words] for _, words in COMMANDS]
    code = f"""
import os
import tidelock.cli, tidelock.cli.sessions
def never(*args, **kwargs): raise SystemExit("Spark was started")
tidelock.cli.sessions.session = never
os.chdir({str(tmp_path)!r})
print(*[tidelock.cli.main(words) for words in {given}])
"""
    answer = answers_without_extras(code)
    told = answer.stderr.splitlines()
    assert answer.stdout.split() == ["2"] * len(COMMANDS), answer.stderr
    for (extra, words), message in zip(COMMANDS, told, strict=True):
        assert message.endswith(f"pip install 'tidelock[{extra}]'"), words


def test_urls_that_need_nothing_are_let_through() -> None:
    for url in ("file:/data", "/data", "embedded:/tree.db", "s3://bucket/x", None):
        check_url(url)
