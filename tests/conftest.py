from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests.kafka_servers import KafkaServer, KafkaServers
from tests.redis_servers import RedisServer, RedisServers
from tests.tree_clients import client_threads
from tests.waiting import eventually
from tests.zookeeper_servers import ZooKeeperServer, ZooKeeperServers

import tidelock
from tidelock.credentials import FILE, PASSWORDS, forget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Every JVM of the tests has a short life: the second compiler and parallel collectors cost more than they bring.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# What Hypothesis plays is the same every time, and how long it takes does not matter. HYPOTHESIS_PROFILE=random
# plays something else every time, for long runs by hand.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", settings.get_profile("random"), derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# Before anybody imports them, whichever tests are collected first.
pytest.register_assert_rewrite("tests.following")


WORKERS = Path(__file__).parent / "integration" / "workers"
"""What Spark's Python processes have on their path beside what they have anyway."""


@pytest.fixture(autouse=True)
def coordinator(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """A shared tree of its own for every test, where jobs look for each other if they are not told where."""
    url = f"embedded:{tmp_path_factory.getbasetemp()}/{uuid.uuid4().hex[:12]}.db"
    monkeypatch.setenv("TIDELOCK_COORDINATOR", url)
    return url


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test knows the credentials that another one has given."""
    forget()
    for variable in (FILE, PASSWORDS):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(autouse=True, scope="module")
def clients_end() -> Iterator[None]:
    """See that no client of a shared tree outlives its tests: it would disturb others, and a user too."""
    yield
    eventually(lambda: not client_threads(), "no client of a shared tree is left behind")


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
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One server for all tests that do it no harm."""
    servers = ZooKeeperServers(tmp_path_factory.mktemp("zookeeper"))
    yield servers.start()
    servers.close()


@pytest.fixture
def zookeeper_url(zookeeper_server: ZooKeeperServer) -> str:
    """A tree in the shared server that only this test knows."""
    return f"{zookeeper_server.url}/{uuid.uuid4().hex}"


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


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests: local, with task retries, as users get it."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(WORKERS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    session = tidelock.session(
        "tidelock-tests",
        master="local[2,4]",
        settings={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "2g",
        },
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
