"""Faults for the code of operators: they happen a number of times, and then no more.

The functions go to Python workers by value, so they use nothing of this module but their arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

Fault = Callable[[], None]


def raising(message: str) -> Fault:
    def fault() -> None:
        raise ValueError(message)

    return fault


def raising_after(sign: Path, message: str) -> Fault:
    """Wait until the file ``sign`` is there, then raise."""

    def fault() -> None:
        import time

        while not sign.exists():
            time.sleep(0.05)
        raise ValueError(message)

    return fault


def killing() -> Fault:
    def fault() -> None:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)

    return fault


def sleeping() -> Fault:
    def fault() -> None:
        import time

        time.sleep(3600)

    return fault


def hoarding() -> Fault:
    def fault() -> None:
        bytearray(1 << 34)

    return fault


def at_row(
    stream: DataFrame, identity: int, counter: Path, times: int, fault: Fault, column: str = "id"
) -> DataFrame:
    """The stream; the first ``times`` times that a row with this id is seen, ``fault`` happens."""
    schema = stream.schema

    def watch(batches: Any) -> Any:
        from pathlib import Path

        for batch in batches:
            if identity in batch.column(column).to_pylist():
                seen = len(list(Path(counter).glob("*")))
                if seen < times:
                    (Path(counter) / f"{seen}").touch()
                    fault()
            yield batch

    counter.mkdir(parents=True, exist_ok=True)
    return stream.mapInArrow(watch, schema)


def happened(counter: Path) -> int:
    return len(list(counter.glob("*")))
