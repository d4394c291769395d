"""The tree on a real ZooKeeper server keeps the contract."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.contract.coordination_contract")

from tests.contract.coordination_contract import (  # noqa: E402
    PATIENCE,
    Backend,
    LeaseContract,
    TreeContract,
)
from tests.waiting import eventually  # noqa: E402
from tests.zookeeper_servers import ZooKeeperServer  # noqa: E402

from tidelock.coordination import Tree  # noqa: E402
from tidelock.coordination.zookeeper import ZooKeeperTree  # noqa: E402


class ZooKeeperBackend(Backend):
    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._name = uuid.uuid4().hex

    def open(self) -> ZooKeeperTree:
        return ZooKeeperTree.from_url(f"{self._server.url}/{self._name}?timeout=20", session_timeout=60.0)

    def expire(self, tree: Tree) -> None:
        assert isinstance(tree, ZooKeeperTree)
        with self._server.client() as admin:
            eventually(lambda: self._take_over_and_close(tree, admin), "the session is over", PATIENCE)

    def _take_over_and_close(self, tree: ZooKeeperTree, admin: object) -> bool:
        """Close the session from elsewhere, which fails if the client takes it back in time."""
        identity = tree._session._kazoo.client_id
        if identity is not None:
            with self._server.client(client_id=identity):
                pass
        return admin.exists(tree._changes._receipt) is None


class _ZooKeeper:
    @pytest.fixture
    def backend(self, zookeeper_server: ZooKeeperServer) -> Iterator[ZooKeeperBackend]:
        yield ZooKeeperBackend(zookeeper_server)


class TestZooKeeperTree(_ZooKeeper, TreeContract):
    pass


class TestZooKeeperLease(_ZooKeeper, LeaseContract):
    pass
