"""A Redis server for benchmarks: on a free port of this machine only, keeping nothing on disk."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

_HOST = "127.0.0.1"
_PATIENCE = 20.0


class RedisServer:
    """Runs inside `with`, always on the same port."""

    def __init__(self) -> None:
        script = Path(__file__).parents[1] / "scripts" / "redis.sh"
        found = subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True)
        self._program = found.stdout.strip()
        self._folder = Path(tempfile.mkdtemp(prefix="tidelock-redis-"))
        with socket.socket() as probe:
            probe.bind((_HOST, 0))
            self._port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"redis://{_HOST}:{self._port}/0"

    def __enter__(self) -> RedisServer:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        shutil.rmtree(self._folder)

    def lose_everything(self) -> None:
        """Kill it, and start it again with nothing in it."""
        self._kill()
        self._start()

    def _start(self) -> None:
        options = {
            "bind": _HOST,
            "port": str(self._port),
            "dir": str(self._folder),
            "save": "",
            "appendonly": "no",
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen(
            [self._program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the Redis server {self._program} does not start on port {self._port}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((_HOST, self._port), timeout=1) as talk:
                talk.sendall(b"PING\r\n")
                return talk.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
