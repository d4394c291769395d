"""The Redis store keeps the contract."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.contract.log_store_contract")

from tests.contract.log_store_contract import LogStoreContract  # noqa: E402


class TestRedisStore(LogStoreContract):
    @pytest.fixture
    def url(self, redis_url: str) -> str:
        return f"{redis_url}/log"
