"""Marks of tests of shared suites whose rules other tests cover."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SLOW = ("fails_the_job[last]", "ignores_sigterm", "launcher_leaves_nothing", "launches_at_once")
"""Parts of the names of tests for ``make test-more``: others fail for the same reasons in det-torch's code."""
SOAK = (
    "fails_the_job[chief]",
    "says_why[last]",
    "ends_all[waiting-chief]",
    "ends_all[waiting-last]",
    "ends_all[asleep-chief]",
    "can_end_it[2]",
    "rank_of_its_own",
    "workers_talk",
    "four_slots_resume_exactly[one model]",
    "TestShards::test_four_slots",
    "TestShards::test_a_stuck_slot",
)
"""Parts of the names of tests for the soak, which repeat the rule of another one here with another rank or trial."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            for mark, parts in ((pytest.mark.slow, SLOW), (pytest.mark.soak, SOAK)):
                if any(part in item.nodeid for part in parts):
                    item.add_marker(mark)
