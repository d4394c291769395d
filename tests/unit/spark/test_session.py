import doctest

from tidelock.spark import session


def test_local_masters_get_retries() -> None:
    result = doctest.testmod(session)
    assert result.attempted
    assert not result.failed
