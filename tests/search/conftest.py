"""Tests of the compliance suite that run in the soak only, because cheaper ones cover their rules."""

from __future__ import annotations

import pytest

CUSTOM = ("every_trial_is_closed[mixed", "the_same_events", "any_metric_is_accepted", "max_length", "dumped_config")
"""Parts of the names of tests that show a search method of a user in its own process. test_custom.py has the others."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "::test_another_process_gives_the_same_actions" in item.nodeid and "tests/search/" in item.nodeid:
            item.add_marker(pytest.mark.soak)  # all methods share two processes in test_compliance.py
        if "tests/search/test_compliance.py::TestCustom::" in item.nodeid and not any(
            part in item.nodeid for part in CUSTOM
        ):
            item.add_marker(pytest.mark.soak)
