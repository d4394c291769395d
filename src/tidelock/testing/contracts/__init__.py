"""What every back end has to do, as suites of tests from which a class in a package of yours derives.

`tidelock.testing.contracts.logs` is for stores of epoch logs, `.trees` for shared trees, `.caches` for stores of
cells. The suites of Tidelock's own back ends are the same.
"""

import pytest

pytest.register_assert_rewrite(f"{__name__}.logs", f"{__name__}.trees", f"{__name__}.caches")
