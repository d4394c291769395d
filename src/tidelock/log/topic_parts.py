"""Parts that are ranges of a Kafka topic: rows that somebody else has written, and that nobody copies.

Such a part names the brokers (``log``, with the scheme `topic+kafka:`), the topic, the partition and the offsets
of its first and last record (``file``). It has no checksum of ours; Kafka has its own. Its number of rows is that
of its offsets: a topic of transactions has fewer records, because some offsets hold their marks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidelock.errors import LogCorrupt, PipelineError
from tidelock.log.entry import Part
from tidelock.log.json_records import NoRecord, arrow_columns, decode

_PREFIX = "topic+"
_AT_ONCE = 10_000


def topic_part(servers: str, topic: str, partition: int, first: int, last: int) -> Part:
    """The records of a partition from one offset to another, both included, as a part."""
    return Part(f"{topic}/{partition}/{first}-{last}", last - first + 1, 0, 0, f"{_PREFIX}{servers}")


def is_of_topic(part: Part) -> bool:
    """Whether a part is a range of a topic."""
    return part.log is not None and part.log.startswith(_PREFIX)


def read_topic_part(part: Part, described: Mapping[str, Any], where: str) -> Iterator[pa.RecordBatch]:
    """The rows of such a part, with the columns that are described.

    Raises:
        LogCorrupt: the topic has dropped some of its records.
        PipelineError: a record does not fit the columns; the message says which.
    """
    from tidelock.kafka.brokers import connect
    from tidelock.kafka.location import parse_servers

    topic, number, offsets = part.file.rsplit("/", 2)
    first, last = map(int, offsets.split("-"))
    brokers, schema = connect(parse_servers((part.log or "").removeprefix(_PREFIX))), arrow_columns(described)
    low, _ = brokers.bounds(topic, int(number))
    if low > first:
        raise LogCorrupt(
            f"{where}: the topic {topic} has dropped the records from {first} to {min(low - 1, last)} of "
            f"partition {number}: its retention is shorter than what followers need"
        )
    for start in range(first, last + 1, _AT_ONCE):
        found = brokers.read(topic, int(number), start, min(start + _AT_ONCE - 1, last))
        try:
            yield decode([message.value() for message in found], schema)
        except NoRecord as wrong:
            place, why = wrong.args
            raise PipelineError(
                f"{where}: the record at offset {found[place].offset()} of partition {number} of topic {topic} "
                f"does not fit: {why}. Cut the topic into a new log with other columns, or mend its producer"
            ) from wrong
