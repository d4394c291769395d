"""The shared tree on a ZooKeeper server or ensemble, for processes of many machines."""

from tidelock.coordination.zookeeper.client import ZooKeeperTree

__all__ = ["ZooKeeperTree"]
