"""Many pipelines drawn by chance, each under several plans. TIDELOCK_CHAOS_PIPELINES sets how many."""

from __future__ import annotations

import os

import pytest
from tests.integration.conftest import place  # noqa: F401  (a fixture)
from tests.integration.pipelines import Bench
from tests.integration.random_pipelines import check
from tests.integration.streams import Place

PIPELINES = int(os.environ.get("TIDELOCK_CHAOS_PIPELINES", "4"))
# First those that move rows between partitions behind a watermark and before what follows it.
FIRST = (2, 5, 8, 4)
SEEDS = [*FIRST, *(seed for seed in range(1, 1 + PIPELINES) if seed not in FIRST)][:PIPELINES]

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_never_changes_results(place: Place, redis_url: str, seed: int) -> None:  # noqa: F811
    check(Bench(place, cache=redis_url), seed)
