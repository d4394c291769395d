"""How the code of a user's file reaches Spark's workers."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from pyspark.cloudpickle import register_pickle_by_value


def send_by_value(module: ModuleType) -> None:
    """Let functions and classes of ``module`` travel as code: the workers cannot import it by its name."""
    register: Callable[[ModuleType], None] = register_pickle_by_value
    register(module)
