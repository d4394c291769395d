"""Clients of Redis servers: one for each server, and none has to wait for another's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.waiting import PATIENCE

from tidelock.errors import BackendUnavailable
from tidelock.redis import server
from tidelock.redis.location import RedisLocation, parse

KNOWN, NEW, HANGS = (parse(f"redis://{name}/0/a") for name in ("known", "new", "hangs"))


class Servers:
    """Servers that are played: one hangs when it is asked for the first time."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.goes_on = threading.Event()
        self.answers: list[str] = []

    def check(self, client: Any, location: RedisLocation) -> None:
        """Answer the first question to a server."""
        if location == HANGS.server:
            self.asked.release()
            assert self.goes_on.wait(PATIENCE)
        self.answers.append(location.hosts[0][0])


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Servers:
    played = Servers()
    for name in ("_clients", "_turns"):
        monkeypatch.setattr(server, name, {}, raising=False)
    monkeypatch.setattr(server, "_check_keeps_data", played.check)
    return played


def aside(what: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=what, daemon=True)
    thread.start()
    return thread


def test_a_server_that_hangs_does_not_hold_up_others(servers: Servers) -> None:
    first = server.connect(KNOWN)
    hanging = aside(lambda: server.connect(HANGS))
    assert servers.asked.acquire(timeout=PATIENCE)
    found: list[object] = []
    others = aside(lambda: found.extend([server.connect(KNOWN), server.connect(NEW)]))
    others.join(PATIENCE / 2)
    was_held_up = others.is_alive()
    servers.goes_on.set()
    hanging.join()
    others.join()
    assert not was_held_up
    assert found[0] is first
    assert servers.answers == ["known", "new", "hangs"]


def test_all_who_want_a_server_at_once_get_one_client(servers: Servers) -> None:
    found: list[object] = []
    threads = [aside(lambda: found.append(server.connect(HANGS))) for _ in range(4)]
    assert servers.asked.acquire(timeout=PATIENCE)
    servers.goes_on.set()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
    assert servers.answers == ["hangs"]


def test_after_a_failure_a_server_is_asked_again(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ConnectionRefusedError("not yet")

    with monkeypatch.context() as patch:
        patch.setattr(server, "_check_keeps_data", refuse)
        for _ in range(2):
            with pytest.raises(BackendUnavailable, match="not yet"):
                server.connect(NEW)
    assert server.connect(NEW) is server.connect(NEW)
    assert servers.answers == ["new"]
