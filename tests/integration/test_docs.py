"""The examples of the documentation run as they are printed, and print what the pages say."""

import os
import re
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from tests.kafka_servers import KafkaServer

REPOSITORY = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def promised(page: str) -> str:
    """The output that a page shows: the block without a language that follows "It prints"."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    found = re.search(r"^It prints\n\n```\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


PAGES = [
    "README.md",
    "docs/reading-and-writing.md",
    "docs/redis.md",
    "docs/kafka.md",
    "docs/cached-state.md",
    "docs/alignment.md",
    "docs/sinks.md",
]
END = "-- the next page"
RUN = f"""
import runpy, sys
for page in sys.argv[1:]:
    runpy.run_path(page)
    print({END!r}, flush=True)
"""


def test_the_examples_of_the_pages_print_what_they_say(
    tmp_path: Path, redis_url: str, kafka_server: KafkaServer
) -> None:
    scripts = [tmp_path / f"page{number}.py" for number in range(len(PAGES))]
    for page, script in zip(PAGES, scripts, strict=True):
        script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:  # short, because the paths of sockets have to be
        done = subprocess.run(
            [sys.executable, "-c", RUN, *map(str, scripts)],
            cwd=tmp_path,
            env={
                **os.environ,
                "TMPDIR": scratch,
                "REDIS_URL": redis_url,
                "KAFKA_SERVERS": kafka_server.address,
                "KAFKA_TOPIC": uuid.uuid4().hex,
            },
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split(f"{END}\n")[:-1] == [promised(page) for page in PAGES]
