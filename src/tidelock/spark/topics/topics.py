"""Topics of others as streams: plain records that somebody writes who knows nothing of Tidelock."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidelock.errors import PipelineError
from tidelock.extras import need
from tidelock.kafka.location import parse_servers
from tidelock.spark.connector.registering import register_source
from tidelock.spark.topics.avro import AvroRecords, AvroSchema

_HIDDEN = "__tidelock_record"


def read_topic(
    spark: SparkSession,
    topic: str,
    *,
    servers: str,
    schema: str | StructType | None = None,
    avro: AvroSchema | None = None,
    starting: str = "earliest",
    max_records: int | None = None,
    record_columns: bool = False,
) -> DataFrame:
    """The records of a Kafka topic as a stream, for use in a source of a pipeline.

    Its other end is `Pipeline.write_topic`: what both take has the same name and is written the same way.

    Args:
        spark: the session.
        topic: the topic; it need not have records yet.
        servers: the brokers: `host:9092,host:9092`, or a URL with user, password and options.
        schema: the columns of its records, which are JSON: `id long, text string`. Spark's `from_json` reads
            them: what a record does not have, or what does not fit its column, is null; of a record that is no
            JSON all columns are. Nothing said: the records as they are, with columns `key`, `value`,
            `partition`, `offset` and `timestamp`.
        avro: the Avro schema of its records, if they are Avro and not JSON: its JSON as text, the same as a
            dictionary, or the path of a file with it. Of a record that does not fit all columns are null.
        starting: where a new query begins: `earliest` or `latest`.
        max_records: how many records one batch takes at most.
        record_columns: with ``schema`` or ``avro``: have the columns `partition`, `offset` and `timestamp` of the
            record too.

    Raises:
        PipelineError: one of these is wrong, or the package for Kafka is missing.
    """
    if starting not in ("earliest", "latest"):
        raise PipelineError(f"starting is {starting!r}: it must be 'earliest' or 'latest'")
    if schema is not None and avro is not None:
        raise PipelineError("the records are JSON or Avro: give either schema or avro")
    if max_records is not None and max_records < 1:
        raise PipelineError(f"max_records is {max_records}: it must be at least 1")
    brokers = parse_servers(servers).url
    need("kafka", "a Kafka topic")
    from tidelock.spark.topics.source import TopicSource

    register_source(spark, TopicSource)
    options = {"servers": brokers, "topic": topic, "starting": starting, "maxRecords": str(max_records or 0)}
    records = spark.readStream.format(TopicSource.name()).options(**options).load()
    value = F.col("value")
    if avro is not None:
        known = AvroRecords(avro)
        return _decoded(records, known.decoded(value), known.columns, record_columns)
    if schema is not None:
        columns = _struct(schema)
        parsed = F.from_json(value.cast("string"), columns, {"mode": "PERMISSIVE"})
        return _decoded(records, parsed, columns, record_columns)
    return records


def kafka_records(
    spark: SparkSession,
    servers: str,
    topic: str,
    *,
    schema: str | StructType | None = None,
    avro: AvroSchema | None = None,
    starting: str = "earliest",
    max_records: int | None = None,
    record_columns: bool = False,
) -> DataFrame:
    """The same as `read_topic`, as 0.1.0 called it."""
    return read_topic(
        spark,
        topic,
        servers=servers,
        schema=schema,
        avro=avro,
        starting=starting,
        max_records=max_records,
        record_columns=record_columns,
    )


def _decoded(records: DataFrame, value: Column, columns: StructType, record_columns: bool) -> DataFrame:
    parsed = value.alias(_HIDDEN)
    added = ["partition", "offset", "timestamp"] if record_columns else []
    taken = sorted(set(added) & set(columns.fieldNames()))
    if taken:
        raise PipelineError(f"the records have columns called {', '.join(taken)}: leave record_columns out")
    return records.select(parsed, *added).select(f"{_HIDDEN}.*", *added)


def _struct(schema: str | StructType) -> StructType:
    if isinstance(schema, StructType):
        return schema
    try:
        parsed = StructType.fromDDL(schema)
    except (PySparkException, ValueError) as wrong:
        raise PipelineError(f"{schema!r} is no schema: write it as in `id long, text string`") from wrong
    assert isinstance(parsed, StructType)
    return parsed
