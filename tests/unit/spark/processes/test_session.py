import doctest

import pytest

from tidelock.spark.processes import session


def test_local_masters_get_retries() -> None:
    result = doctest.testmod(session)
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize("kept", [False, True])
def test_a_warning_says_what_can_still_be_changed(kept: bool) -> None:
    warning = session.partitions_warning(200, 2, kept=kept)
    assert warning is not None
    assert "200 shuffle partitions on 2 cores" in warning
    assert ("This home keeps them" in warning) == kept
    assert ("to about 2 before the first run" in warning) != kept
