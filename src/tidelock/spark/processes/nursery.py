"""A process that has imported everything and forks itself, so that Spark gets its Python processes at once.

For every log that a query reads, Spark starts a Python process of its own on the driver. Importing PySpark and
Arrow costs it one to two seconds, which a segment that restarts has to wait for. The nursery has paid that once: a
child of it takes over the arguments, the environment, the directory and the standard files of the process that
Spark started, and goes on from there.

Spark is told of a script instead of the interpreter, and only for Tidelock's own source. The script asks the
nursery over a Unix socket (`nursery_client`); whatever goes wrong, it becomes the ordinary interpreter. The
nursery ends when the driver does: it then reads the end of its standard input.
"""

from __future__ import annotations

import array
import atexit
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from tidelock import error_notes

_READY = (
    "pyarrow",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.worker",
    "tidelock.log.stores.files",
    "tidelock.spark.connector.source",
)


# -- the driver's side


class Nursery:
    """The nursery of this driver."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tidelock-")  # its path must be short: it has a socket
        address = Path(self._folder.name, "s")
        self.python = Path(self._folder.name, "python")
        client = Path(__file__).with_name("nursery_client.py")
        self.python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{client}" "{address}" "$@"\n')
        self.python.chmod(0o755)
        hashes = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}  # as Spark's workers have it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidelock.spark.processes.nursery", str(address)],
            stdin=subprocess.PIPE,
            env={**os.environ, **hashes},
            process_group=0,  # what is sent to the driver's group is for the driver alone
        )
        atexit.register(self.close)

    @property
    def is_alive(self) -> bool:
        """Whether it still answers."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it; what it has brought up lives on."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


_nursery: Nursery | None = None


def quick_python() -> str:
    """The path of an interpreter that starts at once. The nursery is made when this is first asked for."""
    global _nursery
    if _nursery is None or not _nursery.is_alive:
        _nursery = Nursery()
    return str(_nursery.python)


# -- the nursery itself


def serve(address: str) -> None:
    """Bring up processes until standard input ends."""
    for module in _READY:
        import_module(module)
    gc.freeze()
    wake, woken = socket.socketpair()
    for end in (wake, woken):
        end.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    _loop(listening, wake, [listening, wake, woken])


def _loop(listening: socket.socket, wake: socket.socket, own: list[socket.socket]) -> None:
    waiting: dict[int, socket.socket] = {}
    chosen = selectors.DefaultSelector()
    for source in (sys.stdin, listening, wake):
        chosen.register(source, selectors.EVENT_READ)
    while True:
        ready = {key.fileobj for key, _ in chosen.select()}
        if wake in ready:
            wake.recv(4096)
            _report(waiting)
        if listening in ready:
            connection = listening.accept()[0]
            child = _bring_up(connection, [*own, *waiting.values()])
            if child is not None:
                waiting[child] = connection
        if sys.stdin in ready:
            return


def _report(waiting: dict[int, socket.socket]) -> None:
    """Tell those who wait for a child that it has ended, and how."""
    while waiting:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        connection = waiting.pop(child, None)
        if connection is not None:
            code = os.waitstatus_to_exitcode(status)
            _send(connection, code if code >= 0 else 128 - code)
            connection.close()


def _send(connection: socket.socket, number: int) -> bool:
    try:
        connection.sendall(number.to_bytes(4, "big"))
    except OSError:
        return False  # whoever asked is gone
    return True


def _bring_up(connection: socket.socket, others: list[socket.socket]) -> int | None:
    """Fork a child for a request; its process id, or None if the request was cut off."""
    try:
        files, request = _receive(connection)
    except (OSError, ValueError):
        connection.close()
        return None
    child = os.fork()
    if child == 0:
        for other in (*others, connection):
            other.close()
        _live(files, request)
    for file in files:
        os.close(file)
    _send(connection, child)
    return child


def _receive(connection: socket.socket) -> tuple[list[int], dict[str, Any]]:
    standard = array.array("i")
    size, extra, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(3 * standard.itemsize))
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            standard.frombytes(data)
    content = b""
    while len(content) < int.from_bytes(size, "big"):
        more = connection.recv(1 << 16)
        if not more:
            raise ValueError("cut off")
        content += more
    return list(standard), json.loads(content)


def _live(files: list[int], request: dict[str, Any]) -> None:
    """Be the process that was asked for, and end as it does."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        code = _run(request)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except (BrokenPipeError, ConnectionResetError):
        pass  # Spark has hung up: its query was stopped
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(request: dict[str, Any]) -> int:
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    error_notes.listen()
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = [path for path in paths if path not in sys.path]
    flag, module, *rest = request["arguments"]
    if flag != "-m":
        raise SystemExit(f"the nursery runs modules only, not {flag} {module}")
    sys.argv = [module, *rest]
    warnings.simplefilter("ignore", RuntimeWarning)  # that the module is imported already
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
