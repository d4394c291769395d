"""Real Redis servers for tests: started on loopback, killed, paused, made replicas, watched by a Sentinel.

`RedisServers` stops everything that it has started, whatever state it is in.
"""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import redis
from tests.waiting import eventually

HOST = "127.0.0.1"
PRIMARY = "primary"
"""The name under which a Sentinel watches a primary."""


@cache
def server_program() -> str:
    """The path of a Redis server, installed if there is none."""
    script = Path(__file__).parents[1] / "scripts" / "redis.sh"
    found = subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout.strip()


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


class RedisServer:
    """One server process, on the same port for as long as the object lives."""

    def __init__(self, folder: Path, lines: list[str], *, ready: str, sentinel: bool = False) -> None:
        self.port = _free_port()
        self._folder = folder
        self._data = folder / "data"
        self._log = folder / "log"
        self._ready = ready
        self._arguments = ["--sentinel"] if sentinel else []
        self._data.mkdir(parents=True)
        text = [f"bind {HOST}", f"dir {self._data}", *(line.format(port=self.port) for line in lines)]
        (folder / "server.conf").write_text("\n".join(text) + "\n")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"redis://{HOST}:{self.port}/0"

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"{HOST}:{self.port}"

    @contextmanager
    def client(self, password: str | None = None) -> Iterator[redis.Redis]:
        """A connection for looking at what is there."""
        with redis.Redis(host=HOST, port=self.port, password=password, protocol=2) as client:
            yield client

    def start(self) -> None:
        """Start the process and wait until it answers."""
        with self._log.open("wb") as log:
            command = [server_program(), str(self._folder / "server.conf"), *self._arguments]
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            eventually(self._is_ready, f"the Redis server on port {self.port} is ready", patience=20)
        except BaseException:
            self.kill()
            raise

    def _is_ready(self) -> bool:
        assert self._process is not None
        told = self._log.read_text(errors="replace")
        assert self._process.poll() is None, f"the Redis server has ended:\n{told}"
        return self._ready in told

    def kill(self) -> None:
        """End the process as a loss of power would. Nothing happens if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self, *, empty: bool = False) -> None:
        """Kill it and start it again, without all its data if ``empty``."""
        self.kill()
        if empty:
            shutil.rmtree(self._data)
            self._data.mkdir()
        self.start()

    def follow(self, primary: RedisServer) -> None:
        """Make it a replica, and wait until it has caught up."""
        with self.client() as client:
            client.replicaof(HOST, primary.port)
        primary.await_replica(self)

    def await_replica(self, replica: RedisServer) -> None:
        """Wait until ``replica`` has caught up, and its copies count."""
        with self.client() as client:
            eventually(lambda: replica.port in _online(client), "the replica has caught up", patience=20)

    def pause(self) -> None:
        """Let it hang: connections stay, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class RedisServers:
    """Starts servers below a directory, and stops them all when it is closed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[RedisServer] = []

    def start(self, *, tls: Certificates | None = None, **options: str) -> RedisServer:
        """A server with these options, as its configuration file has them (with `_` for `-`).

        It keeps nothing on disk unless it is told to, and listens only with TLS if it has certificates.
        """
        given = {"save": '""', "appendonly": "no", "repl_diskless_sync_delay": "0", **options}
        lines = [f"{name.replace('_', '-')} {value}" for name, value in given.items()]
        if tls is None:
            lines.append("port {port}")
        else:
            lines += ["port 0", "tls-port {port}", f"tls-ca-cert-file {tls.ca}"]
            lines += [f"tls-cert-file {tls.cert}", f"tls-key-file {tls.key}"]
        return self._add(lambda folder: RedisServer(folder, lines, ready="Ready to accept connections"))

    def replica(self, primary: RedisServer, **options: str) -> RedisServer:
        """A replica that has caught up with ``primary``."""
        made = self.start(replicaof=f"{HOST} {primary.port}", **options)
        primary.await_replica(made)
        return made

    def sentinel(self, primary: RedisServer) -> RedisServer:
        """A Sentinel that watches ``primary`` alone, and is quick to put a replica in its place."""
        lines = [
            "port {port}",
            f"sentinel monitor {PRIMARY} {HOST} {primary.port} 1",
            f"sentinel down-after-milliseconds {PRIMARY} 500",
            f"sentinel failover-timeout {PRIMARY} 2000",
        ]
        made = self._add(lambda folder: RedisServer(folder, lines, ready="+monitor", sentinel=True))

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

    def close(self) -> None:
        """End all of them."""
        for server in self._started:
            server.kill()

    def _add(self, make: Callable[[Path], RedisServer]) -> RedisServer:
        made = make(self._folder / f"redis-{len(self._started)}")
        self._started.append(made)
        return made


def _online(primary: redis.Redis) -> set[int]:
    """The ports of the replicas that have caught up."""
    facts = dict(primary.info("replication"))
    replicas = (fact for name, fact in facts.items() if re.fullmatch(r"slave\d+", name))
    return {int(replica["port"]) for replica in replicas if replica["state"] == "online"}


def _openssl(words: str, *more: str | Path) -> None:
    subprocess.run(["openssl", *words.split(), *map(str, more)], check=True, capture_output=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
