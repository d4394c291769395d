"""Stands in for `python` when Spark starts one: asks the nursery for a ready process and waits for its end.

It is started by the script that `tidelock.spark.processes.nursery` writes, with almost nothing imported, because
starting quickly is all it is for. If the nursery does not answer, it becomes the Python that Spark wanted.
"""

import array
import json
import os
import signal
import socket
import sys
import time

_PATIENCE = 5.0
"""Seconds for a nursery that is being started; Spark itself has no more than ten."""


def main(address: str, arguments: list[str]) -> int:
    """Run ``python`` with these arguments; the answer is its exit code."""
    children: list[int] = []
    asked: list[int] = []

    def hand_on(number: int, frame: object) -> None:
        asked.append(number)
        for child in children:
            os.kill(child, number)

    signal.signal(signal.SIGTERM, hand_on)  # before there is a child: from then on it is never lost
    try:
        nursery = _connect(address)
        folder = os.getcwd()  # noqa: PTH109  (pathlib is slow to import)
        request = json.dumps({"arguments": arguments, "environment": dict(os.environ), "folder": folder})
        standard = array.array("i", [0, 1, 2])
        data = request.encode()
        nursery.sendmsg(
            [len(data).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, standard.tobytes())]
        )
        nursery.sendall(data)
        children.append(int.from_bytes(_exactly(nursery, 4), "big"))
    except (OSError, EOFError):
        if asked:
            return 128 + signal.SIGTERM
        os.execv(sys.executable, [sys.executable, *arguments])
    if asked:
        os.kill(children[0], signal.SIGTERM)
    try:
        return int.from_bytes(_exactly(nursery, 4), "big")
    except (OSError, EOFError):
        return 1


def _connect(address: str) -> socket.socket:
    deadline = time.monotonic() + _PATIENCE
    while True:
        nursery = socket.socket(socket.AF_UNIX)
        try:
            nursery.connect(address)
            return nursery
        except FileNotFoundError:
            nursery.close()
            if time.monotonic() > deadline or not os.path.isdir(os.path.dirname(address)):  # noqa: PTH112, PTH120
                raise
            time.sleep(0.05)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
