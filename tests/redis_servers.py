"""Real Redis servers for tests: started on loopback, killed, paused, made replicas, watched by a Sentinel."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import redis
from tests.server_process import HOST, Server, Servers, installed
from tests.waiting import eventually

PRIMARY = "primary"
"""The name under which a Sentinel watches a primary."""


def server_program() -> str:
    """The path of a Redis server, installed if there is none."""
    return installed("redis.sh")


@cache
def knows_tls() -> bool:
    """Whether that server was built with TLS: then it does not stop at such a line, but at the next one."""
    asked = subprocess.run(
        [server_program(), "-"], input="tls-port 0\nno-such-line\n", capture_output=True, text=True
    )
    return "no-such-line" in asked.stdout + asked.stderr


@dataclass(frozen=True)
class Certificates:
    """Files for TLS: one authority that vouches for the server and for the client."""

    ca: Path
    cert: Path
    key: Path

    @property
    def query(self) -> str:
        """The options of a URL that use them."""
        return f"ca={self.ca}&cert={self.cert}&key={self.key}"


class RedisServer(Server):
    """One server, or one Sentinel."""

    name = "Redis server"

    def __init__(
        self,
        folder: Path,
        lines: list[str],
        *,
        ready: str,
        sentinel: bool = False,
        password: str | None = None,
        tls: Certificates | None = None,
    ) -> None:
        super().__init__(folder)
        self.prepare()
        self._password = password
        self._tls = tls
        self._ready = ready
        self._arguments = ["--sentinel"] if sentinel else []
        text = [f"bind {HOST}", f"dir {self.data}", *(line.format(port=self.port) for line in lines)]
        (folder / "server.conf").write_text("\n".join(text) + "\n")
        self.start()

    def command(self) -> list[str]:
        return [server_program(), str(self._folder / "server.conf"), *self._arguments]

    def answers(self, told: str) -> bool:
        return self._ready in told

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"redis://{HOST}:{self.port}/0"

    @contextmanager
    def client(self, password: str | None = None) -> Iterator[redis.Redis]:
        """A connection for looking at what is there."""
        tls = self._tls
        secure = {} if tls is None else {"ssl_ca_certs": tls.ca, "ssl_certfile": tls.cert, "ssl_keyfile": tls.key}
        given = {"password": password or self._password, "ssl": tls is not None, **secure}
        with redis.Redis(host=HOST, port=self.port, protocol=2, **given) as client:
            yield client

    def copied(self, replica: RedisServer) -> None:
        """Let ``replica`` have all so far, and nothing of what follows: it is a primary of its own then."""
        with self.client() as client:
            client.set("the newest", "of all")
            assert client.execute_command("WAIT", 1, 20_000) == 1
        replica.promote()

    def follow(self, primary: RedisServer) -> None:
        """Make it a replica, and wait until it has caught up."""
        with self.client() as client:
            client.replicaof(HOST, primary.port)
        primary.await_replica(self)

    def promote(self) -> None:
        """Make it a primary of its own, with the data that it has."""
        with self.client() as client:
            client.execute_command("REPLICAOF", "NO", "ONE")

    def fall_back_to(self, other: RedisServer) -> None:
        """Lose the own data to another primary, and take its place: the same process as before."""
        self.follow(other)
        self.promote()

    def await_replica(self, replica: RedisServer) -> None:
        """Wait until ``replica`` has caught up, and its copies count."""
        with self.client() as client:
            eventually(lambda: replica.port in _online(client), "the replica has caught up", patience=20)


class RedisServers(Servers[RedisServer]):
    """Starts servers below a directory."""

    def start(self, *, tls: Certificates | None = None, **options: str) -> RedisServer:
        """A server with these options, as its configuration file has them (with `_` for `-`).

        It keeps nothing on disk unless it is told to, and listens only with TLS if it has certificates.
        """
        given = {"save": '""', "appendonly": "no", "repl_diskless_sync_delay": "0", **options}
        lines = [f"{name.replace('_', '-')} {value}" for name, value in given.items()]
        lines += _listening(tls)
        password = options.get("requirepass")
        ready = "Ready to accept connections"
        return self.add(lambda folder: RedisServer(folder, lines, ready=ready, password=password, tls=tls))

    def replica(self, primary: RedisServer, *, tls: Certificates | None = None, **options: str) -> RedisServer:
        """A replica that has caught up with ``primary``."""
        made = self.start(tls=tls, replicaof=f"{HOST} {primary.port}", **options)
        primary.await_replica(made)
        return made

    def sentinel(
        self,
        primary: RedisServer,
        *,
        tls: Certificates | None = None,
        password: str | None = None,
        of_primary: str | None = None,
    ) -> RedisServer:
        """A Sentinel that watches ``primary`` alone, and is quick to put a replica in its place.

        It wants a ``password`` of its own if one is given, and uses that ``of_primary`` if that wants one.
        """
        lines = [
            *_listening(tls),
            *([f"requirepass {password}"] if password else []),
            f"sentinel monitor {PRIMARY} {HOST} {primary.port} 1",
            f"sentinel down-after-milliseconds {PRIMARY} 500",
            f"sentinel failover-timeout {PRIMARY} 2000",
            *([f"sentinel auth-pass {PRIMARY} {of_primary}"] if of_primary else []),
        ]
        made = self.add(
            lambda folder: RedisServer(folder, lines, ready="+monitor", sentinel=True, password=password, tls=tls)
        )

        def knows_replica() -> bool:
            with made.client() as client:
                return bool(client.sentinel_slaves(PRIMARY))

        eventually(knows_replica, "the Sentinel knows the replica", patience=20)
        return made

    def certificates(self) -> Certificates:
        """New certificates for `HOST`, made with the command openssl."""
        made = Certificates(*(self._folder / name for name in ("ca.crt", "own.crt", "own.key")))
        ca_key, request = self._folder / "ca.key", self._folder / "own.csr"
        extension = self._folder / "names.ext"
        extension.write_text(f"subjectAltName=IP:{HOST}\n")
        _openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=tests", "-keyout", ca_key, "-out", made.ca)
        _openssl("req -newkey rsa:2048 -nodes -subj /CN=server", "-keyout", made.key, "-out", request)
        sign = ("-in", request, "-CA", made.ca, "-CAkey", ca_key, "-extfile", extension, "-out", made.cert)
        _openssl("x509 -req -days 2 -CAcreateserial", *sign)
        return made


def _listening(tls: Certificates | None) -> list[str]:
    """The lines of a configuration that say how a server is reached, and how it reaches others."""
    if tls is None:
        return ["port {port}"]
    files = [f"tls-ca-cert-file {tls.ca}", f"tls-cert-file {tls.cert}", f"tls-key-file {tls.key}"]
    return ["port 0", "tls-port {port}", "tls-replication yes", *files]


def _online(primary: redis.Redis) -> set[int]:
    """The ports of the replicas that have caught up."""
    facts = dict(primary.info("replication"))
    replicas = (fact for name, fact in facts.items() if re.fullmatch(r"slave\d+", name))
    return {int(replica["port"]) for replica in replicas if replica["state"] == "online"}


def _openssl(words: str, *more: str | Path) -> None:
    subprocess.run(["openssl", *words.split(), *map(str, more)], check=True, capture_output=True)
