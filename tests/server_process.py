"""A real server for tests: a process on loopback that is killed, paused, and started again with its data."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

from tests.waiting import eventually

HOST = "127.0.0.1"
PATIENCE = 60.0
"""Seconds that a server may take to start on a busy machine."""

_SCRIPTS = Path(__file__).parents[1] / "scripts"


@cache
def installed(script: str) -> str:
    """What a script of the project has installed, if it was not there: a program's path, or a class path."""
    return subprocess.run([_SCRIPTS / script], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def java() -> str:
    """The path of a Java, installed if there is none."""
    return f"{installed('java.sh')}/bin/java"


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class Server(ABC):
    """One server, on the same port for as long as the object lives; its folder has its data and its log."""

    name: str
    """What it is, for people."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.data = folder / "data"
        self._folder = folder
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"{HOST}:{self.port}"

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What starts it."""

    @abstractmethod
    def answers(self, told: str) -> bool:
        """Whether it can be used; ``told``: its log."""

    def environment(self) -> Mapping[str, str]:
        """What it finds in its environment."""
        return os.environ

    def prepare(self) -> None:
        """Make its data directory, as it wants it."""
        self.data.mkdir(parents=True)

    def start(self, *, wait: bool = True) -> None:
        """Start the process and, unless told otherwise, wait until it answers."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=subprocess.STDOUT, env=self.environment()
            )
        if wait:
            self.await_ready()

    def await_ready(self) -> None:
        """Wait until it answers."""
        try:
            eventually(self._is_ready, f"the {self.name} on port {self.port} is ready", PATIENCE)
        except BaseException:
            self.kill()
            raise

    def _is_ready(self) -> bool:
        assert self._process is not None
        told = self._log.read_text(errors="replace")
        assert self._process.poll() is None, f"the {self.name} has ended:\n{told[-3000:]}"
        return self.answers(told)

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
            self.prepare()
        self.start()

    def pause(self) -> None:
        """Let it hang: connections stay, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # It may have many threads, and only when the last of them stands still is the signal delivered.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


Kind = TypeVar("Kind", bound=Server)


class Servers(Generic[Kind]):
    """Servers below a directory, which are stopped when it is closed, whatever state they are in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[Kind] = []

    def add(self, make: Callable[[Path], Kind]) -> Kind:
        """A server in a folder of its own, started or not."""
        made = make(self._folder / f"{type(self).__name__}-{len(self._made)}")
        self._made.append(made)
        return made

    def close(self) -> None:
        """End all of them."""
        for server in self._made:
            server.kill()
