"""Reading logs as streams, with what a plain `format("tidelock")` cannot do alone.

A data source is one leaf of a plan: it can put no operator above itself, and it does not know its siblings. So
restoring a watermark and moving several logs together is done here, where the DataFrames are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from tidelock.credentials import taken
from tidelock.errors import PipelineError
from tidelock.log import EpochLog
from tidelock.spark.connector.options import Member, ReadOptions, encode_members
from tidelock.spark.connector.registering import register_source
from tidelock.spark.connector.source import source_schema
from tidelock.spark.connector.watermark import MARKER, restore
from tidelock.spark.schema import event_time_columns


def read_log(
    spark: SparkSession,
    log: str,
    *,
    consumer: str | None = None,
    starting_epoch: str | int = "earliest",
    epochs_per_batch: int | str = 1,
    epoch_column: str | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """The epoch log at the URL ``log`` as a stream whose batches end exactly on epochs.

    A column that had a watermark when it was written has the same watermark here, at the same epoch; do not
    declare another one on it.

    Args:
        spark: the session.
        log: where the log is.
        consumer: the name of this reader, unique among the readers of the log and the same after a restart.
            The log keeps what its named readers have not finished; a reader without a name is not waited for.
        starting_epoch: where a new query begins: `earliest`, `latest` or an epoch.
        epochs_per_batch: how many epochs one batch takes; `all` takes whatever is there.
        epoch_column: if given, the name of an extra column with the epoch that a row belongs to.
        columns: the only columns to read. Spark cannot tell a Python source which columns a query uses, so
            saying it here saves the work of handing over the others.

    Raises:
        LogNotFound: there is no log at that URL yet.
        SchemaMismatch: one of the ``columns`` is not in the log.
    """
    log = taken(log)
    options = _options(spark, [Member(log)], consumer, starting_epoch, epochs_per_batch, epoch_column)
    return _stream(spark, log, options, columns)


def read_logs(
    spark: SparkSession,
    logs: Sequence[str],
    *,
    consumer: str | None = None,
    starting_epoch: str | int = "earliest",
    epochs_per_batch: int | str = 1,
    epoch_column: str | None = None,
) -> list[DataFrame]:
    """Several epoch logs for one query, in the order given: every batch takes the same epochs from all of them.

    All streams have to be used in one and the same query (joined or united), each once. The arguments are those
    of `read_log`; a name for the ``consumer`` is needed when there are several logs.

    Raises:
        LogNotFound: one of the logs is not there yet.
        PipelineError: there is no name, or a log stands twice.
    """
    if len(set(logs)) != len(logs):
        raise PipelineError("a log stands twice in read_logs: read it once and use the stream twice")
    if len(logs) > 1 and consumer is None:
        raise PipelineError("logs that are read together need a name: pass consumer=...")
    places = [taken(log) for log in logs]
    members = [Member(place) for place in places]
    options = _options(spark, members, consumer, starting_epoch, epochs_per_batch, epoch_column)
    return [_stream(spark, place, options, None) for place in places]


def read_members(
    spark: SparkSession,
    members: Sequence[Member],
    *,
    consumer: str,
    epochs_per_batch: int,
    take_rest: str,
    replay: str,
) -> list[DataFrame]:
    """As `read_logs`; a log that is read with a lag gives no watermark, because it would wait for itself.

    While the file ``take_rest`` is there, a batch may take fewer epochs. Batches that are done again, as the
    document ``replay`` tells, end where they had ended.
    """
    options = {
        **_options(spark, members, consumer, "earliest", epochs_per_batch, None),
        "takeRest": take_rest,
        "replay": replay,
    }
    return [_stream(spark, m.log, options, None, event_time=not m.lag) for m in members]


def follow_logs(
    spark: SparkSession,
    logs: Mapping[str, str],
    *,
    group: str,
    instruction: str,
    mixed: bool,
) -> list[DataFrame]:
    """The logs of subjects that a job follows in one query, by their URLs, with the names of its cursors.

    How batches go through them is said by the file ``instruction``, at any time; ``group`` names the query, and
    ``mixed`` says that it has other sources too.
    """
    members = [Member(log, consumer=consumer) for log, consumer in logs.items()]
    return [
        _stream(
            spark,
            log,
            {
                **_options(spark, members, consumer, "earliest", 1, None),
                "instruction": instruction,
                "group": group,
                "mixed": str(mixed).lower(),
            },
            None,
        )
        for log, consumer in logs.items()
    ]


def _options(
    spark: SparkSession,
    members: Sequence[Member],
    consumer: str | None,
    starting_epoch: str | int,
    epochs_per_batch: int | str,
    epoch_column: str | None,
) -> dict[str, str]:
    given = {
        "together": encode_members(members),
        "consumer": consumer,
        "startingEpoch": str(starting_epoch),
        "epochsPerBatch": str(epochs_per_batch),
        "epochColumn": epoch_column,
        "partitions": str(spark.sparkContext.defaultParallelism),
    }
    return {name: value for name, value in given.items() if value is not None}


def _stream(
    spark: SparkSession,
    log: str,
    options: dict[str, str],
    columns: Sequence[str] | None,
    *,
    event_time: bool = True,
) -> DataFrame:
    header = EpochLog.open(log).header
    restores = event_time and header.event_time
    if restores:
        options = {**options, "watermarkColumn": MARKER}
    schema = source_schema(header.schema, ReadOptions.parse({"log": log, **options}, 1), columns)
    register_source(spark)
    reader = spark.readStream.format("tidelock").options(log=log, **options).schema(schema)
    stream = reader.load()
    return restore(stream, event_time_columns(header.schema)) if restores else stream
