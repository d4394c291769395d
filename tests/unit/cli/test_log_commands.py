"""`tidelock log show` and `tidelock log verify` on logs that are whole, in use, and damaged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.redis_servers import RedisServers
from tests.unit.cli.conftest import COLUMNS, publish

from tidelock import EpochLog
from tidelock.cli import main
from tidelock.cli.pictures.log_facts import log_facts, type_name
from tidelock.epochs import EpochRange
from tidelock.log import LogWriter

Answer = Callable[..., tuple[int, str]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Answer:
    monkeypatch.setenv("COLUMNS", "120")

    def ask(*words: str) -> tuple[int, str]:
        code = main(["log", *words])
        return code, capsys.readouterr().out

    return ask


def rows_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_log_in_redis_is_told_without_its_password(redis_servers: RedisServers, ask: Answer) -> None:
    server = redis_servers.start(requirepass="s3cret")
    writer = EpochLog.create(f"redis://:s3cret@{server.address}/0/words", COLUMNS).take_over("run 1")
    publish(writer, 0, rows=3)
    for words in (("show",), ("verify",), ("show", "--json"), ("verify", "--json")):
        code, text = ask(*words, writer.log.url)
        assert code == 0
        assert f"redis://{server.address}/0/words" in text
        assert "s3cret" not in text


# -- show


def test_show_tells_people_what_a_log_is(log: EpochLog, ask: Answer) -> None:
    code, text = ask("show", log.url)
    assert code == 0
    lines = rows_of(text)
    assert ["log", "words", f"({log.url})"] in lines
    assert ["columns", "word", "string,", "count", "long"] in lines
    assert ["epochs", "0", "to", "4,", "in", "5", "entries"] in lines
    assert ["writer", "run", "1", "(token", "1)"] in lines
    assert ["counts", "2", "2", "epochs"] in lines
    assert any(line[:2] == ["4", "14"] and line[-2:] == ["tweets", "4"] for line in lines)
    assert "1970-01-01 00:04:00" in text  # the watermark of epoch 4


def test_show_lists_as_many_entries_as_asked(log: EpochLog, ask: Answer) -> None:
    _, text = ask("show", log.url, "--last", "2")
    assert [line[0] for line in rows_of(text) if line[-2:-1] == ["tweets"]] == ["3", "4"]
    _, text = ask("show", log.url, "--last", "0")
    assert "tweets" not in text


def test_show_tells_machines_the_same(log: EpochLog, ask: Answer) -> None:
    code, text = ask("show", log.url, "--json", "--last", "1")
    facts: dict[str, Any] = json.loads(text)
    assert code == 0
    assert (facts["name"], facts["oldest"], facts["newest"]) == ("words", 0, 4)
    assert (facts["entries"], facts["rows"]) == (5, 60)
    assert facts["writer"] == {"token": 1, "owner": "run 1"}
    assert facts["cursors"] == [{"consumer": "counts", "epoch": 2, "lag": 2}]
    (entry,) = facts["last"]
    assert (entry["epochs"], entry["rows"], entry["watermark"]) == ([4, 4], 14, 240_000)
    assert entry["inputs"] == [{"log": "tweets", "id": "f" * 32, "epochs": [4, 4]}]


def test_show_has_words_for_a_log_without_entries(writer: LogWriter, ask: Answer) -> None:
    code, text = ask("show", writer.log.url)
    assert code == 0
    assert ["epochs", "none", "yet"] in rows_of(text)
    _, text = ask("show", writer.log.url, "--json")
    assert json.loads(text)["newest"] is None


def test_show_does_not_mind_entries_that_are_dropped_meanwhile(log: EpochLog, writer: LogWriter) -> None:
    class SeenEarlier(EpochLog):
        def ranges(self) -> list[EpochRange]:
            return before

    before = log.ranges()
    writer.truncate()
    facts = log_facts(SeenEarlier(log.store, log.header), last=10)
    assert [entry["epochs"] for entry in facts["last"]] == [[3, 3], [4, 4]]


def test_show_stops_at_damage(log: EpochLog, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest(folder, 1).write_bytes(b"{}")
    assert main(["log", "show", log.url]) == 2
    assert "the manifest of epoch 1 is torn or damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("described", "name"),
    [
        ("decimal(10,2)", "decimal(10,2)"),
        ({"type": "map", "keyType": "string", "valueType": "long"}, "map<string, long>"),
        ({"type": "struct", "fields": [{"name": "x", "type": "double"}]}, "struct<x: double>"),
        ({"type": "udt", "class": "Point"}, "udt"),
    ],
)
def test_types_are_written_as_people_do(described: Any, name: str) -> None:
    assert type_name(described) == name


# -- verify


def manifest(folder: Path, epoch: int) -> Path:
    return folder / "entries" / f"{epoch:012}-{epoch:012}.json"


def part(folder: Path, epoch: int) -> Path:
    (file,) = (folder / "parts").glob(f"{epoch:012}-*")
    return file


def flip_a_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def test_verify_is_content_with_a_whole_log(log: EpochLog, ask: Answer) -> None:
    code, text = ask("verify", log.url)
    assert code == 0
    assert text.startswith(f"whole  {log.url}: 5 entries, 60 rows")
    code, text = ask("verify", log.url, "--json")
    assert code == 0
    facts = json.loads(text)
    assert (facts["whole"], facts["entries"], facts["rows"], facts["damaged"]) == (True, 5, 60, [])


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda folder: flip_a_byte(part(folder, 1)), "epoch 1 is damaged (its checksum does not match)"),
        (lambda folder: shorten(part(folder, 1)), "not the"),
        (lambda folder: part(folder, 1).unlink(), "epoch 1 is missing"),
        (lambda folder: flip_a_byte(manifest(folder, 1)), "the manifest of epoch 1 is torn or damaged"),
        (lambda folder: manifest(folder, 1).unlink(), "has lost the manifest of epoch 1"),
        (lambda folder: flip_a_byte(folder / "log.json"), "the log's header is torn or damaged"),
    ],
)
def test_verify_names_what_is_damaged(
    damage: Callable[[Path], None], told: str, log: EpochLog, folder: Path, ask: Answer
) -> None:
    damage(folder)
    code, text = ask("verify", log.url)
    assert code == 1
    assert text.startswith("damaged")
    (line,) = text.splitlines()[1:]
    assert told in line
    code, text = ask("verify", log.url, "--json")
    assert code == 1
    assert json.loads(text)["damaged"] == [line.strip()]


def test_verify_lists_everything_that_is_damaged(log: EpochLog, folder: Path, ask: Answer) -> None:
    flip_a_byte(part(folder, 1))
    flip_a_byte(part(folder, 3))
    code, text = ask("verify", log.url, "--json")
    facts = json.loads(text)
    assert code == 1
    assert (facts["whole"], facts["entries"], len(facts["damaged"])) == (False, 3, 2)
