"""Marks of launches that repeat the rule of another one."""

from __future__ import annotations

import pytest

REPEATED = (
    "fails_the_job",
    "ignores_sigterm",
    "says_why[last]",
    "ends_all[waiting-chief]",
    "ends_all[waiting-last]",
    "ends_all[asleep-chief]",
    "can_end_it[2]",
    "launcher_leaves_nothing",
    "rank_of_its_own",
    "workers_talk",
    "launches_at_once",
)
"""Parts of names. Two nodes have ranks, other launches have messages, and other workers end in the same way."""
IN_CI = ("fails_the_job[last]", "ignores_sigterm", "launcher_leaves_nothing", "launches_at_once")
"""Those that ``make test-more`` runs."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "torch_distributed/tests/test_launches.py" in item.nodeid and any(part in item.nodeid for part in REPEATED):
            item.add_marker(pytest.mark.slow)
            if not any(part in item.nodeid for part in IN_CI):
                item.add_marker(pytest.mark.soak)
