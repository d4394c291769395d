from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kafka_servers import KafkaServer, KafkaServers
from tests.redis_servers import RedisServer, RedisServers

# Every JVM of the tests has a short life: the second compiler and parallel collectors cost more than they bring.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server for all tests that do it no harm."""
    servers = RedisServers(tmp_path_factory.mktemp("redis"))
    yield servers.start()
    servers.close()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """A place in the shared server that only this test knows."""
    return f"{redis_server.url}/{uuid.uuid4().hex}"


@pytest.fixture
def redis_servers(tmp_path: Path) -> Iterator[RedisServers]:
    """Starts servers that belong to one test."""
    servers = RedisServers(tmp_path)
    yield servers
    servers.close()


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """One broker for all tests that do it no harm."""
    servers = KafkaServers(tmp_path_factory.mktemp("kafka"))
    yield servers.start()
    servers.close()


@pytest.fixture
def kafka_url(kafka_server: KafkaServer) -> str:
    """A place on the shared broker that only this test knows."""
    return f"{kafka_server.url}/{uuid.uuid4().hex}"


@pytest.fixture
def kafka_servers(tmp_path: Path) -> Iterator[KafkaServers]:
    """Starts brokers that belong to one test."""
    servers = KafkaServers(tmp_path)
    yield servers
    servers.close()
