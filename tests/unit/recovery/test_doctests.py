"""The examples in the docstrings of the recovery package are true."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("name", ["adjust", "backpressure", "cached", "draining", "held", "machine", "policy"])
def test_doctests(name: str) -> None:
    # By name: the package's attribute `adjust` is the function, not the module.
    result = doctest.testmod(import_module(f"tidelock.recovery.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
