"""The examples run as they stand, and print what is true."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.chaos

EXAMPLE = Path(__file__).parents[2] / "examples" / "two_queries.py"
SEED = 11


def run(*arguments: str) -> list[tuple[str, int]]:
    command = [sys.executable, str(EXAMPLE), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=140, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    pairs = [line.split() for line in done.stdout.splitlines()]
    return [(word, int(count)) for count, word in pairs]


def write_lines(file: Path, chance: random.Random) -> Counter[str]:
    lines = [chance.choices("abcdefghijklmnop", range(1, 17), k=7) for _ in range(200)]
    file.write_text("".join(f"{' '.join(line)}\n" for line in lines))
    return Counter(word for line in lines for word in line)


def most_common(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]


def test_two_queries_count_a_folder(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    counts = write_lines(tmp_path / "1.txt", chance) + write_lines(tmp_path / "2.txt", chance)
    assert run(str(tmp_path)) == most_common(counts), f"seed {SEED}"
