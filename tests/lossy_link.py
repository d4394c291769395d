"""A link to a ZooKeeper server that breaks at the worst moments, before a change arrives or before it is answered.

`LossyLink` is a relay on loopback that understands just enough of the protocol: each message begins with its
length, each request goes on with its number and its kind, and each answer repeats the number.
"""

from __future__ import annotations

import socket
import struct
import threading
from enum import Enum

HOST = "127.0.0.1"
_TRANSACTION = 14
"""The kind of request that changes something in one step."""


class Loss(Enum):
    """What is lost when a link breaks."""

    REQUEST = "request"
    """The server never sees the change."""
    ANSWER = "answer"
    """The server has made the change, or refused it; the client never hears of it."""


class LossyLink:
    """Relays connections to a server until it is told to lose something."""

    def __init__(self, port: int) -> None:
        self._server = (HOST, port)
        self._lock = threading.Lock()
        self._orders: list[Loss] = []
        self.losses = 0
        self._listener = socket.create_server((HOST, 0))
        self._open: set[socket.socket] = set()
        self._whole = True
        self._ignored = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """The host and the port to connect to instead of the server's."""
        return f"{HOST}:{self._listener.getsockname()[1]}"

    def lose(self, *losses: Loss) -> None:
        """Break the connection of each of the next transactions, in this order."""
        with self._lock:
            self._orders.extend(losses)

    def __enter__(self) -> LossyLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, with all connections."""
        _break(self._listener)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections, and let nobody through any more."""
        with self._lock:
            self._whole = False
            _break(*self._open)
            self._open.clear()

    def ignore_next(self) -> None:
        """Break all connections, then take one and never answer it, as a server may that is just starting."""
        with self._lock:
            self._ignored = 1
            _break(*self._open)
            self._open.clear()

    @property
    def ignores(self) -> bool:
        """Whether it still waits for that connection."""
        with self._lock:
            return self._ignored > 0

    def mend(self) -> None:
        """Let everybody through again."""
        with self._lock:
            self._whole = True

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
            except OSError:
                return
            with self._lock:
                if not self._whole:
                    _break(client, server)
                    continue
                self._open |= {client, server}
                if self._ignored:
                    self._ignored -= 1
                    continue
            lost: set[int] = set()
            threading.Thread(target=self._carry_requests, args=(client, server, lost), daemon=True).start()
            threading.Thread(target=self._carry_answers, args=(server, client, lost), daemon=True).start()

    def _carry_requests(self, client: socket.socket, server: socket.socket, lost: set[int]) -> None:
        first = True  # the first message opens the session and has no number
        while (message := _receive(client)) is not None:
            number, kind = struct.unpack_from(">ii", message)
            loss = self._next_loss() if not first and kind == _TRANSACTION else None
            first = False
            if loss is Loss.REQUEST:
                break
            if loss is Loss.ANSWER:
                lost.add(number)
            if not _send(server, message):
                break
        _break(client, server)

    def _carry_answers(self, server: socket.socket, client: socket.socket, lost: set[int]) -> None:
        first = True
        while (message := _receive(server)) is not None:
            if not first and struct.unpack_from(">i", message)[0] in lost:
                break
            first = False
            if not _send(client, message):
                break
        _break(client, server)

    def _next_loss(self) -> Loss | None:
        with self._lock:
            if not self._orders:
                return None
            self.losses += 1
            return self._orders.pop(0)


def _send(connection: socket.socket, message: bytes) -> bool:
    """Send one message, unless the connection is broken."""
    try:
        connection.sendall(struct.pack(">i", len(message)) + message)
    except OSError:
        return False
    return True


def _receive(connection: socket.socket) -> bytes | None:
    """One message, or None at the end."""
    head = _read(connection, 4)
    return None if head is None else _read(connection, struct.unpack(">i", head)[0])


def _read(connection: socket.socket, size: int) -> bytes | None:
    parts = b""
    while len(parts) < size:
        try:
            part = connection.recv(size - len(parts))
        except OSError:
            return None
        if not part:
            return None
        parts += part
    return parts


def _break(*connections: socket.socket) -> None:
    for connection in connections:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # it is broken already
