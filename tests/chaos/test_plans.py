"""Many pipelines drawn by chance, each under several plans. TIDELOCK_CHAOS_PIPELINES sets how many."""

from __future__ import annotations

import os

import pytest
from tests.integration.conftest import place, spark  # noqa: F401  (fixtures)
from tests.integration.pipelines import Bench
from tests.integration.random_pipelines import check
from tests.integration.streams import Place

PIPELINES = int(os.environ.get("TIDELOCK_CHAOS_PIPELINES", "4"))

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.mark.parametrize("seed", range(1, 1 + PIPELINES))
def test_a_plan_never_changes_results(place: Place, seed: int) -> None:  # noqa: F811
    check(Bench(place), seed)
