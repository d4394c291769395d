"""Real ZooKeeper servers for tests: alone, or as an ensemble."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient
from tests.server_process import HOST, PATIENCE, Server, Servers, free_port, installed, java

_TICK = 100
_TIMES = ("initLimit=100", "syncLimit=50")
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# One short-lived server: little memory, no second compiler, and nothing to load but what is used.
_JAVA_OPTIONS = ("-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


class ZooKeeperServer(Server):
    """One server."""

    name = "ZooKeeper server"

    def __init__(self, folder: Path, ensemble: Sequence[str] = ()) -> None:
        """Prepare a server; `ensemble` has the lines of its configuration that name it and its peers."""
        super().__init__(folder)
        self.prepare()
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

    def command(self) -> list[str]:
        return [java(), *_JAVA_OPTIONS, "-cp", installed("zookeeper.sh"), _MAIN, str(self._folder / "server.cfg")]

    def environment(self) -> Mapping[str, str]:
        return {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}

    def answers(self, told: str) -> bool:
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

    def recover(self) -> None:
        """Let it run, whatever has been done to it."""
        if self._process is None:
            self.start()
        else:
            self.resume()


class ZooKeeperServers(Servers[ZooKeeperServer]):
    """Starts servers below a directory."""

    def start(self) -> ZooKeeperServer:
        """A server that is no ensemble."""
        server = self.add(ZooKeeperServer)
        server.start()
        return server

    def ensemble(self, size: int = 3) -> list[ZooKeeperServer]:
        """Servers that agree; any majority of them is enough."""
        peers = [f"server.{number}={HOST}:{free_port()}:{free_port()}" for number in range(1, size + 1)]
        servers = [self.add(lambda folder: ZooKeeperServer(folder, [*peers, *_TIMES])) for _ in peers]
        for number, server in enumerate(servers, start=1):
            (server.data / "myid").write_text(f"{number}\n")
            server.start(wait=False)
        for server in servers:
            server.await_ready()
        return servers
