"""The epoch log: rules (`window`), format (`entry`, `parts`, `sealed`), stores, and the log itself."""

from tidelock.extras import check_url
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
    check_url(url)
    from tidelock.log.redis_store import RedisStore

    return RedisStore(url)


def _kafka_store(url: str) -> LogStore:
    """A log in Kafka; the package for it is loaded with the first one."""
    check_url(url)
    from tidelock.log.kafka_store import KafkaStore

    return KafkaStore(url)


register_store("file", FileStore)
register_store("kafka", _kafka_store)
register_store("kafkas", _kafka_store)
register_store("redis", _redis_store)
register_store("rediss", _redis_store)
