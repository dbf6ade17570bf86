"""CPU budgets of the test suites, and tests that run in ``make test-more`` only."""

from __future__ import annotations

import os

import pytest

MAKE_TEST = "not (slow or campaign)"
BUDGETS = {
    "tests": 620,
    "plugins/torch/tests": 115,
    "plugins/torch_distributed/tests": 165,
    "plugins/horovod/tests": 85,
    "plugins/deepspeed/tests": 35,
    "plugins/tensorflow/tests": 17,
    "plugins/estimator/tests": 25,
    "plugins/keras/tests": 32,
    "plugins/storage_s3/tests": 115,
    "plugins/storage_gcs/tests": 25,
    "plugins/mlflow/tests": 30,
    "plugins/compat/tests": 11,
}
"""Maximum CPU seconds of each suite in ``make test``, including child processes.

They are a fifth above what a run took that had a machine with two cores to itself. Beside other work, suites take up
to twice as much. Together with the set-up and Horovod's build, they are 31 minutes.
"""

REPEATED = {
    "plugins/horovod/tests/test_training.py": ("adversaries", "a_stop_that_one_slot_requests", "a_stuck_slot"),
    "plugins/deepspeed/tests/test_adapter.py": ("adversaries", "a_stop_that_one_slot_requests", "a_stuck_slot"),
    "plugins/deepspeed/tests/test_launches.py": ("",),
}
"""Expensive tests of shared suites, by parts of their names. ``make test`` runs them for det-torch-distributed."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(part in item.nodeid for part in REPEATED.get(item.nodeid.partition("::")[0], ())):
            item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    spent = sum(os.times()[:4])
    suite = next(iter(config.args), "")
    budget = BUDGETS.get(suite) if config.option.markexpr == MAKE_TEST else None
    terminalreporter.write_line(f"{suite}: {spent:.0f} CPU seconds" + (f" of {budget}" if budget else ""))
