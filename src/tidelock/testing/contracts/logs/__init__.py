"""What every store of epoch logs has to do.

A class of yours derives from `LogStoreContract` and gives the fixture ``url``: the URL of a log that does not
exist yet. Everything else is asked of `tidelock.log.open_store`, as readers, writers and executors do it, each
with a store object of its own, some in processes of their own. No test may be changed or left out::

    class TestTape(LogStoreContract):
        @pytest.fixture
        def url(self, tmp_path):
            return f"tape:{tmp_path}/log"
"""

from tidelock.testing.contracts.logs.damage import DamageContract
from tidelock.testing.contracts.logs.entries import EntriesContract
from tidelock.testing.contracts.logs.readers import ReadersContract
from tidelock.testing.contracts.logs.writers import WritersContract

__all__ = ["LogStoreContract"]


class LogStoreContract(EntriesContract, WritersContract, ReadersContract, DamageContract):
    """The contract."""
