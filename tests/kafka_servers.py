"""Real Kafka brokers for tests: one node each (KRaft), on loopback, that are killed, paused and started again.

`KafkaServers` stops everything that it has started, whatever state it is in.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import uuid
from functools import cache
from pathlib import Path

from tests.redis_servers import Certificates
from tests.waiting import eventually

HOST = "127.0.0.1"
USER, PASSWORD = "reader", "geheim-0815"
"""Who may come in where a broker wants to know."""


@cache
def java_program() -> str:
    """The path of a Java, installed if there is none."""
    return f"{_answer('java.sh')}/bin/java"


@cache
def class_path() -> str:
    """The class path of a broker, fetched if there is none."""
    return _answer("kafka.sh")


def _answer(script: str) -> str:
    path = Path(__file__).parents[1] / "scripts" / script
    return subprocess.run([path], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


class KafkaServer:
    """One broker, on the same ports for as long as the object lives."""

    def __init__(
        self, folder: Path, *, sasl: bool = False, tls: Certificates | None = None, **options: str
    ) -> None:
        self.port, controller = _free_port(), _free_port()
        self._folder, self._data, self._log = folder, folder / "data", folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._tls = tls is not None
        folder.mkdir(parents=True)
        (folder / "server.properties").write_text(_properties(self, controller, sasl, tls, options))
        self._format()
        self.start()

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """The URL below which logs can be made."""
        return f"{'kafkas' if self._tls else 'kafka'}://{self.address}"

    @property
    def data(self) -> Path:
        """Where it keeps its data."""
        return self._data

    def start(self) -> None:
        """Start the process and wait until it answers."""
        self._starts += 1
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._java("kafka.Kafka"), stdout=log, stderr=subprocess.STDOUT)
        try:
            eventually(self._is_ready, f"the Kafka broker on port {self.port} is ready", patience=60)
        except BaseException:
            self.kill()
            raise

    def _format(self) -> None:
        # Joined to its option, because it may begin with a dash.
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = self._java("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c")
        subprocess.run(command, capture_output=True, check=True)

    def _java(self, *words: str) -> list[str]:
        memory = ["-Xmx256m", "-Xss512k", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"]
        return [java_program(), *memory, "-cp", class_path(), *words, str(self._folder / "server.properties")]

    def _is_ready(self) -> bool:
        assert self._process is not None
        told = self._log.read_text(errors="replace")
        assert self._process.poll() is None, f"the Kafka broker has ended:\n{told[-3000:]}"
        return "Kafka Server started" in told

    def kill(self) -> None:
        """End the process as a crash would. Nothing happens if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self, *, empty: bool = False) -> None:
        """Kill it and start it again, without all its data if ``empty``."""
        self.kill()
        if empty:
            shutil.rmtree(self._data)
            self._format()
        self.start()

    def pause(self) -> None:
        """Let it hang: connections stay, and nothing is answered."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)


class KafkaServers:
    """Starts brokers below a directory, and stops them all when it is closed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[KafkaServer] = []

    def start(self, *, sasl: bool = False, tls: Certificates | None = None, **options: str) -> KafkaServer:
        """A broker with these options, as its configuration file has them (with `_` for `.`).

        With ``sasl`` it lets in nobody but `USER` with `PASSWORD`; with certificates it listens with TLS only.
        """
        made = KafkaServer(self._folder / f"kafka-{len(self._started)}", sasl=sasl, tls=tls, **options)
        self._started.append(made)
        return made

    def close(self) -> None:
        """End all of them."""
        for server in self._started:
            server.kill()


def _properties(
    server: KafkaServer, controller: int, sasl: bool, tls: Certificates | None, options: dict[str, str]
) -> str:
    protocol = ("SASL_" if sasl else "") + ("SSL" if tls else "PLAINTEXT")
    given = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listeners": f"OUTSIDE://{server.address},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"OUTSIDE://{server.address}",
        "listener.security.protocol.map": f"OUTSIDE:{protocol},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "OUTSIDE",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(server.data),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        # A broker that is started again has to wait until its former life counts as over.
        "broker.session.timeout.ms": "1500",
        "broker.heartbeat.interval.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.enable": "false",
    }
    if sasl:
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        given["sasl.enabled.mechanisms"] = given["sasl.mechanism.inter.broker.protocol"] = "PLAIN"
        given["listener.name.outside.plain.sasl.jaas.config"] = (
            f'{login} username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
        )
    if tls:
        joined = server.data.parent / "server.pem"
        joined.write_text(tls.key.read_text() + tls.cert.read_text())
        given |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(joined)}
        given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tls.ca)}
    given |= {name.replace("_", "."): value for name, value in options.items()}
    return "".join(f"{name}={value}\n" for name, value in given.items())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
