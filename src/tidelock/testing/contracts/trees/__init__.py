"""What every back end of the shared tree must do. A back end runs it by classes that derive from all suites.

They give the fixture ``backend``: a fresh, empty tree that any number of clients can open. Nothing here knows a
back end, and no test may be changed or left out for one::

    class Here:
        @pytest.fixture
        def backend(self, tmp_path):
            return MyBackend(tmp_path)

    class TestTree(Here, TreeContract): ...
    class TestLease(Here, LeaseContract): ...
    class TestNames(Here, NamesContract): ...
"""

from tidelock.testing.contracts.trees.base import PATIENCE, Backend, Recorder, increment
from tidelock.testing.contracts.trees.leases import LeaseContract
from tidelock.testing.contracts.trees.names import NamesContract
from tidelock.testing.contracts.trees.nodes import NodesContract
from tidelock.testing.contracts.trees.sessions import SessionsContract

__all__ = ["PATIENCE", "Backend", "LeaseContract", "NamesContract", "Recorder", "TreeContract", "increment"]


class TreeContract(NodesContract, SessionsContract):
    """Nodes, sessions and watches."""
