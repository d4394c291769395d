"""Real ZooKeeper servers for tests: started on loopback, killed, paused, started again with their data.

`ZooKeeperServers` stops everything that it has started, whatever state it is in.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from kazoo.client import KazooClient
from tests.waiting import eventually

HOST = "127.0.0.1"
PATIENCE = 60.0
"""Seconds that a server may take to start on a busy machine."""

_SCRIPTS = Path(__file__).parents[1] / "scripts"
_TICK = 100
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# One short-lived server: little memory, no second compiler, and nothing to load but what is used.
_JAVA_OPTIONS = ("-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


@cache
def class_path() -> str:
    """The jars of a server, fetched if they are not there."""
    return _output("zookeeper.sh")


@cache
def java() -> str:
    """The path of a Java, installed if there is none."""
    return f"{_output('java.sh')}/bin/java"


class ZooKeeperServer:
    """One server process, on the same port for as long as the object lives."""

    def __init__(self, folder: Path, ensemble: Sequence[str] = ()) -> None:
        """Prepare a server; `ensemble` has the lines of its configuration that name it and its peers."""
        self.port = _free_port()
        self._folder = folder
        self.data = folder / "data"
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.data.mkdir(parents=True)
        lines = [
            f"dataDir={self.data}",
            f"clientPort={self.port}",
            f"clientPortAddress={HOST}",
            # Sessions are counted in ticks: with short ones they end quickly, with the maximum they need not.
            f"tickTime={_TICK}",
            "maxSessionTimeout=120000",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            *ensemble,
        ]
        (folder / "server.cfg").write_text("\n".join(lines) + "\n")

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """The URL of a tree in it."""
        return f"zookeeper://{self.address}"

    @contextmanager
    def client(self, **options: object) -> Iterator[KazooClient]:
        """A connection for looking at what is there."""
        kazoo = KazooClient(self.address, **options)
        kazoo.start(PATIENCE)
        try:
            yield kazoo
        finally:
            kazoo.stop()
            kazoo.close()

    def start(self, *, wait: bool = True) -> None:
        """Start the process and, unless told otherwise, wait until it answers."""
        with self._log.open("wb") as log:
            command = [java(), *_JAVA_OPTIONS, "-cp", class_path(), _MAIN, str(self._folder / "server.cfg")]
            environment = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        if wait:
            self.await_ready()

    def await_ready(self) -> None:
        """Wait until it answers."""
        try:
            eventually(self._is_ready, f"the ZooKeeper server on port {self.port} is ready", PATIENCE)
        except BaseException:
            self.kill()
            raise

    def _is_ready(self) -> bool:
        assert self._process is not None
        told = self._log.read_text(errors="replace")
        assert self._process.poll() is None, f"the ZooKeeper server has ended:\n{told}"
        return self._facts().startswith("Zookeeper version")

    @property
    def leads(self) -> bool:
        """Whether it is the leader of its ensemble."""
        return "Mode: leader" in self._facts()

    def _facts(self) -> str:
        """What it tells about itself; nothing while it does not answer."""
        try:
            with socket.create_connection((HOST, self.port), timeout=5) as connection:
                connection.sendall(b"srvr")
                with connection.makefile("rb") as answer:
                    return answer.read().decode()
        except OSError:
            return ""

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
            shutil.rmtree(self.data)
            self.data.mkdir()
        self.start()

    def pause(self) -> None:
        """Let it hang: connections stay, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # It has many threads, and only when the last of them stands still is the signal delivered.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def recover(self) -> None:
        """Let it run, whatever has been done to it."""
        if self._process is None:
            self.start()
        else:
            self.resume()


class ZooKeeperServers:
    """Starts servers below a directory, and stops them all when it is closed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[ZooKeeperServer] = []

    def start(self) -> ZooKeeperServer:
        """A server that is no ensemble."""
        server = self._add()
        server.start()
        return server

    def ensemble(self, size: int = 3) -> list[ZooKeeperServer]:
        """Servers that agree; any majority of them is enough."""
        peers = [f"server.{number}={HOST}:{_free_port()}:{_free_port()}" for number in range(1, size + 1)]
        servers = [self._add([*peers, "initLimit=100", "syncLimit=50"]) for _ in peers]
        for number, server in enumerate(servers, start=1):
            (server.data / "myid").write_text(f"{number}\n")
            server.start(wait=False)
        for server in servers:
            server.await_ready()
        return servers

    def close(self) -> None:
        """End all of them."""
        for server in self._started:
            server.kill()

    def _add(self, ensemble: Sequence[str] = ()) -> ZooKeeperServer:
        server = ZooKeeperServer(self._folder / f"zookeeper-{len(self._started)}", ensemble)
        self._started.append(server)
        return server


def _output(script: str) -> str:
    found = subprocess.run([_SCRIPTS / script], stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout.strip()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
