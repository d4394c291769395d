"""Real Kafka brokers for tests: one node each (KRaft), on loopback, that are killed, paused and started again."""

from __future__ import annotations

import base64
import subprocess
import uuid
from pathlib import Path

from tests.redis_servers import Certificates
from tests.server_process import HOST, Server, Servers, free_port, installed, java

USER, PASSWORD = "reader", "geheim-0815"
"""Who may come in where a broker wants to know."""


class KafkaServer(Server):
    """One broker."""

    name = "Kafka broker"

    def __init__(
        self, folder: Path, *, sasl: bool = False, tls: Certificates | None = None, **options: str
    ) -> None:
        super().__init__(folder)
        self._tls = tls is not None
        (folder / "server.properties").write_text(_properties(self, free_port(), sasl, tls, options))
        self.prepare()
        self.start()

    @property
    def url(self) -> str:
        """The URL below which logs can be made."""
        return f"{'kafkas' if self._tls else 'kafka'}://{self.address}"

    def prepare(self) -> None:
        super().prepare()
        # Joined to its option, because it may begin with a dash.
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = self._java("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c")
        subprocess.run(command, capture_output=True, check=True)

    def _java(self, *words: str) -> list[str]:
        memory = ["-Xmx256m", "-Xss512k", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"]
        return [java(), *memory, "-cp", installed("kafka.sh"), *words, str(self._folder / "server.properties")]

    def command(self) -> list[str]:
        return self._java("kafka.Kafka")

    def answers(self, told: str) -> bool:
        return "Kafka Server started" in told


class KafkaServers(Servers[KafkaServer]):
    """Starts brokers below a directory."""

    def start(self, *, sasl: bool = False, tls: Certificates | None = None, **options: str) -> KafkaServer:
        """A broker with these options, as its configuration file has them (with `_` for `.`).

        With ``sasl`` it lets in nobody but `USER` with `PASSWORD`; with certificates it listens with TLS only.
        """
        return self.add(lambda folder: KafkaServer(folder, sasl=sasl, tls=tls, **options))


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
