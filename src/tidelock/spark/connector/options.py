"""The options of `format("tidelock")`, checked once and turned into something with types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelock.errors import PipelineError
from tidelock.following.rounds import ALL_EPOCHS
from tidelock.log import open_store
from tidelock.log.log import check_name

_KNOWN = {
    "log",
    "together",
    "consumer",
    "startingEpoch",
    "epochsPerBatch",
    "takeRest",
    "replay",
    "instruction",
    "group",
    "mixed",
    "epochColumn",
    "watermarkColumn",
    "partitions",
}


@dataclass(frozen=True)
class Member:
    """One of the logs that a query reads together: epoch *n* of the query takes its epoch *n* - ``lag``.

    ``consumer`` is the name of the query's cursor on it, if it has another one on each of its logs.
    """

    log: str
    lag: int = 0
    consumer: str | None = None


@dataclass(frozen=True)
class ReadOptions:
    """What a reader was asked to do.

    While the file ``take_rest`` is there, a batch also takes what is left when that is less than
    ``epochs_per_batch``: no more is going to come. ``replay`` is the path of the document that says which batches
    the query does again; a reader that has such a path belongs to a pipeline, which goes back together with its
    logs. A job that follows subjects has ``instruction``, the path of the file that says how; ``group`` is what
    the sources of its query have in common, and ``mixed`` says that there are other sources besides.
    """

    log: str
    together: tuple[Member, ...]
    consumer: str | None
    starting_epoch: str
    epochs_per_batch: int
    take_rest: str | None
    replay: str | None
    instruction: str | None
    group: str
    mixed: bool
    epoch_column: str | None
    watermark_column: str | None
    partitions: int

    @classmethod
    def parse(cls, options: Mapping[str, str], cores: int) -> ReadOptions:
        """The options as Spark hands them over; their names are case-insensitive.

        Raises:
            PipelineError: one is missing, unknown or has a value that it cannot have.
        """
        given = _spelled(options)
        if "log" not in given:
            raise PipelineError('a reader needs to know its log: .option("log", "file:/path/to/the/log")')
        log = open_store(given["log"]).url
        together = parse_members(given["together"]) if "together" in given else (Member(log),)
        consumer = given.get("consumer")
        if len(together) > 1 and consumer is None:
            raise PipelineError("logs that are read together need a name: set the option `consumer`")
        return cls(
            log=log,
            together=together,
            consumer=None if consumer is None else check_name(consumer, "consumer"),
            starting_epoch=_starting(given.get("startingEpoch", "earliest")),
            epochs_per_batch=_epochs(given.get("epochsPerBatch", "1")),
            take_rest=given.get("takeRest"),
            replay=given.get("replay"),
            instruction=given.get("instruction"),
            group=given.get("group", consumer or ""),
            mixed=given.get("mixed") == "true",
            epoch_column=given.get("epochColumn"),
            watermark_column=given.get("watermarkColumn"),
            partitions=_positive("partitions", given.get("partitions", str(cores))),
        )

    @property
    def lag(self) -> int:
        """How many epochs this reader's log is read behind the query's own."""
        return next(member.lag for member in self.together if member.log == self.log)


def encode_members(members: Iterable[Member]) -> str:
    """The value of the option ``together``."""
    return json.dumps([[member.log, member.lag, member.consumer] for member in members])


def parse_members(text: str) -> tuple[Member, ...]:
    """What `encode_members` wrote, with absolute URLs."""
    return tuple(Member(open_store(log).url, *more) for log, *more in json.loads(text))


def _spelled(options: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower(): name for name in _KNOWN}
    unknown = sorted(name for name in options if name.lower() not in names)
    if unknown:
        raise PipelineError(
            f"unknown option {', '.join(unknown)}: a reader of a log knows {', '.join(sorted(_KNOWN))}"
        )
    return {names[name.lower()]: value for name, value in options.items()}


def _starting(value: str) -> str:
    if value in ("earliest", "latest") or value.isdecimal():
        return value
    raise PipelineError(f"startingEpoch is {value!r}: it must be `earliest`, `latest` or an epoch")


def _epochs(value: str) -> int:
    return ALL_EPOCHS if value == "all" else _positive("epochsPerBatch", value)


def _positive(name: str, value: str) -> int:
    if value.isdecimal() and int(value) > 0:
        return int(value)
    raise PipelineError(f"{name} is {value!r}: it must be a whole number above 0")
