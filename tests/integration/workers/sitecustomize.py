"""Python imports this whenever it starts, so every Python process of Spark knows the stores of the tests."""

import away_store  # noqa: F401
