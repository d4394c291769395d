"""A job without Spark: three segments that leave what queries leave, checkpoints, logs and files.

`words` makes a number for every epoch, `counts` adds them up (its state is the sum), `report` reads both and
writes one file for every epoch. All of it is a function of the epoch, so any result can be checked.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelock.epochs import BEFORE_FIRST, Epoch, EpochRange
from tidelock.home.home import Home, Record, SegmentRecord
from tidelock.log import EpochLog, Retention
from tidelock.log.entry import Manifest, Part
from tidelock.log.parts import write_batches
from tidelock.log.sealed import seal
from tidelock.log.window import InputRange
from tidelock.spark.checkpoint.checkpoint import Checkpoint

COLUMNS = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}
INPUTS: dict[str, tuple[str, ...]] = {"words": (), "counts": ("words",), "report": ("words", "counts")}
RETAINED = 7
"""How many batches a checkpoint keeps, as Spark's minBatchesToRetain."""


def expected(segment: str, epoch: int) -> int:
    """What a segment gives for an epoch."""
    number = epoch + 1
    total = number * (number + 1) // 2
    return {"words": number, "counts": total, "report": number + total}[segment]


class Job:
    """The segments of a job in a home, run by hand."""

    def __init__(self, home: Home) -> None:
        self.home = home
        if home.record() is None:
            home.remember(_record(home))
        for name in ("words", "counts"):
            readers = frozenset(segment for segment, inputs in INPUTS.items() if name in inputs)
            EpochLog.create(home.log(name), COLUMNS, name=name, retention=Retention(wait_for=readers))

    def position(self, segment: str) -> Epoch:
        return Checkpoint(None, self.home.checkpoint(segment)).position()

    def log(self, node: str) -> EpochLog:
        return EpochLog.open(self.home.log(node))

    def run(self, *segments: str) -> None:
        """One epoch of each of these segments, in this order."""
        for segment in segments:
            assert self.step(segment), f"{segment} has nothing to do"

    def run_to(self, last: int) -> None:
        """Bring all segments to an epoch."""
        for segment in INPUTS:
            while self.position(segment) < last:
                assert self.step(segment), f"{segment} cannot get beyond epoch {self.position(segment)}"

    def step(self, segment: str, *, commit: bool = True) -> bool:
        """One batch of a segment; False if its inputs have no further epoch."""
        done = self.position(segment)
        epoch = Epoch(done + 1)
        values = [self._read(log, segment, done) for log in INPUTS[segment]]
        if None in values:
            return False
        batch = _Batch(Path(self.home.checkpoint(segment)), epoch)
        state = batch.state()
        assert state == (0 if done == BEFORE_FIRST else expected("counts", done)), f"{segment} has a wrong state"
        result = {"words": epoch + 1, "counts": state + sum(values), "report": sum(values)}[segment]
        assert result == expected(segment, epoch)
        batch.begin([self._offset(log, done, epoch) for log in INPUTS[segment]])
        self._deliver(segment, epoch, result, batch.query())
        if commit:
            batch.commit()
        return True

    def _read(self, log: str, segment: str, done: Epoch) -> int | None:
        opened = self.log(log)
        opened.move_cursor(segment, done)
        covers = EpochRange.single(Epoch(done + 1))
        if covers not in opened.ranges():
            return None
        (part,) = opened.manifest(covers).parts
        return sum(n for batch in opened.read_part(covers, part) for n in batch.column("n").to_pylist())

    def _offset(self, log: str, done: Epoch, epoch: Epoch) -> dict[str, Any]:
        header = self.log(log).header
        return {"tidelock": header.id, "name": log, "together": 2, "start": done, "epoch": epoch}

    def _deliver(self, segment: str, epoch: Epoch, result: int, query: str) -> None:
        if segment == "report":
            _write_output(Path(self.home.out("report")), epoch, result)
            return
        writer = self.log(segment).take_over(f"run of {segment}")
        covers = EpochRange.single(epoch)
        inputs = tuple(InputRange(self.log(log).header.id, log, covers) for log in INPUTS[segment])
        manifest = Manifest(writer.log.header.id, covers, COLUMNS, (), inputs, query=query, batch=epoch)
        if not writer.is_published(manifest.entry):
            part = _part(writer.log, f"{writer.part_prefix(epoch)}{uuid.uuid4().hex}.arrow", result)
            writer.publish(Manifest(**{**vars(manifest), "parts": (part,)}))
        writer.truncate()

    def check(self, last: int, lost: Iterable[int] = ()) -> None:
        """Everything is as if nothing had ever happened, but for the output of these epochs."""
        for segment in INPUTS:
            assert self.position(segment) == last
        out = Path(self.home.out("report"))
        found = {f.parent.name: f.read_text() for f in out.glob("*/part.parquet")}
        assert found == {f"epoch={e}": str(expected("report", e)) for e in range(last + 1) if e not in lost}


class _Batch:
    """One batch, as Spark leaves it in a checkpoint; every segment has one state store."""

    def __init__(self, checkpoint: Path, epoch: Epoch) -> None:
        self._checkpoint = checkpoint
        self._batch = int(epoch)
        self._store = checkpoint / "state" / "0" / "0"

    def query(self) -> str:
        return str(json.loads((self._checkpoint / "metadata").read_text())["id"])

    def state(self) -> int:
        """The state that the batch before has left: the newest full file, and all changes since."""
        versions = {int(f.stem): int(f.read_text()) for f in self._store.glob("*.snapshot")}
        start = max((v for v in versions if v <= self._batch), default=0)
        changes = [int((self._store / f"{v}.delta").read_text()) for v in range(start + 1, self._batch + 1)]
        return versions.get(start, 0) + sum(changes)

    def begin(self, offsets: list[dict[str, Any]]) -> None:
        if not (self._checkpoint / "metadata").exists():
            _write(self._checkpoint / "metadata", json.dumps({"id": str(uuid.uuid4())}))
        file = self._checkpoint / "offsets" / str(self._batch)
        if not file.exists():
            metadata = {"batchWatermarkMs": 0, "batchTimestampMs": uuid.uuid4().int}
            lines = [json.dumps(offset) for offset in offsets or [{"logOffset": self._batch}]]
            _write(file, "\n".join(["v1", json.dumps(metadata), *lines]))
        if not offsets:
            _write(self._checkpoint / "sources" / "0" / str(self._batch), "a file")

    def commit(self) -> None:
        version = self._batch + 1
        _write(self._store / f"{version}.delta", str(version))
        if version % 4 == 0:
            _write(self._store / f"{version}.snapshot", str(version * (version + 1) // 2))
        _write(self._checkpoint / "commits" / str(self._batch), "v1\n{}")
        self._clean_up()

    def _clean_up(self) -> None:
        oldest = self._batch - RETAINED
        for folder in ("offsets", "commits"):
            (self._checkpoint / folder / str(oldest)).unlink(missing_ok=True)
        needed = max((v for v in range(0, oldest + 2, 4)), default=0)
        for file in self._store.glob("*.*"):
            if int(file.stem) < needed:
                file.unlink()


def _record(home: Home) -> Record:
    segments = tuple(
        SegmentRecord(
            name, (name,), tuple((log, 0) for log in inputs), None if name == "report" else home.log(name)
        )
        for name, inputs in INPUTS.items()
    )
    return Record("numbers", {}, {}, segments, {"public.counts": home.log("counts")})


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.tmp")
    aside.write_text(text)
    aside.replace(file)


def _part(log: EpochLog, name: str, number: int) -> Part:
    batch = pa.RecordBatch.from_pydict({"n": pa.array([number], pa.int64())})
    return log.store.write_part(name, lambda file: write_batches(file, name, batch.schema, [batch]))


def _write_output(out: Path, epoch: Epoch, result: int) -> None:
    shutil.rmtree(out / f"epoch={epoch}", ignore_errors=True)
    aside = out / ".aside" / str(epoch)
    _write(aside / "part.parquet", str(result))
    size = os.stat(aside / "part.parquet").st_size  # noqa: PTH116
    _write(aside / "_manifest.json", seal({"work": {}, "files": {"part.parquet": size}}).decode())
    aside.rename(out / f"epoch={epoch}")


def stored(folder: Path, pattern: str) -> list[Path]:
    """The files of a backup that match, oldest names first."""
    return sorted(file for file in folder.rglob(pattern) if file.is_file())


def names(paths: Iterable[Path]) -> list[str]:
    """Their names."""
    return [path.name for path in paths]
