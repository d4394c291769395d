"""What back ends and sinks have to do, as suites of tests from which a class in a package of yours derives.

`tidelock.testing.contracts.logs` is for stores of epoch logs, `.trees` for shared trees, `.caches` for stores of
cells, `.sinks` for sinks. The suites of Tidelock's own are the same.
"""

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{kind}" for kind in ("logs", "trees", "caches", "sinks")))
