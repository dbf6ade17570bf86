"""Fixture for tests that need Horovod, which is built for ``make test-more`` only."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_core.testing.requirements import require_module

HERE = Path(__file__).parent
REPEATED = (
    "fails_the_job[chief]",
    "says_why[last]",
    "ends_all[waiting-chief]",
    "ends_all[waiting-last]",
    "ends_all[asleep-chief]",
    "can_end_it[2]",
    "rank_of_its_own[1]",
    "launches_at_once",
    "every_name_of_the_interface_works[1]",
    "two_slots[digits_estimator]",
    "two_slots[iris_keras]",
    "what_one_does[aggregated-estimator]",
    "four_slots",
    "random_kills",
    "failed_and_resumed",
    "a_stop_that_one_slot_requests",
    "a_stuck_slot",
)
"""Parts of the names of tests whose rules others test: torch.distributed's, and the exchange between two slots."""


@pytest.fixture(scope="session")
def horovod() -> None:
    """Skip the test, or fail it where everything must be installed, if Horovod is not installed."""
    require_module("horovod", "make more-horovod")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and "horovod" in item.fixturenames:
            item.add_marker(pytest.mark.slow)
            if any(part in item.name for part in REPEATED):
                item.add_marker(pytest.mark.soak)
