"""Parts that are ranges of a Kafka topic: rows that somebody else has written, and that nobody copies.

Such a part names the brokers (``log``, with the scheme `topic+kafka:`), the topic, the partition and the offsets
of its first and last record (``file``). Behind a `#` the URL of the brokers has the topic's identity, if that is
known. It has no checksum of ours; Kafka has its own. Its number of rows is that of its offsets: a topic of
transactions has fewer records, because some offsets hold their marks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidelock.credentials import found
from tidelock.errors import PipelineError
from tidelock.extras import need
from tidelock.kafka.continuity import Span
from tidelock.log.entry import Part
from tidelock.log.json_records import NoRecord, arrow_columns, decode

_PREFIX = "topic+"


def topic_part(servers: str, span: Span, identity: str | None) -> Part:
    """The records of a range as a part."""
    file, rows = f"{span.topic}/{span.partition}/{span.first}-{span.last}", span.last - span.first + 1
    known = "" if identity is None else f"#{identity}"
    return Part(file, rows, 0, 0, f"{_PREFIX}{servers}{known}")


def is_of_topic(part: Part) -> bool:
    """Whether a part is a range of a topic."""
    return part.log is not None and part.log.startswith(_PREFIX)


def read_topic_part(part: Part, described: Mapping[str, Any], where: str) -> Iterator[pa.RecordBatch]:
    """The rows of such a part, with the columns that are described.

    Raises:
        LogCorrupt: some of its records are gone, or the topic was made again.
        PipelineError: a record does not fit the columns; the message says which.
    """
    need("kafka", "a log that names records of a Kafka topic")
    from tidelock.kafka.brokers import connect
    from tidelock.kafka.location import parse_servers
    from tidelock.kafka.ranges import read_range

    topic, number, offsets = part.file.rsplit("/", 2)
    first, last = map(int, offsets.split("-"))
    servers, _, identity = (part.log or "").removeprefix(_PREFIX).partition("#")
    brokers, schema = connect(parse_servers(found(servers))), arrow_columns(described)
    for records in read_range(brokers, where, Span(topic, int(number), first, last), identity or None):
        try:
            yield decode([message.value() for message in records], schema)
        except NoRecord as wrong:
            place, why = wrong.args
            raise PipelineError(
                f"{where}: the record at offset {records[place].offset()} of partition {number} of topic {topic} "
                f"does not fit: {why}. Cut the topic into a new log with other columns, or mend its producer"
            ) from wrong
