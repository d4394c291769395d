"""The epoch log: rules (`window`), format (`entry`, `parts`, `sealed`), stores, and the log itself."""

from tidelock.errors import PipelineError
from tidelock.log.files import FileStore
from tidelock.log.log import EpochLog, LogWriter
from tidelock.log.store import LogStore, open_store, register_store
from tidelock.log.window import Retention, Window, WindowError

__all__ = [
    "EpochLog",
    "LogWriter",
    "Retention",
    "Window",
    "WindowError",
    "open_store",
    "register_store",
]


def _redis_store(url: str) -> LogStore:
    """A log in Redis; the package for it is loaded with the first one."""
    try:
        from tidelock.log.redis_store import RedisStore
    except ModuleNotFoundError as missing:
        if missing.name != "redis":
            raise
        raise PipelineError("logs in Redis need the package redis: install tidelock[redis]") from missing
    return RedisStore(url)


def _kafka_store(url: str) -> LogStore:
    """A log in Kafka; the package for it is loaded with the first one."""
    try:
        from tidelock.log.kafka_store import KafkaStore
    except ModuleNotFoundError as missing:
        if missing.name != "confluent_kafka":
            raise
        raise PipelineError("logs in Kafka need the package confluent-kafka: install tidelock[kafka]") from missing
    return KafkaStore(url)


register_store("file", FileStore)
register_store("kafka", _kafka_store)
register_store("kafkas", _kafka_store)
register_store("redis", _redis_store)
register_store("rediss", _redis_store)
